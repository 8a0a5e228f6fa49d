"""What a group's columns become: entries, the rows of numbers that its extractor sees. One codec for each encoding.

A fitted codec turns any rows into entries, and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar, Protocol, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feat2vec.encode.entry_tables import Array, is_finite
from feat2vec.encode.scaling import ColumnScale
from feat2vec.encode.vocabulary import PADDING, UNSEEN, Vocabulary, is_count
from feat2vec.schema.extractor_options import ExtractorSpec, ItemsSpec, NumbersSpec, TokensSpec
from feat2vec.schema.options import Group
from feat2vec.table.keys import Items, items_of, tokens_of
from feat2vec.table.numbers import numbers_of, vectors_of
from feat2vec.table.stages import Floats, Ints, Kind, Stage
from feat2vec.table.types import FIRST_DAY, LAST_DAY

Present = npt.NDArray[np.bool_]


@dataclass
class Tally:
    """What a policy did to some rows of a group."""

    missing: int = 0  # rows without an entry
    truncated: int = 0  # rows with more items than max_items or max_tokens
    unseen: int = 0  # items that are no key of the vocabulary
    filled: int = 0  # missing numbers that count as the training mean

    def add(self, other: Tally) -> None:
        for name, number in asdict(other).items():
            setattr(self, name, getattr(self, name) + number)


@dataclass(frozen=True)
class Entries:
    """A group's entries in some rows: which rows have one, and the entries of those, [present rows, width]."""

    present: Present
    rows: Array
    tally: Tally


class Codec(Protocol):
    """Turns a group's columns into entries and back."""

    dtype: ClassVar[type[np.generic]]

    @property
    def width(self) -> int:
        """Numbers in an entry, at most."""

    @property
    def stored(self) -> int:
        """Numbers in an entry of the training rows."""

    @property
    def bits(self) -> int:
        """Enough bits for each number of an entry."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """What the ids of an entry stand for, where it has ids."""

    def encode(self, stage: Stage, group: Group) -> Entries:
        """The entries of a stage's rows."""

    def decode(self, entries: Array) -> list[Any]:
        """What each entry stands for."""

    def facts(self) -> dict[str, Any]:
        """What `load` needs beside the vocabulary, as JSON."""


# --- keys and tokens ------------------------------------------------------------------------------------------------


def pack(items: Items, ids: Ints, width: int, *, ordered: bool) -> Entries:
    """The items' ids as padded rows; a bag's in ascending order, since its order means nothing."""
    present = items.lengths > 0
    if width == 1 and items.weights is None:
        return Entries(present, ids[:, None], Tally())
    lengths = items.lengths[present]
    filled = np.arange(width, dtype=np.int32) < lengths[:, None]  # [present rows, width]
    rows = np.zeros((len(lengths), width), np.int32)
    rows[filled] = ids
    if items.weights is not None:
        weights = np.zeros((len(lengths), width), np.float32)
        weights[filled] = items.weights
        order = np.lexsort((weights, np.where(filled, rows, np.iinfo(np.int32).max)), axis=1)
        rows, weights = np.take_along_axis(rows, order, 1), np.take_along_axis(weights, order, 1)
        rows = np.concatenate([rows, weights.view(np.int32)], axis=1)  # [present rows, 2 width]
    elif not ordered:
        unsigned = rows.view(np.uint32)
        unsigned -= 1  # padding becomes the largest number and is sorted to the end
        unsigned.sort(axis=1)
        unsigned += 1
    return Entries(present, rows, Tally())


