"""Fingerprints of what a run is learnt from, and the differences that a message names."""

from __future__ import annotations

import pyarrow as pa

from feat2vec.encode.encoder import fit
from feat2vec.schema.reading import read_schema
from feat2vec.training.fingerprints import differences, fingerprints

SCHEMA = {
    "version": 1,
    "groups": {"a": {"column": "a"}, "b": {"column": "b"}},
    "training": {"validation": 0, "epochs": 1},
}
TABLE = pa.table({"a": ["x", "y", "z", "x"], "b": ["p", "q", None, "q"]})


def test_a_fingerprint_tells_which_group_changed() -> None:
    schema = read_schema({**SCHEMA, "objective": {"type": "regression", "target": "y"}})
    table = TABLE.append_column("y", pa.array([1.0, 2.0, 3.0, 4.0]))
    expected = fingerprints(fit(schema, table))
    assert expected == fingerprints(fit(schema, table))
    for column, values, changed in (
        ("a", ["x", "y", "w", "x"], "a"),
        ("a", ["y", "x", "z", "x"], "a"),
        ("b", ["p", "q", "q", None], "b"),
        ("y", [1.0, 2.0, 3.0, 5.0], "the target"),
    ):
        changed_table = table.set_column(table.column_names.index(column), column, pa.array(values))
        prints = fingerprints(fit(schema, changed_table))
        assert [key for key in expected if expected[key] != prints[key]] == [changed]


def test_differences_name_the_keys() -> None:
    before, now = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}, "e": 5}
    assert list(differences(before, now)) == [
        "a.c: 2 before, 4 now",
        "d: 3 before, nothing now",
        "e: nothing before, 5 now",
    ]
