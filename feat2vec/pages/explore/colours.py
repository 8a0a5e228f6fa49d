"""What points are coloured by: a table's columns, one value for each row or for each value of a group.

A value gets the mean of a column of numbers, or the most frequent category, over the rows that hold it. A row that has
several categories, as in a list, is coloured by the one that most rows have.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Float32s, Floats, Int8s, Int64s
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.vocabulary import FIRST
from feat2vec.pages.charts import number
from feat2vec.schema.extractor_options import ItemsSpec, Lookup
from feat2vec.schema.options import Schema
from feat2vec.table.keys import items_of
from feat2vec.table.numbers import concat, trimmed
from feat2vec.table.table import Stage, Table
from feat2vec.table.types import is_list, is_text, kind_of_type
from feat2vec.writing.files import JsonObject

NAMED_CATEGORIES = 6  # categories with a colour of their own: more could not be told apart
SCALE_QUANTILES = (
    0.02,
    0.98,
)  # where the scale ends, so that a few far numbers do not leave the rest one colour


class Pairs(NamedTuple):
    """Which points (by place) come in which rows."""

    places: Int64s
    rows: Int64s


class Numbers(NamedTuple):
    """A column of numbers, NaN where missing; dates are days since 1970."""

    values: Floats  # [rows]
    is_date: bool


class Categories(NamedTuple):
    """A column of categories: those of each row, one after the other, numbered from the most frequent on."""

    rows: Int64s  # [items] ascending
    codes: Int64s  # [items]
    names: list[str]


class Scale(NamedTuple):
    """Points coloured by a number, NaN where there is none."""

    values: Float32s  # [points]
    ends: tuple[float, float]
    labels: tuple[str, str]


class Classes(NamedTuple):
    """Points coloured by a category: a place in `names`, -1 for none; the last name may stand for the `rest`."""

    codes: Int8s  # [points]
    names: list[str]
    rest: bool


def colourable(table: Table) -> list[str]:
    """The columns that can be a colour: numbers, dates, booleans, text, and lists of these."""
    return [
        name
        for name, kind in table.columns.items()
        if _is_colour(kind) or (pa.types.is_list(kind) and _is_colour(kind.value_type))
    ]


def _is_colour(kind: pa.DataType) -> bool:
    t = pa.types
    tests = (t.is_boolean, t.is_integer, t.is_floating, t.is_decimal, t.is_temporal, is_text)
    return any(test(kind) for test in tests)


def read(table: Table, column: str, schema: Schema) -> Numbers | Categories:
    """A column, whole; text is split as the schema's group of that column splits it."""
    stage = Stage(table, list(table.batches([column])))
    numbers = _numeric_column(stage, column)
    if numbers is not None:
        return numbers
    specs = (group.extractor for group in schema.groups.values() if group.columns == (column,))
    split_by = next((spec.split for spec in specs if isinstance(spec, ItemsSpec) and spec.split), None)
    has_lists = is_list(stage.column(column).type)
    items = items_of(stage, column, Lookup(multi=has_lists, split=split_by, max_items=1 << 20))
    rows, codes = _distinct_items(np.repeat(np.arange(len(items.lengths)), items.lengths), items.codes.astype(np.int64))
    order = np.argsort(-np.bincount(codes, minlength=len(items.keys)), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Categories(rows, rank[codes], items.keys.take(pa.array(order)).to_pylist())


def _numeric_column(stage: Stage, column: str) -> Numbers | None:
    """A column of numbers or dates, or of text that is nothing else in a file without types."""
    values = stage.column(column)
    kind = "text" if is_text(values.type) or is_list(values.type) else kind_of_type(values.type)
    if kind in ("number", "date"):
        if kind == "date":
            values = values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False).cast(pa.int64())
        chunks = [pc.fill_null(chunk.cast(pa.float64(), safe=False), float("nan")) for chunk in values.chunks]
        numbers = concat(chunks, np.float64) / (86_400e6 if kind == "date" else 1)
        return Numbers(np.where(np.isfinite(numbers), numbers, np.nan), kind == "date")
    if stage.table.typed or is_list(values.type) or not is_text(values.type):
        return None
    try:
        parsed = trimmed(stage, values.cast(pa.string()).combine_chunks()).cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    numbers = pc.fill_null(parsed, float("nan")).to_numpy(zero_copy_only=False)
    return Numbers(np.where(np.isfinite(numbers), numbers, np.nan), False) if parsed.null_count < len(parsed) else None


