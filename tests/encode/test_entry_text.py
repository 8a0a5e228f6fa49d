"""What a person reads and types for a value."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.encode.encoder import fit
from feat2vec.encode.entry_text import spell


def spelled(column: list[Any], extractor: dict[str, Any], **more: list[Any]) -> list[str]:
    groups = {"x": {"column": "x", "extractor": extractor}, "y": {"column": "y"}}
    rows = pa.table({"x": column, "y": ["a"] * len(column), **more})
    encoder = fit({"version": 1, "groups": groups}, rows).encoder
    entries = np.asarray(encoder.values["x"].entries)
    text = spell(encoder.codecs["x"], encoder.schema.groups["x"], entries, np.arange(len(entries)))
    assert len(set(text.to_pylist())) == len(entries)
    return sorted(text.to_pylist())


NUMBERS = {
    "standard": [0.0, 0.1, -3.25, 1234567.0, 1e-3, 7.0],
    "minmax": [0.0, 0.3, 1995.0, 2024.0, 1995.5, 7.0],
    "log1p": [0.0, 1e9, 123456.0, 0.001, 7.5, 3.0],
    "quantile": [1.0, 2.0, 3.5, 100.0, -1e6, 7.0],
    "none": [0.1, 16777216.0, 1e-9, -2.5, 1e30, 7.0],
}


@pytest.mark.parametrize("scale", list(NUMBERS))
def test_a_number_is_the_roundest_that_encodes_to_the_same(scale: str) -> None:
    numbers = NUMBERS[scale]
    text = spelled(numbers, {"type": "numeric", "scale": scale})
    spacing = 1e-6 * (max(map(abs, numbers)) if scale in ("standard", "minmax") else 0)
    for number in numbers:
        near = min(text, key=lambda t: abs(float(t) - number))
        assert float(near) == pytest.approx(number, rel=2e-6, abs=spacing)
        if number == 7 and scale != "quantile":
            assert near == "7"


def test_a_date_is_a_day_unless_it_has_a_time() -> None:
    dates = [datetime(1999, 12, 31), datetime(2024, 2, 29), datetime(2024, 2, 29, 6, 30)]
    assert spelled(dates, {"type": "numeric"}) == ["1999-12-31", "2024-02-29", "2024-02-29 06:30:00"]


def test_a_text_is_its_tokens_and_says_which_were_unseen() -> None:
    extractor = {"type": "text_cnn", "min_count": 2, "widths": [1]}
    assert spelled(["Größe und", "größe", "UND anders"], extractor) == ["grösse", "grösse und", "und <unseen>"]


def test_a_vector_shows_its_first_numbers() -> None:
    vectors = pa.array([[0.5, 1, 2, 3, 9], [0.5, 1, 2, 3, 8]], pa.list_(pa.float32(), 5))
    assert spelled(vectors, {"type": "vector"}) == ["[0.5, 1, 2, 3, ...] #1", "[0.5, 1, 2, 3, ...] #2"]
    assert spelled([[0.25, 1], [3, 4]], {"type": "vector"}) == ["[0.25, 1] #1", "[3, 4] #2"]


def test_a_bag_is_its_keys_and_weights() -> None:
    extractor = {"type": "lookup", "multi": True, "weights": "w"}
    text = spelled([["a", "b"], ["b"]], extractor, w=[[1.0, 0.5], [2.0]])
    assert text == ["b:0.5, a:1", "b:2"]
    assert spelled([["a", "b"], ["b"]], {"type": "lookup", "multi": True}) == ["b", "b, a"]
