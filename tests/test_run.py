"""Runs: what is read back, what is refused, fingerprints."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import feat2vec
from feat2vec.encode import fit
from feat2vec.errors import UserError
from feat2vec.run import differences, fingerprints
from feat2vec.schema import read_schema
from feat2vec.trainer import train

SCHEMA = {"version": 1, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}, "training": {"epochs": 1}}
TABLE = pa.table({"a": ["x", "y", "z", "x"], "b": ["p", "q", None, "q"]})


def test_a_run_is_read_back(tmp_path: Path) -> None:
    run = train(SCHEMA, TABLE, tmp_path / "run", quiet=True)
    loaded = feat2vec.load(tmp_path / "run")
    assert loaded.schema == run.schema == read_schema(tmp_path / "run" / "schema.yaml")
    assert loaded.manifest["data"] == fingerprints(fit(read_schema(SCHEMA), TABLE))
    assert set(loaded.manifest["versions"]) == {
        "python",
        "feat2vec",
        "keras",
        "tensorflow",
        "numpy",
        "pyarrow",
        "duckdb",
    }
    assert loaded.history == run.history
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({**loaded.manifest, "format": 99}))
    with pytest.raises(UserError, match="was written in format 99; this feat2vec reads 1"):
        feat2vec.load(tmp_path / "run")
    (tmp_path / "run" / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read as a run"):
        feat2vec.load(tmp_path / "run")


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"nothing: does not exist; `feat2vec train SCHEMA --data DATA --out RUN` makes one$"
    ):
        feat2vec.load(tmp_path / "nothing")
    with pytest.raises(UserError, match="is no run"):
        feat2vec.load(tmp_path)
    (tmp_path / "run.partial").mkdir()
    with pytest.raises(UserError, match=r"run\.partial was not finished, .*--resume"):
        feat2vec.load(tmp_path / "run")


def test_a_fingerprint_tells_which_group_changed() -> None:
    schema = read_schema({**SCHEMA, "objective": {"type": "regression", "target": "y"}})
    table = TABLE.append_column("y", pa.array([1.0, 2.0, 3.0, 4.0]))
    whole = fingerprints(fit(schema, table))
    assert whole == fingerprints(fit(schema, table))
    for column, values, changed in (
        ("a", ["x", "y", "w", "x"], "a"), ("a", ["y", "x", "z", "x"], "a"), ("b", ["p", "q", "q", None], "b"),
        ("y", [1.0, 2.0, 3.0, 5.0], "the target"),
    ):  # fmt: skip
        other = fingerprints(fit(schema, table.set_column(table.column_names.index(column), column, pa.array(values))))
        assert [key for key in whole if whole[key] != other[key]] == [changed]


def test_differences_name_the_keys() -> None:
    before, now = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}, "e": 5}
    assert list(differences(before, now)) == [
        "a.c: 2 before, 4 now",
        "d: 3 before, nothing now",
        "e: nothing before, 5 now",
    ]


def test_the_package_trains_by_a_call() -> None:
    for _ in range(2):  # no module of the package may take the name
        assert callable(feat2vec.train)
        assert feat2vec.train is train