def pairs_of(encoded: Encoded, group: str, *, keyed: bool) -> Pairs:
    """The rows of each of a group's values: of its keys, or of what training has seen."""
    ids = np.asarray(encoded.rows[:, list(encoded.encoder.codecs).index(group)])
    rows = np.flatnonzero(ids >= 0)
    ids = ids[rows]
    if not keyed:
        seen = ids < encoded.known[group]
        return Pairs(ids[seen].astype(np.int64), rows[seen])
    entries = np.asarray(encoded.values[group].entries)
    codec = encoded.encoder.codecs[group]
    keys = entries[:, : entries.shape[1] // 2] if getattr(codec, "weighted", False) else entries
    keys = keys[ids]  # [rows, items]
    row, item = np.nonzero(keys >= FIRST)
    row, place = _distinct_items(row, keys[row, item].astype(np.int64) - FIRST)
    return Pairs(place, rows[row])


def _distinct_items(rows: Int64s, items: Int64s) -> tuple[Int64s, Int64s]:
    """Each of a row's items once, as a bag may hold one twice."""
    stride = int(items.max(initial=0)) + 1
    pair_codes = np.unique(rows * stride + items)
    return pair_codes // stride, pair_codes % stride


def colour(column: Numbers | Categories, pairs: Pairs, places: Int64s) -> Scale | Classes:
    """The colours of the points at `places`."""
    if isinstance(column, Numbers):
        total = _places_of(pairs, places)
        values = column.values[pairs.rows]
        present = ~np.isnan(values)
        row_counts = np.bincount(pairs.places[present], minlength=total)
        sums = np.bincount(pairs.places[present], weights=values[present], minlength=total)
        means = np.divide(sums, row_counts, out=np.full(total, np.nan), where=row_counts > 0)
        return scale(means[places], is_date=column.is_date)
    return colour_by_category(column, pairs, places)


def colour_by_category(column: Categories, pairs: Pairs, places: Int64s) -> Classes:
    """The most frequent categories of the points at `places`."""
    codes = _most_frequent(column, pairs, _places_of(pairs, places))[places]
    return classes(codes, column.names)


def _places_of(pairs: Pairs, places: Int64s) -> int:
    """How many places there are, with those before them."""
    return int(max(places.max(initial=-1), pairs.places.max(initial=-1))) + 1


def _most_frequent(column: Categories, pairs: Pairs, total: int) -> Int64s:
    """The category that most rows of each place have, -1 for none; of equally frequent ones the first."""
    starts = np.searchsorted(column.rows, pairs.rows, "left")
    lengths = np.searchsorted(column.rows, pairs.rows, "right") - starts
    offset = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    codes = column.codes[np.repeat(starts, lengths) + offset]
    stride = max(len(column.names), 1)
    pair_codes, counts = np.unique(np.repeat(pairs.places, lengths) * stride + codes, return_counts=True)
    place, code = pair_codes // stride, pair_codes % stride
    order = np.lexsort((code, -counts, place))
    first = order[np.flatnonzero(np.diff(place[order], prepend=-1))]
    category_of_place = np.full(total, -1, np.int64)
    category_of_place[place[first]] = code[first]
    return category_of_place


def scale(values: Floats, *, is_date: bool = False, log: bool = False) -> Scale:
    """A scale over most of the numbers; `log` where it is their size that counts."""
    present = values[~np.isnan(values)]
    low, high = map(float, np.quantile(present, SCALE_QUANTILES)) if len(present) else (0.0, 0.0)
    if low == high and len(present):
        low, high = float(present.min()), float(present.max())
    end_labels = [str(np.datetime64(int(end), "D")) if is_date else _short(end) for end in (low, high)]
    low_label, high_label = end_labels
    if (present < low).any():
        low_label = f"≤ {low_label}"
    if (present > high).any():
        high_label = f"≥ {high_label}"
    if log:
        values, low, high = np.log10(values), float(np.log10(low)), float(np.log10(high))
    return Scale(values.astype(np.float32), (low, high), (low_label, high_label))


def _short(value: float) -> str:
    """A number of the legend, without an exponent where digits are as short."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else number(value)


def classes(codes: Int64s, names: list[str]) -> Classes:
    """The names that most points have, and the others as one."""
    points = np.bincount(codes[codes >= 0], minlength=len(names))
    used = np.flatnonzero(points)
    named = used[np.argsort(-points[used], kind="stable")][:NAMED_CATEGORIES]
    has_rest = len(used) > len(named)
    new_code = np.full(len(names) + 1, len(named), np.int8)  # the last place is -1's
    new_code[named] = np.arange(len(named))
    new_code[-1] = -1
    shown_names = [names[i] for i in named]
    return Classes(
        new_code[codes], [*shown_names, f"{len(used) - len(named):,} others"] if has_rest else shown_names, has_rest
    )


def as_dict(point_colours: Scale | Classes) -> JsonObject:
    """The fields by their names, with the kind; arrays stay arrays."""
    return {"kind": "scale" if isinstance(point_colours, Scale) else "classes", **point_colours._asdict()}
