"""YAML text with values replaced: what is not replaced stays as it is, comments and all."""

from __future__ import annotations

from typing import Any

import pytest

from feat2vec.schema.yaml_edit import edited
from feat2vec.schema.yaml_text import parse_document

TEXT = """\
# what it is
version: 1
schema:  # below
  model: {dim: 48}  # of the space
  groups:
    a: {column: a}
    b:
      # a comment
      column: b
      extractor: lookup
"""


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("schema.model.dim", 64, "  model: {dim: 64}  # of the space"),
        ("schema.model.scale", 1e-05, "  model: {scale: 1.0e-05, dim: 48}  # of the space"),
        ("schema.model.ranks", [4, 8], "  model: {ranks: [4, 8], dim: 48}  # of the space"),
        ("schema.groups.a.extractor.gain", 0.5, "    a: {extractor: {gain: 0.5}, column: a}"),
        ("schema.groups.b.column", "no: 1", "      column: 'no: 1'"),
        ("schema.groups.b.column", "yes", '      column: "yes"'),
        ("schema.groups.b.extractor.gain", 2, "      extractor: {type: lookup, gain: 2}"),
        ("schema.groups.b.extractor", {"type": "lookup", "gain": 2}, "      extractor: {type: lookup, gain: 2}"),
    ],
)
def test_one_line_changes(path: str, value: Any, line: str) -> None:
    before, after = TEXT.splitlines(), edited(TEXT, {tuple(path.split(".")): value}).splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [line]


def test_a_key_that_is_not_there_is_added_beside_its_sisters() -> None:
    text = edited(TEXT, {("schema", "training", "optimizer", "learning_rate"): 0.1})
    assert "schema:  # below\n  training: {optimizer: {learning_rate: 0.1}}\n  model:" in text
    assert text.replace("  training: {optimizer: {learning_rate: 0.1}}\n", "") == TEXT


def test_what_is_too_intricate_is_written_anew() -> None:
    text = edited(TEXT, {("schema", "groups"): {"c": {"column": "c"}}})
    assert parse_document(text).data == {
        "version": 1,
        "schema": {"model": {"dim": 48}, "groups": {"c": {"column": "c"}}},
    }
    shared = "schema: {a: &x {b: 1}, c: *x}\n"
    assert parse_document(edited(shared, {("schema", "c", "b"): 2})).data == {"schema": {"a": {"b": 1}, "c": {"b": 2}}}


def test_a_text_comes_below_a_key() -> None:
    text = edited("a: file.yaml  # of the schema\nc: 2\n", {("a", "b"): 3}, {"a": "# its own\nb: 1\nd: [1,\n  2]\n"})
    assert text == "a:\n  # its own\n  b: 3\n  d: [1,\n    2]  # of the schema\nc: 2\n"
