"""Slow, obvious code that the fast code is compared with: loops in float64, one section for each paper or page."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from fractions import Fraction
from typing import Any

import numpy as np

from feat2vec.schema import Group, Schema
from feat2vec.specs import ItemsSpec, NumbersSpec, TokensSpec

# --- Encoding (DESIGN, section 3): rows are dicts, entries are tuples -----------------------------------------------

Row = Mapping[str, Any]
Entry = tuple[Any, ...]
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class EncodedGroup:
    """What a group becomes: keys with their counts in the order of their ids, and an entry or None for each row."""

    keys: dict[str, int]
    unseen: int
    entries: list[Entry | None]

    @property
    def values(self) -> dict[Entry, int]:
        """The distinct entries, and how many rows have each."""
        return dict(Counter(entry for entry in self.entries if entry is not None))

    @property
    def missing(self) -> int:
        return self.entries.count(None)


def encode_table(schema: Schema, rows: Sequence[Row], new: Sequence[Row] = ()) -> dict[str, EncodedGroup]:
    """Encode typed rows; those in `new` come after the training rows and are only looked up."""
    return {name: encode_group(group, rows, new) for name, group in schema.groups.items()}


def encode_group(group: Group, rows: Sequence[Row], new: Sequence[Row] = ()) -> EncodedGroup:
    spec = group.extractor
    if isinstance(spec, NumbersSpec):
        return encode_numbers(group, rows, new)
    if isinstance(spec, (ItemsSpec, TokensSpec)):
        return encode_items(group, rows, new)
    vectors = [vector_entry(row.get(group.columns[0])) for row in [*rows, *new]]
    return EncodedGroup({}, 0, vectors)


def encode_items(group: Group, rows: Sequence[Row], new: Sequence[Row]) -> EncodedGroup:
    spec = group.extractor
    assert isinstance(spec, (ItemsSpec, TokensSpec))
    bins = spec.bins if isinstance(spec, ItemsSpec) else None
    edges = [] if bins is None else bin_edges([row.get(group.columns[0]) for row in rows], bins)
    bags = [row_items(row, group, edges) for row in rows]
    keys, unseen = vocabulary([key for bag in bags for key, _ in bag], spec.min_count, spec.max_size)
    widest = max(1, *(len(bag) for bag in bags))
    bags += [row_items(row, group, edges)[:widest] for row in new]
    return EncodedGroup(keys, unseen, [items_entry(bag, keys, group) for bag in bags])


def row_items(row: Row, group: Group, edges: Sequence[float] = ()) -> list[tuple[str, float]]:
    """A row's (key, weight), at most `max_items` of them; null and empty items are dropped before they are counted."""
    spec, value = group.extractor, row.get(group.columns[0])
    if isinstance(spec, TokensSpec):
        return [(word, 0.0) for word in words(value or "")[: spec.max_tokens]]
    assert isinstance(spec, ItemsSpec)
    if value is None:
        return []
    if spec.parts:
        return [(f"{part}={date_part(value, part)}", 0.0) for part in spec.parts]
    if spec.bins is not None:
        return [(bin_of(to_number(value), edges), 0.0)]
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if spec.split == "words":
        items = words(value)
    elif spec.split is not None:
        items = items if isinstance(value, (list, tuple)) else value.split(spec.split)
        items = [item if item is None else item.strip() for item in items]
    weights = [0.0] * len(items) if spec.weights is None else row[spec.weights]
    kept = [(spell(item), weight) for item, weight in zip(items, weights, strict=True) if item not in (None, "")]
    return kept[: spec.max_items if spec.bag else 1]


def items_entry(bag: Sequence[tuple[str, float]], keys: Mapping[str, int], group: Group) -> Entry | None:
    """Keys in the order of their ids (None is an unseen one and comes first); a text keeps its order."""
    order = {key: i for i, key in enumerate(keys)}
    items = [(order.get(key, -1), float(np.float32(weight))) for key, weight in bag]
    if not isinstance(group.extractor, TokensSpec):
        items.sort()
    known = list(keys)
    weighted = isinstance(group.extractor, ItemsSpec) and group.extractor.weights is not None
    named = [(None if i < 0 else known[i], weight) for i, weight in items]
    return None if not bag else tuple(named) if weighted else tuple(key for key, _ in named)


def vocabulary(keys: Sequence[str], min_count: int = 1, max_size: int | None = None) -> tuple[dict[str, int], int]:
    """Keys by descending count, then bytes; and the occurrences of those that are left out."""
    counts = Counter(keys)
    order = sorted(counts, key=lambda key: (-counts[key], key.encode()))
    kept = [key for key in order if counts[key] >= min_count][:max_size]
    return {key: counts[key] for key in kept}, len(keys) - sum(counts[key] for key in kept)


