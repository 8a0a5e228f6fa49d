"""What the text of a column looks like: lists, prose, numbers, dates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from feat2vec.table.profile import NUMBER

DELIMITERS_OF_LISTS = "|;,/"
AMOUNT = re.compile(r"\W*\d{1,3}(,\d{3})*([.,]\d+)?\W*")  # 1,234 or 3,5
WORD = re.compile(r"[^\W\d_]{2,}")  # that begins with two letters
ADDRESS = re.compile(r"\s*(?:[\w.+-]+@[\w-]+\.[\w.-]+|\w+://\S+)\s*")  # of mail, or in the web
PHONE = re.compile(r"\s*(?:\+|\()?\d[\d\s().x/-]+\d\s*")
DATE = re.compile(r"\s*\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}(?:[ T,].*)?")


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
    # Items that are few and stand in lists of many lengths are items although most of them come once.
    most_distinct = 0.9 if _lengths_differ(lists) and mark in "|;," else 0.75
    if short < 0.9 * len(counts) or len(counts) > most_distinct * total:
        return False
    return mark not in ",/" or not _has_fixed_places(texts, lists, counts, mark)


def _lengths_differ(lists: Sequence[Sequence[str]]) -> bool:
    """Whether lists have three or more lengths, each of them in a tenth of the lists."""
    lengths = Counter(len(items) for items in lists)
    return sum(count >= len(lists) / 10 for count in lengths.values()) >= 3


def _has_fixed_places(texts: Sequence[str], lists: Sequence[list[str]], counts: Counter[str], mark: str) -> bool:
    """Whether each item has its place, as in "Surname, Name", 1,234 and 31/12/2024, which are no lists."""
    are_words = sum(" " not in item and any(map(str.isalpha, item)) for item in counts) >= 0.95 * len(counts)
    if are_words and _lengths_differ(lists):
        return False
    first_items = {items[0] for items in lists}
    later_items = {item for items in lists for item in items[1:]}
    in_any_place = sum(counts[item] for item in first_items & later_items)
    pattern = AMOUNT if mark == "," else DATE
    share_of_figures = np.mean([pattern.fullmatch(text) is not None for text in texts])
    return bool(in_any_place < 0.3 * sum(counts.values()) or share_of_figures > 0.5)


def split_words(text: str) -> list[str]:
    """Return the words of a text, casefolded."""
    return re.findall(r"\w+", text.casefold())


def are_addresses(texts: Sequence[str]) -> bool:
    """Whether nearly all texts are addresses of mail, or in the web."""
    return bool(texts) and sum(ADDRESS.fullmatch(text) is not None for text in texts) >= 0.9 * len(texts)


def is_phone(text: str) -> bool:
    """Whether a text is written as numbers of telephones are.

    >>> is_phone("+49 30 123-456"), is_phone("(555) 123-4567"), is_phone("123456789"), is_phone("2024-01-31")
    (True, True, False, False)

    """
    digits = sum(map(str.isdigit, text))
    has_marks = PHONE.fullmatch(text) is not None and not text.strip().isdigit()
    return has_marks and 7 <= digits <= 15 and DATE.fullmatch(text) is None


def is_prose(texts: Sequence[str], distinct_share: float) -> bool:
    """Whether texts say more than that they differ: they have several words, and share some of them.

    >>> streets = ["Park", "Mill", "High", "Lake", "Hill"]
    >>> is_prose([f"{i} {street} Road" for i, street in enumerate(streets * 2)], distinct_share=1.0)
    True
    >>> is_prose([f"A-{1000 + i}" for i in range(10)], distinct_share=1.0)
    False

    """
    words_of_texts = [[word for word in split_words(text) if WORD.match(word)] for text in texts]
    words_per_text = np.mean([len(text.split()) for text in texts])
    parts_per_text = np.mean([len(words) for words in words_of_texts])  # also those between dashes
    share_with_letters = np.mean([any(map(str.isalpha, text)) for text in texts])
    has_several_words = (
        (words_per_text >= 15 and distinct_share >= 0.2)
        or (words_per_text >= 5 and distinct_share >= 0.4)
        or (words_per_text >= 3 and distinct_share >= 0.5)
        or (words_per_text >= 2 and distinct_share >= 0.8)
        or (parts_per_text >= 1.25 and distinct_share >= 0.9)
    )
    texts_with_word = Counter(chain.from_iterable(set(words) for words in words_of_texts))
    shared = sum(count for count in texts_with_word.values() if count > 1)
    shares_words = shared >= 0.2 * max(sum(texts_with_word.values()), 1)
    is_text = len(texts) >= 10 and share_with_letters >= 0.5 and not are_addresses(texts)
    return bool(is_text and has_several_words and shares_words)


def resemblance(texts: Sequence[str], *, is_typed_text: bool) -> str:
    """Return a note on text that looks like numbers or dates but is not read so.

    Args:
        texts: of a column.
        is_typed_text: whether the type of the column says that it is text.

    """
    are_numbers = [re.fullmatch(rf"\s*{NUMBER}\s*", text) is not None for text in texts]
    if all(are_numbers):
        return "; cast it if these are numbers" if is_typed_text else ""
    return "; write dates as 2024-01-31 to use them" if all(map(DATE.fullmatch, texts)) else ""
