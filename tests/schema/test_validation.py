"""Data to objects: what is told, what only follows, and what cross checks may rely on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import pytest
from pydantic import Field, field_validator

from feat2vec.errors import UserError
from feat2vec.schema.document import Data
from feat2vec.schema.messages import Mistake
from feat2vec.schema.validation import Findings, Problem, Spec, validate
from feat2vec.schema.yaml_text import parse_document


class Part(Spec):
    size: Annotated[int, Field(ge=2)] = 2
    kind: Literal["round", "square"] = "round"
    code: Annotated[str, Field(pattern="^[a-z]+$")] = "x"

    @field_validator("code")
    @classmethod
    def _not_bad(cls, code: str) -> str:
        if code == "bad":
            raise ValueError("must not be bad; take another")
        return code


class Whole(Spec):
    name: Annotated[str, Field(min_length=1)]
    parts: dict[str, Part] = Field(default_factory=dict)
    numbers: Annotated[tuple[int, ...], Field(strict=False, min_length=2)] = (1, 2)


def no_conflicts(checked: Whole, findings: Findings) -> Iterator[Problem]:
    del checked, findings
    yield from ()


def problems(text: str, stand_ins: Mapping[str, Data] | None = None, known: tuple[Problem, ...] = ()) -> list[str]:
    with pytest.raises(UserError) as caught:
        validate(parse_document(text, "f"), Whole, no_conflicts, stand_ins, known)
    return list(caught.value.problems)


def test_right_data_is_an_object() -> None:
    whole = validate(parse_document("name: x\nparts: {a: {size: 3}}\n"), Whole, no_conflicts)
    assert whole == Whole(name="x", parts={"a": Part(size=3)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nam: x", ["f:1: nam: unknown key; did you mean 'name'?"]),
        ("zzz: x", ["f:1: the key `name` is missing", "f:1: zzz: unknown key; known here: name, parts, numbers"]),
        ("name: x\nparts:\n  a:\n    sise: 3", ["f:4: parts.a.sise: unknown key; did you mean 'size'?"]),
        ("name: x\nparts: {a: {size: 1}}", ["f:2: parts.a.size: must be at least 2, received 1"]),
        (
            "name: x\nparts: {a: {kind: rond}}",
            ["f:2: parts.a.kind: expected 'round' or 'square', received rond; did you mean 'round'?"],
        ),
        ("name: x\nparts: {a: {code: bad}}", ["f:2: parts.a.code: must not be bad; take another, received bad"]),
        ("name: x\nnumbers: [1]", ["f:2: numbers: needs at least 2 entries, received a list"]),
        ("name: x\nnumbers: []", ["f:2: numbers: needs at least 2 entries, received an empty list"]),
        (
            "name: x\nnumbers:\n  - 1\n  - a\n  - 'b'",
            [
                "f:4: numbers[1]: expected a whole number, received a",
                "f:5: numbers[2]: expected a whole number, received 'b'",
            ],
        ),
        ("name: x\nnumbers: [a]", ["f:2: numbers[0]: expected a whole number, received a"]),
        ('name: "\\ud800"', ["f:1: name: expected text of whole characters, received '\\ud800'"]),
    ],
)
def test_messages(text: str, expected: list[str]) -> None:
    assert problems(text) == expected


def test_a_constraint_without_words_of_ours_is_still_told() -> None:
    (problem,) = problems("name: x\nparts: {a: {code: A1}}")
    assert problem.startswith("f:2: parts.a.code: ")
    assert problem.endswith(", received A1")


def test_what_the_text_has_wrong_is_told_with_the_rest_and_once() -> None:
    assert problems("numbers: 3\nname: 010\nparts: {no: {}, b: {size: 0x2}}\n") == [
        "f:1: numbers: expected a list, received 3",
        "f:2: name: received 010, which is an octal number to some readers; "
        'write "010" in quotes for the text, or a plain decimal number',
        'f:3: parts: a key must be text, received no; put it in quotes: "no"',
        "f:3: parts.b.size: received 0x2, which is a hexadecimal or binary number to some readers; "
        'write "0x2" in quotes for the text, or a plain decimal number',
    ]


def test_known_problems_take_their_place_among_the_lines() -> None:
    assert problems("name: x\nnumbers: 3\n", known=((("name",), "is taken"),)) == [
        "f:1: name: is taken",
        "f:2: numbers: expected a list, received 3",
    ]


def test_cross_checks_look_at_what_is_right() -> None:
    seen: list[Whole] = []

    def conflicts(checked: Whole, findings: Findings) -> Iterator[Problem]:
        seen.append(checked)
        assert findings.sound("numbers")
        assert not findings.sound("parts", "a")
        yield ("numbers",), "are odd"

    text = "nam: x\nnumbers: [1, 3]\nparts: {a: {size: 1}, b: {size: 3, kind: x}}\n"
    with pytest.raises(UserError, match=r"f:2: numbers: are odd"):
        validate(parse_document(text, "f"), Whole, conflicts, {"name": "-"})
    assert seen == [Whole(name="-", numbers=(1, 3), parts={"a": Part(), "b": Part(size=3)})]


def test_without_stand_ins_a_missing_part_ends_the_checks() -> None:
    def conflicts(checked: Whole, findings: Findings) -> Iterator[Problem]:
        raise AssertionError((checked, findings))

    with pytest.raises(UserError, match="`name` is missing"):
        validate(parse_document("numbers: [1, 3]"), Whole, conflicts)


def test_sound() -> None:
    findings = Findings(
        {"a": {"b": 1, "c": 2}, "d": {"x": 1}},
        [Mistake(("a", "b"), ("a", "b"), "wrong"), Mistake(("d", "x"), ("d", "x"), "unknown", "extra_forbidden")],
    )
    assert not findings.sound("a", "b")  # at
    assert not findings.sound("a", "b", 0)  # above
    assert not findings.sound("a")  # inside
    assert findings.sound("a", inside=False)
    assert findings.sound("a", "c")
    assert findings.sound("a", "e")  # not given, and nothing beside it that could be meant for it
    assert not findings.sound("d", "e")  # not given, but x may be meant for it
    assert findings.sound("z")
    assert not Findings({}, [Mistake((), (), "wrong")]).sound("z")
