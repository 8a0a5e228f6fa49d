"""YAML text with values replaced: what is not replaced stays as it is, comments and all."""

from __future__ import annotations

from typing import Any

import pytest

from feat2vec.errors import UserError
from feat2vec.schema.document import Data
from feat2vec.schema.yaml_edit import edited, with_settings
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


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("a.b=3", {"a": {"b": 3}, "n": "x"}),
        ("a.b=1e-3", {"a": {"b": 0.001}, "n": "x"}),
        ("a.b='3'", {"a": {"b": "3"}, "n": "x"}),
        ("a.b=no", {"a": {"b": False}, "n": "x"}),
        ("a.b=", {"a": {"b": None}, "n": "x"}),
        ("a.b=c=d", {"a": {"b": "c=d"}, "n": "x"}),
        ("a=[1, {c: two}]", {"a": [1, {"c": "two"}], "n": "x"}),
        ("a=5 # five", {"a": 5, "n": "x"}),
        ("new.below.key=v", {"a": {"b": 1}, "n": "x", "new": {"below": {"key": "v"}}}),
        ("a.c=2", {"a": {"b": 1, "c": 2}, "n": "x"}),
        ("n.rate=2", {"a": {"b": 1}, "n": {"type": "x", "rate": 2}}),  # a short form opens
        ("a.b.c=2", {"a": {"b": {"c": 2}}, "n": "x"}),
    ],
)
def test_settings_are_yaml(setting: str, expected: dict[str, Data]) -> None:
    document = parse_document("a: {b: 1}\nn: x\n")
    before = dict(document.data)
    assert with_settings(document, [setting]).data == expected
    assert document.data == before
    assert with_settings(document, []) == document


def test_the_last_setting_stays() -> None:
    document = with_settings(parse_document("a: {b: 1}\n"), ["a.b=2", "a=x", "a.c=010", "a.c=3"])
    assert document.data == {"a": {"type": "x", "c": 3}}
    assert document.flaws == ()


def test_a_setting_keeps_how_it_was_spelled_and_the_lines_of_the_others() -> None:
    document = with_settings(parse_document("a:\n  b: 1_0\n  c: 1_0\nd: yes\n"), ["a.b=1e2", "e.f={g: off}"])
    assert document.spelled == {("a", "b"): "1e2", ("d",): "yes", ("e", "f", "g"): "off"}
    assert [flaw.path for flaw in document.flaws] == [("a", "c")]
    assert document.problem(("a", "b"), "wrong") == "--set a.b=1e2: a.b: wrong"
    assert document.problem(("a", "b", "x"), "wrong") == "--set a.b=1e2: a.b.x: wrong"
    assert document.problem(("e",), "wrong") == "--set e.f={g: off}: e: wrong"  # only the setting has it
    assert document.problem(("e", "f", "g"), "wrong") == "--set e.f={g: off}: e.f.g: wrong"
    assert document.problem(("a",), "wrong") == "schema:1: a: wrong"
    assert document.problem(("a", "c"), "wrong") == "schema:3: a.c: wrong"
    assert document.problem(("d",), "wrong") == "schema:4: d: wrong"
    assert document.problem((), "wrong") == "schema:1: wrong"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        *(
            (setting, "expected key=value, such as training.epochs=5")
            for setting in ("a", "", "=3", "a.=3", ".a=3", "a..b=3")
        ),
        ("a=1\nb: 2", "expected key=value, such as training.epochs=5"),
        ("a=b: c", "is not YAML: a `: ` where no key may stand; indent keys alike, put text with `: ` in quotes"),
        ("a=[1", "is not YAML: a bracket is opened here and not closed; close it"),
        ("a='1", "is not YAML: a quote is opened here and not closed; close it"),
    ],
)
def test_what_is_no_setting(setting: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        with_settings(parse_document("a: 1\n"), [setting])
    assert caught.value.problems == (f"--set {setting}: {message}",)
