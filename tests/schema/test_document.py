"""Paths and values as messages show them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from feat2vec.schema.document import dotted, kind_of, shown
from feat2vec.schema.yaml_text import parse_document


def test_dotted() -> None:
    assert dotted(()) == ""
    assert dotted(("groups", "é_1-x", "columns", 0)) == "groups.é_1-x.columns[0]"
    assert dotted(("groups", "a.b", "", "x\ny")) == "groups['a.b']['']['x\\ny']"
    assert len(dotted(("x" * 10_000,))) < 100


@pytest.mark.parametrize(
    ("value", "spelled", "expected"),
    [
        (1000.0, "1e3", "1e3"),
        (None, "~", "~"),
        (None, "", "nothing"),
        (None, None, "nothing"),
        ("x", None, "'x'"),
        ("a\nb", "a\nb", "'a\\nb'"),
        ([], None, "an empty list"),
        ((), None, "an empty list"),
        ({}, None, "an empty mapping"),
        ([1], None, "a list"),
        ({"a": 1}, None, "keys and values"),
        ("x" * 100, "x" * 100, "x" * 59 + "…"),
    ],
)
def test_shown(value: object, spelled: str | None, expected: str) -> None:
    assert shown(value, spelled) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "a boolean"),
        (1, "a whole number"),
        (1.0, "a number"),
        ("1", "text"),
        (None, "nothing"),
        ([], "a list"),
        ((), "a list"),
        ({}, "keys and values"),
    ],
)
def test_kind_of(value: object, expected: str) -> None:
    assert kind_of(value) == expected


def test_a_document_is_frozen() -> None:
    document = parse_document("a: 1")
    with pytest.raises(FrozenInstanceError):
        document.__setattr__("name", "other")
