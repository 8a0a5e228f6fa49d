"""The bijection between the ids of a table and the rows of its parts."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.cluster.spread import Spread


@pytest.mark.parametrize(("size", "parts"), [(1, 1), (7, 1), (1, 3), (2, 3), (9, 3), (10, 3), (11, 3), (1000, 7)])
def test_it_is_a_bijection(size: int, parts: int) -> None:
    spread = Spread(size, parts)
    part_of_id, row_of_id = (place.numpy() for place in spread.places(tf.range(size)))
    assert sum(spread.rows(part) for part in range(parts)) == size
    for part in range(parts):
        ids = spread.ids_of_part(part)
        assert len(ids) == spread.rows(part) == np.count_nonzero(part_of_id == part)
        np.testing.assert_array_equal(part_of_id[ids], part)
        np.testing.assert_array_equal(row_of_id[ids], np.arange(len(ids)))
        np.testing.assert_array_equal(ids, np.sort(ids))
        for id_ in range(size + 1):
            assert spread.rows_before(part, id_) == np.count_nonzero(ids < id_)
    assert max(map(spread.rows, range(parts))) - min(map(spread.rows, range(parts))) <= 1


def test_a_part_of_the_rows_has_its_ids() -> None:
    spread = Spread(100, 3)
    for part in range(3):
        np.testing.assert_array_equal(spread.ids_of_part(part, slice(5, 20)), spread.ids_of_part(part)[5:20])


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_each_part_has_its_share_of_frequent_ids(parts: int) -> None:
    size, batch, rows = 100_000, 4096, 10_000_000
    shares = 1 / np.arange(1, size + 1) ** 1.1
    counts = rows * shares / shares.sum()
    reads = -np.expm1(batch * np.log1p(-np.minimum(counts / rows, 1 - 1e-9)))  # of a key in a step
    spread = Spread(size, parts)
    reads_of_parts = np.array([reads[spread.ids_of_part(part)].sum() for part in range(parts)])
    neighbours = np.array([part.sum() for part in np.array_split(reads, parts)])  # TensorFlow's own shards
    assert reads_of_parts.max() / reads_of_parts.mean() < 1.01
    assert neighbours.max() / neighbours.mean() > 1.3
    counts_of_parts = np.array([counts[spread.ids_of_part(part)].sum() for part in range(parts)])
    assert counts_of_parts.max() - counts_of_parts.min() <= counts[0]  # not evener than the most frequent key alone