@dataclass(frozen=True)
class ItemsCodec:
    """Keys (a lookup) or tokens (a text) as padded ids.

    A bag with weights has twice the width: the ids, then the bits of the float32 weights. `edges` bin numbers.
    `items` are those of the widest training row; entries of new rows may have `most`.
    """

    vocabulary: Vocabulary
    items: int
    most: int
    weighted: bool = False
    edges: tuple[float, ...] = ()
    kind: Kind | None = None  # what text is read as before it is binned
    dtype: ClassVar[type[np.generic]] = np.int32

    @property
    def width(self) -> int:
        """Numbers in an entry, at most."""
        return self.items * 2 if self.weighted else self.most

    @property
    def stored(self) -> int:
        """Numbers in an entry of the training rows."""
        return self.items * 2 if self.weighted else self.items

    @property
    def bits(self) -> int:
        """Enough bits for each number of an entry."""
        return 32 if self.weighted else (len(self.vocabulary) - 1).bit_length()

    def encode(self, stage: Stage, group: Group) -> Entries:
        items = parse_items(stage, group, self.edges, self.kind)
        return self.pack(items, self.vocabulary.ids(items.keys), group)

    def pack(self, items: Items, ids_of_keys: Ints, group: Group) -> Entries:
        ids = ids_of_keys[items.codes]
        rare, none = bool((ids_of_keys == UNSEEN).any()), not ids_of_keys.all()
        if none and not ids.all():
            items, ids = _without_padding(items, ids)
        items, ids = _shorten(items, ids, self.most)
        width = max(self.items, int(items.lengths.max(initial=0)))
        entries = pack(items, ids, width, ordered=isinstance(group.extractor, TokensSpec))
        entries.tally.missing = len(entries.present) - int(np.count_nonzero(entries.present))
        entries.tally.unseen = int(np.count_nonzero(ids == UNSEEN)) if rare else 0
        entries.tally.truncated = items.truncated
        return entries

    def decode(self, entries: Array) -> list[Any]:
        """The keys of each entry, None for an unseen one; (key, weight) in a bag with weights."""
        ids = entries[:, : self.items] if self.weighted else entries
        keys = [[self.vocabulary.key(id_) for id_ in row if id_] for row in ids.tolist()]
        if not self.weighted:
            return keys
        weights = np.ascontiguousarray(entries[:, self.items :]).view(np.float32).tolist()
        return [list(zip(row, of_row, strict=False)) for row, of_row in zip(keys, weights, strict=True)]

    def facts(self) -> dict[str, Any]:
        return {
            "items": self.items,
            "most": self.most,
            "weighted": self.weighted,
            "edges": list(self.edges),
            "kind": self.kind,
            "unseen": self.vocabulary.unseen,
            "spelling": self.vocabulary.kind,
            "too_frequent": self.vocabulary.too_frequent,
        }


def parse_items(stage: Stage, group: Group, edges: Sequence[float] = (), kind: Kind | None = None) -> Items:
    """A stage's items, whatever kind of group it is."""
    spec, (column, *_) = group.extractor, group.columns
    if isinstance(spec, TokensSpec):
        return tokens_of(stage, column, spec)
    assert isinstance(spec, ItemsSpec)
    if not spec.bins:
        return items_of(stage, column, spec)
    numbers, _ = numbers_of(stage, column, kind)
    return binned(numbers, edges)


def binned(numbers: Floats, edges: Sequence[float]) -> Items:
    """Numbers as the bin they fall into, `[low, high)`; missing ones have none."""
    present = ~np.isnan(numbers)
    ends = ["-inf", *(f"{edge:g}" if float(f"{edge:g}") == edge else repr(edge) for edge in edges), "inf"]
    keys = [f"[{low}, {high})" for low, high in pairwise(ends)]
    codes = np.searchsorted(np.array(edges), numbers[present], side="right").astype(np.int32)
    return Items(present.astype(np.int32), codes, pa.array(keys, pa.string()), None, 0)


def _without_padding(items: Items, ids: Ints) -> tuple[Items, Ints]:
    """Items less those that are no key: NA among numbers."""
    keep = ids != PADDING
    bags = np.repeat(np.arange(len(items.lengths)), items.lengths)[keep]
    lengths = np.bincount(bags, minlength=len(items.lengths)).astype(np.int32)
    weights = None if items.weights is None else items.weights[keep]
    return Items(lengths, items.codes[keep], items.keys, weights, items.truncated), ids[keep]


def _shorten(items: Items, ids: Ints, most: int) -> tuple[Items, Ints]:
    """The first `most` items of each row: a text may be longer than any of the training rows."""
    over = int(np.count_nonzero(items.lengths > most))
    if not over:
        return items, ids
    starts = np.cumsum(items.lengths, dtype=np.int64) - items.lengths
    keep = np.arange(len(items.codes)) - np.repeat(starts, items.lengths) < most
    weights = None if items.weights is None else items.weights[keep]
    lengths = np.minimum(items.lengths, np.int32(most))
    return Items(lengths, items.codes[keep], items.keys, weights, max(items.truncated, over)), ids[keep]


