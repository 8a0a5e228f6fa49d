"""What unquoted scalars mean, and which of them readers of YAML do not agree on."""

from __future__ import annotations

import pytest

from feat2vec.schema.yaml_scalars import MAX_DIGITS, other_reading, scalar_value


def test_not_a_number_is_read() -> None:
    value = scalar_value(".nan")
    assert isinstance(value, float)
    assert value != value


@pytest.mark.parametrize(
    ("text", "value"), [("12", 12), ("-0", 0), ("1e3", 1000.0), ("-.inf", float("-inf")), ("~", None), ("on", True)]
)
def test_what_is_no_text_is_read_as_its_type(text: str, value: object) -> None:
    read = scalar_value(text)
    assert (read, type(read)) == (value, type(value))
    assert other_reading(text) is None


@pytest.mark.parametrize("text", ["north", "1.2.3", "oN", "1e", "nulL", "-", "e5"])
def test_what_is_text(text: str) -> None:
    assert scalar_value(text) == text
    assert other_reading(text) is None


@pytest.mark.parametrize("text", ["010", "0o7", "0x1f", "1_000", "1:30", "2020-01-01", "9" * (MAX_DIGITS + 1)])
def test_what_readers_do_not_agree_on(text: str) -> None:
    assert other_reading(text) is not None
