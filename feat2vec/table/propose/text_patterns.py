"""What the text of a column looks like: lists, prose, numbers, dates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from feat2vec.table.profile import NUMBER
from feat2vec.table.propose.quoting import quote_short

DELIMITERS_OF_LISTS = "|;,/"
AMOUNT = re.compile(r"\W*\d{1,3}(,\d{3})*([.,]\d+)?\W*")  # 1,234 or 3,5
DATE = re.compile(r"\s*\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}.*")


def find_delimiter(texts: Sequence[str]) -> str | None:
    """Return what separates the items of texts that are lists of short items, most of which come again.

    >>> find_delimiter(["drama|war", "war|love", "love|drama"])
    '|'
    >>> find_delimiter(["Varda, Agnes", "Ozu, Yasujiro", "Tati, Jacques"]) is None
    True

    """
    return next((mark for mark in DELIMITERS_OF_LISTS if _separates_lists(texts, mark)), None)


def _separates_lists(texts: Sequence[str], mark: str) -> bool:
    lists = [[item.strip() for item in text.split(mark) if item.strip()] for text in texts if mark in text]
    lists = [items for items in lists if len(items) > 1]
    if len(lists) < max(3, len(texts) / 5):
        return False
    counts = Counter(chain.from_iterable(lists))
    total = sum(counts.values())
    short = sum(len(item) <= 40 and item.count(" ") < 4 for item in counts)
    if short < 0.9 * len(counts) or len(counts) > 0.75 * total:
        return False
    return mark not in ",/" or not _has_fixed_places(texts, lists, counts, mark)


def _has_fixed_places(texts: Sequence[str], lists: Sequence[list[str]], counts: Counter[str], mark: str) -> bool:
    """Whether each item has its place, as in "Surname, Name", 1,234 and 31/12/2024, which are no lists."""
    first_items = {items[0] for items in lists}
    later_items = {item for items in lists for item in items[1:]}
    in_any_place = sum(counts[item] for item in first_items & later_items)
    pattern = AMOUNT if mark == "," else DATE
    share_of_figures = np.mean([pattern.fullmatch(text) is not None for text in texts])
    return bool(in_any_place < 0.3 * sum(counts.values()) or share_of_figures > 0.5)


def split_words(text: str) -> list[str]:
    """Return the words of a text, casefolded."""
    return re.findall(r"\w+", text.casefold())


def is_prose(texts: Sequence[str], distinct_share: float) -> bool:
    """Whether texts say more than that they differ: they have several words, and share some of them."""
    words_per_text = np.mean([len(text.split()) for text in texts])
    share_with_letters = np.mean([any(map(str.isalpha, text)) for text in texts])
    has_several_words = (
        (words_per_text >= 2 and distinct_share >= 0.8)
        or (words_per_text >= 3 and distinct_share >= 0.5)
        or (words_per_text >= 5 and distinct_share >= 0.2)
    )
    texts_with_word = Counter(chain.from_iterable(set(split_words(text)) for text in texts))
    shared = sum(count for count in texts_with_word.values() if count > 1)
    shares_words = shared >= 0.2 * sum(texts_with_word.values())
    return bool(len(texts) >= 10 and has_several_words and share_with_letters >= 0.5 and shares_words)


def resemblance(texts: Sequence[str], *, is_typed_text: bool) -> str:
    """Return a note on text that looks like numbers or dates but is not read so.

    Args:
        texts: of a column.
        is_typed_text: whether the type of the column says that it is text.

    """
    are_numbers = [re.fullmatch(rf"\s*{NUMBER}\s*", text) is not None for text in texts]
    if all(are_numbers):
        return "; cast it if these are numbers" if is_typed_text else ""
    if np.mean(are_numbers) >= 0.9:
        return f"; numbers, but for {quote_short(texts[are_numbers.index(False)])}"
    return "; write dates as 2024-01-31 to use them" if all(map(DATE.fullmatch, texts)) else ""