# --- numbers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumbersCodec:
    """Scaled numbers, then an indicator for each column that has missing entries."""

    columns: tuple[ColumnScale, ...]
    nan: str
    dtype: ClassVar[type[np.generic]] = np.float32
    bits: ClassVar[int] = 32
    vocabulary: None = None

    @property
    def width(self) -> int:
        """Numbers in an entry."""
        return len(self.columns) + sum(column.indicator for column in self.columns)

    @property
    def stored(self) -> int:
        """The same: entries of numbers have one width."""
        return self.width

    def encode(self, stage: Stage, group: Group) -> Entries:
        spec = group.extractor
        assert isinstance(spec, NumbersSpec)
        columns = [numbers_checked(stage, column.column, spec, column.kind)[0] for column in self.columns]
        numbers = np.stack(columns, axis=1)
        entries = self.pack(numbers)
        if not np.isfinite(entries.rows).all():
            at, i = (int(axis[0]) for axis in np.nonzero(~np.isfinite(entries.rows)))
            row = int(np.flatnonzero(entries.present)[at])
            message = f"is too large for `scale: {self.columns[i].scale}` as the training rows fitted it"
            stage.refuse(row, self.columns[i].column, float(numbers[row, i]), message)
        return entries

    def pack(self, numbers: Floats) -> Entries:
        absent = np.isnan(numbers)  # [rows, columns]
        present = np.logical_not(absent.all(axis=1))
        numbers, absent = numbers[present], absent[present]
        told = [absent[:, i].astype(np.float64) for i, column in enumerate(self.columns) if column.indicator]
        with np.errstate(over="ignore"):
            scaled = [column.apply(numbers[:, i]) for i, column in enumerate(self.columns)]
            rows = np.stack([*scaled, *told], axis=1).astype(np.float32) + np.float32(0)  # -0 and 0 are one value
        return Entries(present, rows, Tally(missing=int((~present).sum()), filled=int(absent.sum())))

    def decode(self, entries: Array) -> list[list[float | datetime | None]]:
        """The numbers of each entry, dates as such; None for one that an indicator says was missing."""
        are_dates = [column.kind == "date" for column in self.columns]
        return [
            [
                None if np.isnan(number) else _date(number) if is_date else number
                for number, is_date in zip(row, are_dates, strict=True)
            ]
            for row in self.numbers(entries).tolist()
        ]

    def numbers(self, entries: Array) -> Floats:
        """The numbers of each entry, [entries, columns]: days since 1970 for dates, NaN for what was missing."""
        count = len(self.columns)
        inverted = [column.invert(entries[:, i].astype(np.float64)) for i, column in enumerate(self.columns)]
        missing = np.zeros((len(entries), count), np.bool_)
        missing[:, [column.indicator for column in self.columns]] = entries[:, count:] != 0
        return np.where(missing, np.nan, np.stack(inverted, axis=1))

    def facts(self) -> dict[str, Any]:
        return {"columns": [asdict(column) for column in self.columns], "nan": self.nan}


def _date(days: float) -> datetime:
    if days >= LAST_DAY + 1:  # the float32 of an entry may be days away from the date
        return datetime.max
    return datetime(1970, 1, 1) + timedelta(days=max(days, FIRST_DAY))


def numbers_checked(stage: Stage, column: str, spec: NumbersSpec, kind: Kind | None) -> tuple[Floats, Kind]:
    """A column's numbers, all of which its scale can take."""
    numbers, kind = numbers_of(stage, column, kind, spec.nan)
    if spec.scale == "log1p" and (low := np.flatnonzero(numbers <= -1)).size:
        stage.refuse(int(low[0]), column, float(numbers[low[0]]), "`scale: log1p` needs numbers above -1")
    if spec.scale == "none" and (high := np.flatnonzero(np.abs(numbers) > np.finfo(np.float32).max)).size:
        stage.refuse(int(high[0]), column, float(numbers[high[0]]), "is too large for 32 bits; choose another scale")
    return numbers, kind


