"""What is known of the groups before training: the facts that defaults follow from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from feat2vec.table.profile import ColumnProfile
from feat2vec.table.propose.choices import Choice
from feat2vec.table.propose.defaults import ExtractorOptions, GroupFacts, GroupKind, TableFacts
from feat2vec.table.propose.number_rules import are_years
from feat2vec.table.propose.text_patterns import split_words


def facts_of(columns: Mapping[str, ColumnProfile], groups: Mapping[str, Choice]) -> TableFacts:
    """Return what is known of a table.

    Args:
        columns: The profiles of its columns, by name.
        groups: What becomes of them, by the name of the group.

    """
    rows = max(column.rows for column in columns.values())
    facts = {
        name: group_facts([columns[column] for column in choice.columns], choice) for name, choice in groups.items()
    }
    return TableFacts(rows, facts)


YEAR = re.compile(r"(?i)(?:^|[\W_])(?:year|yr)(?:$|[\W_])|[a-z]Year$")


def time_of(columns: Mapping[str, ColumnProfile], groups: Mapping[str, Choice]) -> str | None:
    """Return the group that tells when a row came: the dates of most days, or else years.

    Args:
        columns: The profiles of the table's columns, by name.
        groups: What becomes of them, by the name of the group.

    Returns:
        The group's name; None if there is none.

    """
    distinct_dates: dict[str, int] = {}
    distinct_years: dict[str, int] = {}
    for name, choice in groups.items():
        extractor, column = choice.extractor or {}, columns[choice.columns[0]]
        if len(choice.columns) > 1:
            continue
        if {"year", "quarter", "month"} & set(map(str, _as_list(extractor.get("parts") or []))):
            distinct_dates[name] = column.distinct
        elif are_years(column) and YEAR.search(column.name) and not extractor.get("bins"):
            distinct_years[name] = column.distinct
    candidates = distinct_dates or distinct_years
    return max(candidates, key=lambda name: candidates[name], default=None)


COMES_AGAIN = 0.05  # of the first rows


def pairs_come_again(columns: Sequence[ColumnProfile], fewest_keys: int) -> bool:
    """Return whether the values of two columns of many keys stand together in several rows.

    The two columns of the most keys are looked at, in the first rows of the table.

    Args:
        columns: The profiles of columns of keys.
        fewest_keys: How many keys each of the two has, at least.

    """
    coded = [column for column in columns if column.codes is not None and column.distinct >= fewest_keys]
    if len(coded) < 2:
        return False
    first, second = sorted(coded, key=lambda column: column.distinct, reverse=True)[:2]
    assert first.codes is not None
    assert second.codes is not None
    has_both = (first.codes >= 0) & (second.codes >= 0)  # [rows]
    pairs = first.codes[has_both].astype(np.int64) << 32 | second.codes[has_both]
    if not len(pairs):
        return False
    _, counts = np.unique(pairs, return_counts=True)
    return bool(counts[counts > 1].sum() >= COMES_AGAIN * len(pairs))


def group_facts(columns: Sequence[ColumnProfile], choice: Choice) -> GroupFacts:
    """Return what is known of a group.

    Args:
        columns: The profiles of its columns.
        choice: What becomes of them.

    """
    extractor = choice.extractor or {}
    first = columns[0]
    distinct, items_per_row = first.distinct, 1.0
    if extractor.get("split") is not None or extractor["type"] in ("text_cnn", "text_attention"):
        distinct, items_per_row = _items_of_texts(first, extractor)
    elif first.list_lengths is not None:
        items_per_row = float(first.list_lengths.mean())
    elif extractor.get("parts"):
        parts = _as_list(extractor["parts"])
        dates = first.written_dates.best
        keys = (first.date_parts or {}) if dates is None else dates.parts
        distinct, items_per_row = sum(key.split("=")[0] in parts for key in keys), float(len(parts))
    return GroupFacts(
        kind=_kind(extractor),
        present=first.present,
        distinct=distinct,
        rows_per_value=first.present * items_per_row / max(distinct, 1),
        items_per_row=items_per_row,
        columns=len(columns),
        has_nan="nan" in extractor,
        extractor=dict(extractor),
    )


def _kind(extractor: ExtractorOptions) -> GroupKind:
    if extractor["type"] != "lookup":
        kinds: dict[object, GroupKind] = {"text_cnn": "text", "text_attention": "text", "vector": "vector"}
        return kinds.get(extractor["type"], "numbers")
    if extractor.get("parts"):
        return "dates"
    if extractor.get("split") == "words":
        return "text"
    return "list" if {"split", "multi"} & set(extractor) else "keys"


def _items_of_texts(column: ColumnProfile, extractor: ExtractorOptions) -> tuple[int, float]:
    """Return how many items or words a sample of the texts has, and how many of them a text has on average."""
    separator = extractor.get("split", "words")
    texts = [str(value) for value in column.sample]
    if separator == "words":
        items = [split_words(text) for text in texts]
    else:
        items = [[item.strip() for item in text.split(str(separator)) if item.strip()] for text in texts]
    distinct = {item for items_of_text in items for item in items_of_text}
    return len(distinct), float(np.mean([len(items_of_text) for items_of_text in items]))


def _as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, (list, tuple)) else [value]
