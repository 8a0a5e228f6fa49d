"""A coarse copy of a table: its bounds hold, and it gives the rows that it was made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feat2vec.arrays import Float32s
from feat2vec.model.coarse_table import CODES, SCALES, CoarseTable, bounds, write_coarse


def vectors() -> Float32s:
    """Vectors of very different lengths, one of them zero."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(500, 24)) * 10.0 ** rng.integers(-6, 6, (500, 1))
    table[7] = 0
    return table.astype(np.float32)


def coarse_table(folder: Path, table: Float32s) -> CoarseTable:
    write_coarse([table[:200], table[200:]], folder / "coarse" / "who")
    return CoarseTable(folder, "coarse/who", (len(table), table.shape[1]), lambda _: None)


@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_no_product_is_out_of_its_bounds(cosine: bool, gain: float, tmp_path: Path) -> None:
    table = vectors()
    stored = coarse_table(tmp_path, table)
    for query in (np.linspace(-1, 1, 24, dtype=np.float32), table[3], 1e3 * table[11]):
        exact = gain * table[1:].astype(float) @ query.astype(float)
        if cosine:
            norms = gain * np.linalg.norm(table[1:].astype(float), axis=1)
            exact = np.divide(exact, norms, out=np.zeros_like(exact), where=norms > 0)
        seen = 0
        for block in stored.blocks(1, gain, rows_per_block=64):
            products, slack = bounds(block, query, cosine=cosine)
            assert (np.abs(products - exact[block.rows]) <= slack * (1 + 1e-6)).all()
            seen += len(products)
        assert seen == len(exact)
        if cosine:
            assert np.median(slack) < 0.02 * np.linalg.norm(query)


def test_the_copy_is_a_quarter_and_a_little_more(tmp_path: Path) -> None:
    table = vectors()
    coarse_table(tmp_path, table)
    assert (tmp_path / f"coarse/who{CODES}").stat().st_size == table.size
    assert (tmp_path / f"coarse/who{SCALES}").stat().st_size == 12 * len(table)