# --- vectors --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VectorCodec:
    """A pretrained vector as it is."""

    width: int
    dtype: ClassVar[type[np.generic]] = np.float32
    bits: ClassVar[int] = 32
    vocabulary: None = None

    @property
    def stored(self) -> int:
        """The same: vectors have one size."""
        return self.width

    def encode(self, stage: Stage, group: Group) -> Entries:
        present, rows = vectors_of(stage, group.columns[0], self.width)
        return Entries(present, rows + np.float32(0), Tally(missing=int((~present).sum())))

    def decode(self, entries: Array) -> list[list[float]]:
        """The vector of each entry."""
        decoded: list[list[float]] = entries.tolist()
        return decoded

    def facts(self) -> dict[str, Any]:
        return {"width": self.width}


# --- one for each encoding ------------------------------------------------------------------------------------------


def codec_from_facts(group: Group, facts: Mapping[str, Any], keys: pa.Table | None) -> Codec:
    """A codec as `facts` and its vocabulary's table say.

    Raises:
        ValueError: If these are no facts that fitting the group can give.
        KeyError: If one is missing.
        TypeError: If one has another type.

    """
    spec = group.extractor
    if keys is not None:
        vocabulary = Vocabulary.from_table(keys, facts["unseen"], facts["spelling"], facts["too_frequent"])
        codec = ItemsCodec(
            vocabulary, facts["items"], facts["most"], facts["weighted"], tuple(facts["edges"]), facts["kind"]
        )
        _check_items(codec, spec)
        return codec
    if isinstance(spec, NumbersSpec):
        columns = [ColumnScale(**{**column, "knots": tuple(column["knots"])}) for column in facts["columns"]]
        if [column.column for column in columns] != list(group.columns) or facts["nan"] != spec.nan:
            raise ValueError("the columns of numbers are not those of the schema")
        for column in columns:
            column.check(spec.scale)
        return NumbersCodec(tuple(columns), facts["nan"])
    if not is_count(facts["width"]) or not 0 < facts["width"] < MOST_NUMBERS:
        raise ValueError("the size of vectors is no size")
    return VectorCodec(facts["width"])


MOST_NUMBERS = 2**31  # of an entry


def _check_items(codec: ItemsCodec, spec: ExtractorSpec) -> None:
    """Raise for facts that `ItemsFit` cannot give."""
    bound, weights = 1, None
    if isinstance(spec, TokensSpec):
        bound = spec.max_tokens
    elif isinstance(spec, ItemsSpec) and spec.bag:
        bound, weights = max(spec.max_items, len(spec.parts)), spec.weights
    if not (is_count(codec.items) and is_count(codec.most) and 1 <= codec.items <= codec.most <= bound):
        raise ValueError(f"entries have at most {bound:,} items; received {codec.items!r} and {codec.most!r}")
    if codec.weighted is not (weights is not None):
        raise ValueError("the schema and the encoder differ about weights")
    if codec.kind not in (None, *get_args(Kind)):
        raise ValueError(f"no kind of keys: {codec.kind!r}")
    edges = codec.edges
    if not all(isinstance(edge, float) and np.isfinite(edge) for edge in edges) or list(edges) != sorted(set(edges)):
        raise ValueError("the edges of bins are no ascending numbers")


def check_entries(codec: Codec, entries: Array) -> None:
    """Raise a ValueError for entries that the codec cannot give: ids that are no key's, numbers that are not finite."""
    if not len(entries):
        raise ValueError("a group has no values")
    if not isinstance(codec, ItemsCodec):
        if not is_finite(entries):
            raise ValueError("entries hold numbers that are not finite")
        return
    ids = entries[:, : codec.items]
    if ids.size and (ids.min() < 0 or ids.max() >= len(codec.vocabulary)):
        raise ValueError("entries hold ids that are no key's")
    if codec.weighted and not is_finite(np.ascontiguousarray(entries[:, codec.items :]).view(np.float32)):
        raise ValueError("entries hold weights that are not finite")
