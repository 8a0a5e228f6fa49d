"""The options of extractors, and their registry."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from feat2vec.schema.extractor_options import EXTRACTORS, ExtractorSpec, Lookup, NumbersSpec, extractor
from tests.schema.texts import EXTRACTOR_DEFAULTS, read


@pytest.mark.parametrize("name", EXTRACTORS)
def test_every_extractor_has_defaults_and_a_short_form(name: str) -> None:
    short = read(f"version: 1\ngroups:\n  a: {{column: a, extractor: {name}}}\n  b: {{column: b}}\n")
    long = read(f"version: 1\ngroups:\n  a: {{columns: [a], extractor: {{type: {name}}}}}\n  b: {{columns: b}}\n")
    assert short == long
    assert short.groups["a"].extractor.model_dump(mode="json") == EXTRACTOR_DEFAULTS[name]
    assert type(short.groups["a"].extractor) is EXTRACTORS[name]
    assert short.groups["a"].extractor.encoding in ("items", "tokens", "numbers", "vector")


def test_an_extractor_without_type_is_a_lookup() -> None:
    schema = read("version: 1\ngroups: {a: {column: a, extractor: {multi: true}}, b: {column: b, extractor: {}}}\n")
    assert schema.groups["a"].extractor == Lookup(multi=True)
    assert schema.groups["b"].extractor == Lookup()


@pytest.mark.parametrize(
    ("options", "bag"),
    [({}, False), ({"multi": True}, True), ({"split": ","}, True), ({"parts": ("year",)}, True), ({"bins": 5}, False)],
)
def test_what_a_bag_is(options: dict[str, Any], bag: bool) -> None:
    assert Lookup(**options).bag is bag


@pytest.mark.usefixtures("clean_registry")
def test_registering_again() -> None:
    class Mine(NumbersSpec):
        type: Literal["mine"] = "mine"

    assert extractor("mine")(Mine) is Mine
    assert extractor("mine")(Mine) is Mine  # a reload

    another_class = type("Other", (NumbersSpec,), {"__annotations__": {"type": Literal["mine"]}, "type": "mine"})
    with pytest.raises(ValueError, match=r"'mine' is registered already, by .*Mine.* Received: .*Other"):
        extractor("mine")(another_class)
    namesake = type("Lookup", (NumbersSpec,), {"__annotations__": {"type": Literal["lookup"]}, "type": "lookup"})
    with pytest.raises(ValueError, match="'lookup' is registered already"):
        extractor("lookup")(namesake)
    assert EXTRACTORS["lookup"] is Lookup
    assert EXTRACTORS["mine"] is Mine


@pytest.mark.usefixtures("clean_registry")
def test_registering_what_is_no_extractor() -> None:
    class Untyped(NumbersSpec):
        pass

    class Aimless(ExtractorSpec):
        type: Literal["aimless"] = "aimless"

    with pytest.raises(ValueError, match=r'Untyped needs the field `type: Literal\["untyped"\] = "untyped"`'):
        extractor("untyped")(Untyped)
    with pytest.raises(ValueError, match="Aimless must derive from ItemsSpec, TokensSpec, NumbersSpec or VectorSpec"):
        extractor("aimless")(Aimless)
    with pytest.raises(ValueError, match=r"letters, digits and underscores\. Received: 'my own'"):
        extractor("my own")(Untyped)
    assert list(EXTRACTORS) == ["lookup", "text_cnn", "text_attention", "numeric", "vector"]
