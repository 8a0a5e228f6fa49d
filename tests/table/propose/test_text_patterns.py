"""What text looks like: lists, prose, numbers and dates."""

from __future__ import annotations

import pytest

from feat2vec.table.propose.text_patterns import find_delimiter, is_prose, resemblance

WORDS = ["red", "green", "blue", "old", "new"]
TEXTS = [f"the {WORDS[i % 5]} house {i}" for i in range(20)]


@pytest.mark.parametrize(
    ("texts", "delimiter"),
    [
        ([f"{WORDS[i % 5]}|{WORDS[i % 3]}" for i in range(20)], "|"),
        ([f"{WORDS[i % 5]}; {WORDS[i % 3]}" for i in range(20)], ";"),
        ([f"{WORDS[i % 5]},{WORDS[i % 3]}" for i in range(20)], ","),
        ([f"{WORDS[i % 5]}, {WORDS[i % 3]}son" for i in range(20)], None),  # the first item is never a later one
        ([f"{i % 3},{i % 3}00" for i in range(20)], None),
        ([f"{1 + i % 3}/{1 + i % 3}/2024" for i in range(20)], None),
        ([f"{i}|{i + 100}" for i in range(20)], None),  # no item comes again
        (["red|green", *WORDS * 4], None),  # few are lists
        ([f"{WORDS[i % 5] * 20}|{WORDS[i % 3] * 20}" for i in range(20)], None),  # long items
    ],
)
def test_delimiters(texts: list[str], delimiter: str | None) -> None:
    assert find_delimiter(texts) == delimiter


def test_prose_has_several_words_that_texts_share() -> None:
    assert is_prose(TEXTS, 1.0)
    assert not is_prose(TEXTS, 0.1)
    assert not is_prose(TEXTS[:9], 1.0)
    assert not is_prose([f"{i} {i + 100}" for i in range(20)], 1.0)  # no letters
    assert not is_prose([f"a{i} b{i} c{i}" for i in range(20)], 1.0)  # no word comes again


def test_what_text_resembles() -> None:
    assert resemblance(["1", "2.5"], is_typed_text=True) == "; cast it if these are numbers"
    assert resemblance(["1", "2.5"], is_typed_text=False) == ""
    assert resemblance(["31.12.2024", "1.1.2025"], is_typed_text=False) == "; write dates as 2024-01-31 to use them"
    assert resemblance(WORDS, is_typed_text=True) == ""
