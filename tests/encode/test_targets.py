"""Targets, weights and names of rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pytest

from feat2vec.encode.encoder import fit
from feat2vec.encode.workspace import PieceSizes
from tests.encode.tables import TableInBatches, Z, fit_target, refuse, schema_of


def test_targets(tmp_path: Path) -> None:
    logistic = fit_target("logistic", [True, False]).target
    assert logistic is not None
    assert logistic.dtype == np.float32
    assert logistic.tolist() == [1.0, 0.0]
    cases: dict[str, list[Any]] = {"regression": [-1.5, 2.0], "glove": [1, 10**9], "logistic": [0, 1]}
    for kind, cells in cases.items():
        target = fit_target(kind, cells).target
        assert target is not None
        assert target.tolist() == cells
    classes = fit_target("softmax", ["b", "c", "a", "c"])
    assert classes.target is not None
    assert classes.target.dtype == np.int32
    assert classes.target.tolist() == [2, 0, 1, 0]
    new = classes.encoder.encode(pa.table({"z": ["z"] * 2, "t": ["a", "d"]}))
    assert new.target is not None
    assert new.target.tolist() == [1, -1]
    assert classes.encoder.encode(pa.table({"z": ["z"]})).target is None
    (tmp_path / "a.csv").write_text("z,t\nz,true\nz,False\n")
    from_text = fit(schema_of(Z, objective={"type": "logistic", "target": "t"}), tmp_path / "a.csv").target
    assert from_text is not None
    assert from_text.tolist() == [1.0, 0.0]


def test_typed_text_classes_stay_as_they_are() -> None:
    encoded = fit_target("softmax", ["1.0", "1", "1.0"])
    assert encoded.encoder.classes is not None
    assert encoded.encoder.classes.keys.to_pylist() == ["1.0", "1"]


@pytest.mark.parametrize(
    ("kind", "cells", "match"),
    [
        ("logistic", [0, 1, 2], r"the table: row 3: column 't': received 2; .* 0 or 1, or missing"),
        ("regression", [0.5, float("inf")], r"row 2: column 't': received inf; numbers must be finite"),
        ("regression", [1e39], r"row 1: column 't': received 1e\+39; "),
        ("regression", ["x"], r"row 1: column 't': received 'x'; a number is needed"),
        ("glove", [3, 0], r"row 2: column 't': received 0; .* above 0"),
        ("glove", [1e-60], r"row 1: column 't': received 1e-60; .* above 0"),
        ("softmax", [None, ""], "the table: no row has a value of 't', the target"),
    ],
)
def test_bad_targets(kind: str, cells: list[Any], match: str) -> None:
    assert len(refuse(match, lambda: fit_target(kind, cells))) == 1


@pytest.mark.parametrize(
    ("kind", "cells", "target", "left_out"),
    [
        ("logistic", [0, None, 1], [0, np.nan, 1], [1]),
        ("regression", [float("nan"), 0.5, None], [np.nan, 0.5, np.nan], [0, 2]),
        ("softmax", ["a", None, "b", "", "a"], [0, -1, 1, -1, 0], [1, 3]),
        ("softmax", [2.5, float("nan"), 1.0, 2.5], [0, -1, 1, 0], [1]),
    ],
)
def test_rows_without_a_target_are_left_out(
    kind: str, cells: list[Any], target: list[float], left_out: list[int]
) -> None:
    encoded = fit_target(kind, cells)
    np.testing.assert_array_equal(encoded.target, target)
    assert encoded.left_out.places.tolist() == left_out
    assert encoded.learnt_rows == len(cells) - len(left_out)
    again = encoded.encoder.encode(pa.table({"z": ["z"] * len(cells), "t": cells}))  # by classes that are known
    np.testing.assert_array_equal(again.target, target)
    assert again.left_out.places.tolist() == left_out


def test_rows_without_a_target_are_left_out_in_every_stage() -> None:
    cells = [None if i % 3 == 0 else float(i) for i in range(100)]
    rows = TableInBatches(pa.table({"z": ["z"] * 100, "t": cells}), 10)
    encoded = fit(
        schema_of(Z, objective={"type": "regression", "target": "t"}),
        rows,
        sizes=PieceSizes(stage_bytes=100, rows_per_piece=7),
    )
    assert encoded.left_out.places.tolist() == list(range(0, 100, 3))
    assert encoded.learnt_target is not None
    assert encoded.learnt_target.tolist() == [float(i) for i in range(100) if i % 3]


def test_weights_and_names(tmp_path: Path) -> None:
    rows = pa.table({"z": ["z"] * 3, "t": [1, 0, 1], "w": [0.5, 0, 2], "film": [7.0, 8.0, 7.0]})
    schema = schema_of(Z, objective={"type": "logistic", "target": "t", "weight": "w"}, id="film")
    encoded = fit(schema, rows, tmp_path / "out")
    assert encoded.weight is not None
    assert encoded.weight.tolist() == [0.5, 0, 2]
    names = encoded.names()
    assert names is not None
    assert names["name"].to_pylist() == ["7", "8", "7"]
    assert fit(schema_of(Z), rows).names() is None
    negative, unnamed = rows.set_column(2, "w", [[-1, 1, 1]]), rows.set_column(3, "film", [["a", None, "b"]])
    refuse("row 1: column 'w': received -1; .* from 0 to 1e30", lambda: fit(schema, negative))
    refuse("row 2: column 'film': received None; the `id`", lambda: fit(schema, unnamed))


def test_lists_are_no_target_and_no_name() -> None:
    lists = pa.table({"z": ["z"], "t": [["a"]]})
    match = "row 1: column 't' holds lists; a single value a row is needed"
    refuse(match, lambda: fit(schema_of(Z, objective={"type": "softmax", "target": "t"}), lists))
    refuse(match, lambda: fit(schema_of(Z, id="t"), lists))
    refuse("row 1: column 't' holds list.*; a number is needed", lambda: fit_target("regression", [["a"]]))


@pytest.mark.parametrize("objective", ["regression", "logistic", "softmax"])
def test_rows_that_all_weigh_nothing_are_refused(objective: str, tmp_path: Path) -> None:
    rows = {"a": ["p", "q", "p"], "b": ["x", "y", "y"], "y": [0, 1, 1]}
    schema = schema_of({"a": "a", "b": "b"}, objective={"type": objective, "target": "y", "weight": "w"})
    good = fit(schema, pa.table({**rows, "w": [0.0, 0.5, 0.0]}))
    zeros = pa.table({**rows, "w": [0, 0, 0]})
    for call in (lambda: fit(schema, zeros, tmp_path / "out"), lambda: good.encoder.encode(zeros, tmp_path / "out")):
        where = "the table: column 'w', which objective.weight names, "
        said = f"{where}is 0 in every row, or nearly; give rows with weights above 0"
        assert refuse(None, call) == [said]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("objective", "target", "given"),
    [
        ("logistic", [0, 0, 1], {"0": 0.0}),
        ("softmax", ["k", "k", "l"], {"k": 0.0}),
    ],
)
def test_classes_that_all_weigh_nothing_are_refused(objective: str, target: list[Any], given: Any) -> None:
    rows = {"a": ["p", "q", "p"], "b": ["x", "y", "y"], "y": target}
    options = {"type": objective, "target": "y", "class_weights": given}
    schema = schema_of({"a": "a", "b": "b"}, objective=options)
    good = fit(schema, pa.table(rows))
    said = "the table: objective.class_weights gives every row the weight 0; raise that of a class which column 'y' has"
    held = pa.table({name: values[:2] for name, values in rows.items()})
    assert refuse(None, lambda: good.encoder.encode(held)) == [said]
    weighed = schema_of({"a": "a", "b": "b"}, objective={**options, "weight": "w"})
    assert refuse(None, lambda: fit(weighed, pa.table({**rows, "w": [1, 1, 0]}))) == [said]
    fit(weighed, pa.table({**rows, "w": [0, 0, 1]}))
