"""Columns as vectors, from lists and from text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.table.vectors import vectors_of
from tests.table.stages import NAN, refuse, stage_of


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([[1, 2.5], None, [], [0, -1]], pa.list_(pa.float64())),
        ([[1, 2.5], None, None, [0, -1]], pa.list_(pa.float32(), 2)),
        (["[1, 2.5]", None, "", "(0; -1)"], pa.string()),
        (["1 2.5", " ", "[]", "0,-1"], pa.string()),
    ],
)
def test_vectors(cells: list[Any], kind: pa.DataType) -> None:
    present, vectors = vectors_of(stage_of(cells, kind), "a", None)
    assert present.tolist() == [True, False, False, True]
    assert vectors.tolist() == [[1, 2.5], [0, -1]]
    assert vectors.dtype == np.float32
    assert vectors_of(stage_of(cells, kind), "a", 2)[1].tolist() == vectors.tolist()


def test_vectors_of_integers() -> None:
    assert vectors_of(stage_of([[2**30 + 1, 0]]), "a", 2)[1].tolist() == [[2.0**30, 0.0]]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.null(), pa.string(), pa.list_(pa.null())])
def test_no_vectors(kind: pa.DataType) -> None:
    cells: list[Any] = [None, [] if pa.types.is_list(kind) else None]
    for size in (None, 3):
        present, vectors = vectors_of(stage_of(cells, kind), "a", size)
        assert (present.tolist(), len(vectors)) == ([False, False], 0)


def test_a_number_is_the_same_in_text() -> None:
    """Rounded to 64 bits first, as typed columns are."""
    number = 1 + 2**-24 + 2**-53
    _, typed = vectors_of(stage_of([[number]]), "a", 1)
    _, text = vectors_of(stage_of([f"[{number!r}]"]), "a", 1)
    assert typed.tobytes() == text.tobytes()


@pytest.mark.parametrize(
    ("cells", "size", "match"),
    [
        (
            [[1.0, 2.0], [1.0]],
            None,
            r"row 2: column 'a': received \[1.0\]; a vector of 2 .* needed, this has 1",
        ),
        ([[1.0, 2.0]], 3, r"row 1: column 'a': received \[1.0, 2.0\]; a vector of 3 numbers is needed, this has 2"),
        ([None, [1.0, NAN]], None, r"row 2: column 'a': received \[1.0, nan\]; a vector's numbers must be finite"),
        ([[1.0, None]], None, r"row 1: column 'a': received \[1.0, None\]; a vector's numbers must be finite"),
        ([[1e39]], None, r"row 1: column 'a': received \[1e\+39\]; a vector's numbers must be finite"),
        (["[1, 2]", "[1, x]"], None, r"row 2: column 'a': received '\[1, x\]'; a list of numbers is needed"),
        (["[1, nan]"], None, r"row 1: column 'a': received '\[1, nan\]'; a vector's numbers must be finite"),
        ([1.0], None, "row 1: column 'a' holds double; a list of numbers is needed"),
        ([["a"]], None, r"column 'a' holds list<.*string>; a list of numbers is needed"),
    ],
)
def test_what_is_no_vector(cells: list[Any], size: int | None, match: str) -> None:
    refuse(match, lambda: vectors_of(stage_of(cells), "a", size))
