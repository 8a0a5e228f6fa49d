"""What each server of a training has to do: its share of the lookups, and the bytes that it holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from feat2vec.arrays import Floats, Int64s
from feat2vec.cluster.servers import Servers
from feat2vec.cluster.spread_rows import SpreadRows
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.value_tables import Values
from feat2vec.encode.vocabulary import FIRST, UNSEEN
from feat2vec.model.extractors import LookupExtractor
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import row_slices
from feat2vec.model.optimizers import resource_of
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

    Args:
        model: The model, whose tables are on the servers.
        rows: The training rows.
        servers: The servers.

    """
    reads = np.zeros(len(servers.devices))
    for owner, extractor in zip(model.schema.owners, model.distinct_extractors(), strict=True):
        if not extractor.shape.sizes:
            continue
        counts = np.zeros(extractor.shape.sizes[0] + UNSEEN, np.int64)
        for name in model.schema.sharing(owner):
            add_counts(counts, rows.values[name], weighted=extractor.shape.weighted)
        above = {id(table) for table in extractor.tables[1:]} if isinstance(extractor, LookupExtractor) else set()
        for table in extractor.weights:
            resource = resource_of(table)
            if not isinstance(resource, SpreadRows):
                continue
            first = FIRST if id(table) in above else UNSEEN  # the id of the first row
            for number, part in enumerate(resource.parts):
                server = servers.devices.index(resource_of(part).device)
                for rows_of_part in row_slices([resource.spread.rows(number)], np.int64):
                    ids = resource.spread.ids_of_part(number, rows_of_part) + first
                    reads[server] += reads_of_step(counts[ids], len(rows), model.schema.training.batch_size).sum()
    total = reads.sum()
    return reads / total if total else np.full(len(reads), 1 / len(reads))


def reads_of_step(counts: Int64s, rows: int, batch_size: int) -> Floats:
    """Return how often a step reads keys on average, [keys].

    A step reads each distinct key of its batch once. Of n rows, a key that c of them have is in a batch of b rows with
    the probability 1 - (1 - c / n)^b.

    Args:
        counts: How many rows have each key, [keys].
        rows: The number of rows.
        batch_size: That of a step.

    Example:
        >>> reads_of_step(np.array([4, 1, 0]), rows=4, batch_size=2).round(4).tolist()
        [1.0, 0.4375, 0.0]

    """
    shares = np.minimum(counts / max(rows, 1), 1 - 1e-12)
    reads: Floats = -np.expm1(batch_size * np.log1p(-shares))
    return reads


def add_counts(counts: Int64s, values: Values, *, weighted: bool) -> None:
    """Add how often each id occurs.

    Args:
        counts: By id, [ids].
        values: The values of a group, and how many rows have each.
        weighted: Whether entries are ids and then weights.

    """
    width = values.entries.shape[1] // 2 if weighted else values.entries.shape[1]
    for piece in row_slices([len(values.entries), width], np.int64):
        ids = np.asarray(values.entries[piece, :width])
        np.add.at(counts, ids, np.asarray(values.counts[piece])[:, None])
