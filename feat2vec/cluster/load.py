"""What each server of a training has to do: its share of the lookups, and the bytes that it holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from feat2vec.arrays import Floats
from feat2vec.cluster.servers import Servers
from feat2vec.cluster.spread_rows import SpreadRows
from feat2vec.encode.encoder import Encoded
from feat2vec.model.extractors.base import UNSEEN
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.optimizers import is_by_row, resource_of
from feat2vec.model.single_items import id_counts
from feat2vec.training.memory_estimate import spelled


def loads(model: Feat2Vec, rows: Encoded, servers: Servers) -> Iterator[str]:
    """Yield a line for each server.

    Args:
        model: The model, whose tables are on the servers.
        rows: The training rows.
        servers: The servers.

    """
    shares = lookup_shares(model, rows, servers)
    for number, (share, size) in enumerate(zip(shares, servers.bytes, strict=True)):
        yield f"server {number}: {share:.1%} of the lookups, {spelled(size)}"


def lookup_shares(model: Feat2Vec, rows: Encoded, servers: Servers) -> Floats:
    """Return each server's share of the rows of tables that steps read, [servers].

    A step reads each distinct key of its batch once. Of n rows, a key that c of them have is in a batch of b rows with
    the probability 1 - (1 - c / n)^b.

    Args:
        model: The model, whose tables are on the servers.
        rows: The training rows.
        servers: The servers.

    """
    reads = np.zeros(len(servers.devices))
    batch_size, row_count = model.schema.training.batch_size, max(len(rows), 1)
    for owner, extractor in zip(model.schema.owners, model.distinct_extractors(), strict=True):
        if not extractor.shape.sizes:
            continue
        counts = np.zeros(extractor.shape.sizes[0])
        for name in model.schema.sharing(owner):
            values, width = rows.values[name], rows.values[name].entries.shape[1]
            ids = values.entries[:, : width // 2] if extractor.shape.weighted else values.entries
            counts += id_counts(ids, values.counts, len(counts) + UNSEEN)[UNSEEN:]
        of_batch = -np.expm1(batch_size * np.log1p(-np.minimum(counts / row_count, 1 - 1e-9)))  # [keys]
        for table in extractor.weights:
            resource = resource_of(table)
            if not is_by_row(table) or not isinstance(resource, SpreadRows):
                continue
            first = len(of_batch) - table.shape[0] if table.shape[0] == len(of_batch) else 0
            for number, part in enumerate(resource.parts):
                ids = resource.spread.ids_of_part(number)
                reads[servers.devices.index(resource_of(part).device)] += of_batch[ids + first].sum()
    total = reads.sum()
    return reads / total if total else np.full(len(reads), 1 / len(reads))