def spell(value: object) -> str:
    """A typed value as a key."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, date) else str(value)


def spell_text(items: Sequence[str]) -> list[str]:
    """A column of text, from CSV, as the same column with types spells it."""
    if items and all(item.lower() in ("true", "false") for item in items):
        return [item.lower() for item in items]
    numbers = all(re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?", item) for item in items)
    if numbers and any(set(item) & set(".eE") for item in items):
        return [spell(float(item)) if set(item) & set(".eE") else item for item in items]
    return list(items)


def words(text: str) -> list[str]:
    """Runs of letters, marks, numbers and `_`, casefolded, in NFC."""
    found = [""]
    for letter in unicodedata.normalize("NFC", text):
        if letter == "_" or unicodedata.category(letter)[0] in "LMN":
            found[-1] += letter
        else:
            found.append("")
    return [unicodedata.normalize("NFC", word.casefold()) for word in found if word]


def date_part(value: date, part: str) -> object:
    match part:
        case "weekday":
            return WEEKDAYS[value.weekday()]
        case "quarter":
            return (value.month + 2) // 3
        case "hour":
            return value.hour if isinstance(value, datetime) else 0
    return getattr(value, part)


def to_number(value: object) -> float:
    """A number, or the days since 1970."""
    if isinstance(value, datetime):
        zone = value.tzinfo or timezone.utc
        return (value.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() / 86_400
    if isinstance(value, date):
        return float((value - date(1970, 1, 1)).days)
    assert isinstance(value, (bool, int, float))
    return float(value)


def quantile(numbers: Sequence[float], share: Fraction) -> float:
    """Between the two numbers around the rank `share * (n - 1)`."""
    ordered, rank = sorted(numbers), share * (len(numbers) - 1)
    low = math.floor(rank)
    return ordered[low] + (ordered[math.ceil(rank)] - ordered[low]) * float(rank - low)


def bin_edges(values: Sequence[object], bins: int) -> list[float]:
    numbers = [to_number(value) for value in values if value is not None]
    return sorted({quantile(numbers, Fraction(i, bins)) + 0.0 for i in range(1, bins)})


def bin_of(number: float, edges: Sequence[float]) -> str:
    """`[low, high)` of the bin that holds a number."""
    short = [f"{edge:g}" if float(f"{edge:g}") == edge else repr(edge) for edge in edges]
    ends = ["-inf", *short, "inf"]
    i = sum(edge <= number for edge in edges)
    return f"[{ends[i]}, {ends[i + 1]})"


def vector_entry(vector: Sequence[float] | None) -> Entry | None:
    return tuple(np.float32(number) + np.float32(0) for number in vector) if vector else None


def encode_numbers(group: Group, rows: Sequence[Row], new: Sequence[Row]) -> EncodedGroup:
    """Scaled numbers, then an indicator for each column with gaps in training rows where the group is present."""
    spec, columns = group.extractor, group.columns
    assert isinstance(spec, NumbersSpec)
    table = [[None if row.get(c) is None else to_number(row[c]) for c in columns] for row in [*rows, *new]]
    present = [numbers for numbers in table[: len(rows)] if any(number is not None for number in numbers)]
    known = [[number for number in column if number is not None] for column in zip(*present, strict=True)]
    fill = [sum(numbers) / len(numbers) for numbers in known]
    told = [i for i in range(len(columns)) if any(numbers[i] is None for numbers in present)]
    entries: list[Entry | None] = []
    for numbers in table:
        filled = [fill[i] if number is None else number for i, number in enumerate(numbers)]
        scaled = [scale_number(number, known[i], spec.scale) for i, number in enumerate(filled)]
        entry = (*scaled, *(float(numbers[i] is None) for i in told))
        entries.append(None if all(number is None for number in numbers) else entry)
    return EncodedGroup({}, 0, entries)


def scale_number(number: float, training: Sequence[float], scale: str) -> float:
    low, high = min(training), max(training)
    mean = math.fsum(training) / len(training)
    match scale:
        case "standard":
            deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in training) / len(training))
            return (number - mean) / (deviation if high > low else 1.0)
        case "minmax":
            return (number - low) / ((high - low) or 1.0)
        case "log1p":
            return math.log1p(number)
        case "quantile":
            return quantile_of(number, training)
    return number


def quantile_of(number: float, training: Sequence[float], knots: int = 1001) -> float:
    """The share of the training numbers below a number; the middle of its ties."""
    ends = [quantile(training, Fraction(i, knots - 1)) for i in range(knots)]
    if number < ends[0] or number > ends[-1]:
        return float(number > ends[-1])
    equal = [i / (knots - 1) for i, end in enumerate(ends) if end == number]
    if equal:
        return (equal[0] + equal[-1]) / 2
    i = sum(end < number for end in ends)
    return (i - 1 + (number - ends[i - 1]) / (ends[i] - ends[i - 1])) / (knots - 1)
