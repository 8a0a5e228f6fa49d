"""What each server of a training has to do."""

from __future__ import annotations

import numpy as np
import pytest

from feat2vec.arrays import Int64s
from feat2vec.cluster.load import lookup_shares, reads_of_step
from feat2vec.cluster.servers import Servers
from feat2vec.encode.encoder import fit
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.reading import read_schema
from tests.cluster.cases import CASES, table

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def test_a_step_reads_a_key_once() -> None:
    rng, rows, batch = np.random.default_rng(0), 50, 8
    keys = rng.zipf(1.5, rows) % 6
    counts = np.bincount(keys, minlength=6)
    batches = keys[rng.integers(0, rows, (20_000, batch))]  # rows are drawn with replacement
    distinct = np.array([[key in drawn for key in range(6)] for drawn in batches]).mean(axis=0)
    np.testing.assert_allclose(reads_of_step(counts, rows, batch), distinct, atol=0.015)


@pytest.mark.parametrize("case", ["rafm", "texts"])
def test_reads_of_all_tables_are_counted(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fit(read_schema(CASES[case]), table(100))
    servers = Servers([DEVICE, "/job:localhost/replica:0/task:0/device:CPU:1"], least_bytes=1)
    servers.devices[1] = DEVICE  # there is one device; each table has two parts on it
    with servers.holding():
        model = Feat2Vec.from_encoder(rows.encoder)
    totals = []

    def count(counts: Int64s, rows: int, batch_size: int) -> Int64s:
        del rows, batch_size
        totals.append(int(counts.sum()))
        return counts

    monkeypatch.setattr("feat2vec.cluster.load.reads_of_step", count)
    assert lookup_shares(model, rows, servers).tolist() == [1, 0]
    occurrences = 0
    for name, extractor in zip(model.schema.owners, model.distinct_extractors(), strict=True):
        if not extractor.shape.sizes:
            continue
        ids = np.asarray(rows.values[name].entries)
        counts = np.asarray(rows.values[name].counts)[:, None] * np.ones_like(ids)
        levels = len(extractor.dims) if case == "rafm" else 1
        for level in range(levels):
            low, high = (1, extractor.shape.table_sizes[0] + 1) if level == 0 else (2, extractor.shape.sizes[level] + 2)
            occurrences += int(counts[(ids >= low) & (ids < high)].sum())
        if extractor.bias:
            occurrences += int(counts[ids >= 1].sum())
    assert sum(totals) == occurrences
