"""What a group's columns become: entries, the rows of numbers that its extractor sees. One codec for each encoding.

A codec is fitted on the training rows in two passes (stage, finish) and then turns any rows into entries, and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Protocol

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feat2vec.columns import Floats, Ints, Items, Kind, Stage, items_of, kind_of_type, numbers_of, tokens_of, vectors_of
from feat2vec.scaling import ColumnFeed, ColumnScale, fit_scale, quantiles
from feat2vec.schema import Group
from feat2vec.specs import ExtractorSpec, ItemsSpec, NumbersSpec, TokensSpec
from feat2vec.values import Array, ArrayFile, Spilled
from feat2vec.vocabulary import PADDING, UNSEEN, Vocabulary, VocabularyFit

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


class CodecFit(Protocol):
    """Fits a codec: `stage` sees the training rows once, `entries` gives them back encoded."""

    @property
    def work(self) -> int:
        """How many numbers are staged: about how long the rest takes."""

    def stage(self, stage: Stage) -> None:
        """Keep what is needed of a stage's rows."""

    def finish(self) -> Codec:
        """The codec, fitted to all stages."""

    def entries(self) -> Iterator[Entries]:
        """The entries of each stage, once `finish` has run."""


# --- keys and tokens ------------------------------------------------------------------------------------------------


def pack(items: Items, ids: Ints, width: int, *, ordered: bool) -> Entries:
    """The items' ids as padded rows; a bag's in ascending order, since its order means nothing."""
    present = items.lengths > 0
    lengths = items.lengths[present]
    filled = np.arange(width, dtype=np.int32) < lengths[:, None]  # [present rows, width]
    if width == 1 and items.weights is None:
        return Entries(present, ids[:, None], Tally())
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
        over = items.lengths > self.most  # a text longer than any of the training rows
        entries = self.pack(_shorten(items, self.most), self.vocabulary.ids(items.keys), group)
        entries.tally.truncated = max(items.truncated, int(over.sum()))
        return entries

    def pack(self, items: Items, ids_of_keys: Ints, group: Group) -> Entries:
        ids = ids_of_keys[items.codes]
        if not ids.all():
            items, ids = _without_padding(items, ids)
        width = max(self.items, int(items.lengths.max(initial=0)))
        entries = pack(items, ids, width, ordered=isinstance(group.extractor, TokensSpec))
        entries.tally.missing = int((~entries.present).sum())
        entries.tally.unseen = int((ids == UNSEEN).sum())
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
            "items": self.items, "most": self.most, "weighted": self.weighted, "edges": list(self.edges),
            "kind": self.kind, "unseen": self.vocabulary.unseen, "spelling": self.vocabulary.kind,
        }  # fmt: skip


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


def _shorten(items: Items, most: int) -> Items:
    if not (items.lengths > most).any():
        return items
    starts = np.cumsum(items.lengths, dtype=np.int64) - items.lengths
    keep = np.arange(len(items.codes)) - np.repeat(starts, items.lengths) < most
    weights = None if items.weights is None else items.weights[keep]
    return Items(np.minimum(items.lengths, np.int32(most)), items.codes[keep], items.keys, weights, 0)


class ItemsFit:
    """Fits an ItemsCodec: staged are the codes of each row, whose keys DuckDB counts."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path, name: str, group: Group) -> None:
        self.group, self.folder, self.name = group, folder, name
        self.words = VocabularyFit(connection, name)
        self.staged: list[tuple[int, list[Spilled]]] = []  # rows that were truncated; lengths, codes and weights
        self.widest = 1
        self.kind: Kind | None = None
        self.codec: ItemsCodec | None = None
        self.work = 0

    def stage(self, stage: Stage) -> None:
        self.add(parse_items(stage, self.group))
        if self.kind is None and stage.table.typed:
            self.kind = kind_of_type(stage.column(self.group.columns[0]).type)

    def add(self, items: Items) -> None:
        number = len(self.staged)
        self.work += len(items.codes) + len(items.keys)
        self.words.add(items.keys, np.bincount(items.codes, minlength=len(items.keys)))
        self.widest = max(self.widest, int(items.lengths.max(initial=0)))
        lengths = items.lengths.astype(np.min_scalar_type(self.widest))
        codes = items.codes.astype(np.min_scalar_type(len(items.keys)))
        arrays = [lengths, codes, *([] if items.weights is None else [items.weights])]
        paths = [self.folder / f"{self.name}_{part}_{number}" for part in range(len(arrays))]
        self.staged.append((items.truncated, [Spilled(*pair) for pair in zip(arrays, paths, strict=True)]))

    def finish(self, edges: tuple[float, ...] = (), kind: Kind | None = None) -> ItemsCodec:
        spec = self.group.extractor
        assert isinstance(spec, (ItemsSpec, TokensSpec))
        untyped = self.kind is None and isinstance(spec, ItemsSpec) and not edges
        spelling = self.words.spell() if untyped else self.kind or "text"
        vocabulary = self.words.finish(spec.min_count, spec.max_size, spelling)
        weighted = isinstance(spec, ItemsSpec) and spec.weights is not None
        # the layer of a text or of a bag with weights is built for one width
        most = spec.max_items if isinstance(spec, ItemsSpec) and spec.bag and not weighted else self.widest
        self.codec = ItemsCodec(vocabulary, self.widest, max(most, self.widest), weighted, edges, kind)
        return self.codec

    def entries(self) -> Iterator[Entries]:
        assert self.codec is not None
        for number, (truncated, spilled) in enumerate(self.staged):
            lengths, codes, *weights = (part.take() for part in spilled)
            items = Items(lengths.astype(np.int32), codes, pa.array([]), weights[0] if weights else None, truncated)
            yield self.codec.pack(items, self.words.ids(number), self.group)


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
        count = len(self.columns)
        numbers: list[list[float | datetime]] = []
        for i, column in enumerate(self.columns):
            inverted = column.invert(entries[:, i].astype(np.float64)).tolist()
            numbers.append([_date(days) for days in inverted] if column.kind == "date" else inverted)
        told = np.zeros((len(entries), count), np.bool_)
        told[:, [column.indicator for column in self.columns]] = entries[:, count:] != 0
        return [
            [None if gone else number for gone, number in zip(*row, strict=True)]
            for row in zip(told.tolist(), zip(*numbers, strict=True), strict=True)
        ]

    def facts(self) -> dict[str, Any]:
        return {"columns": [asdict(column) for column in self.columns], "nan": self.nan}


def _date(days: float) -> datetime:
    return datetime(1970, 1, 1) + timedelta(days=days)


def numbers_checked(stage: Stage, column: str, spec: NumbersSpec, kind: Kind | None) -> tuple[Floats, Kind]:
    """A column's numbers, all of which its scale can take."""
    numbers, kind = numbers_of(stage, column, kind, spec.nan)
    if spec.scale == "log1p" and (low := np.flatnonzero(numbers <= -1)).size:
        stage.refuse(int(low[0]), column, float(numbers[low[0]]), "`scale: log1p` needs numbers above -1")
    if spec.scale == "none" and (high := np.flatnonzero(np.abs(numbers) > np.finfo(np.float32).max)).size:
        stage.refuse(int(high[0]), column, float(numbers[high[0]]), "is too large for 32 bits; choose another scale")
    return numbers, kind


class NumbersFit:
    """Fits a NumbersCodec (or the bins of an ItemsCodec): staged are the numbers."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path, name: str, group: Group) -> None:
        assert isinstance(group.extractor, NumbersSpec)
        self.connection, self.group, self.spec = connection, group, group.extractor
        self.file = ArrayFile(folder / f"{name}.npy", np.float64, len(group.columns))
        self.kinds: list[Kind | None] = [None] * len(group.columns)
        self.gaps = np.zeros(len(group.columns), np.bool_)
        self.codec: NumbersCodec | None = None

    @property
    def work(self) -> int:
        """How many numbers are staged."""
        return self.file.rows * len(self.group.columns)

    def stage(self, stage: Stage) -> None:
        columns = []
        for i, column in enumerate(self.group.columns):
            numbers, kind = numbers_checked(stage, column, self.spec, self.kinds[i])
            self.kinds[i] = kind if not np.isnan(numbers).all() else self.kinds[i]
            columns.append(numbers)
        rows = np.stack(columns, axis=1)
        absent = np.isnan(rows)
        self.gaps |= (absent & ~absent.all(axis=1, keepdims=True)).any(axis=0)
        self.file.append(rows)

    def finish(self) -> NumbersCodec:
        self.file.close()
        self.codec = NumbersCodec(
            tuple(
                fit_scale(
                    self.connection, column, self.kinds[i] or "number", self.spec.scale,
                    ColumnFeed(self.file, i), bool(self.gaps[i]),
                )
                for i, column in enumerate(self.group.columns)
            ),
            self.spec.nan,
        )  # fmt: skip
        return self.codec

    def entries(self) -> Iterator[Entries]:
        assert self.codec is not None
        for piece in self.file.pieces():
            yield self.codec.pack(piece)
        self.file.path.unlink()


class BinsFit:
    """Fits an ItemsCodec over the quantile bins of a column of numbers."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path, name: str, group: Group) -> None:
        self.connection, self.group = connection, group
        self.file = ArrayFile(folder / f"{name}.npy", np.float64, 1)
        self.items = ItemsFit(connection, folder, name, group)
        self.kind: Kind | None = None

    @property
    def work(self) -> int:
        """How many numbers are staged."""
        return self.file.rows

    def stage(self, stage: Stage) -> None:
        numbers, kind = numbers_of(stage, self.group.columns[0], self.kind)
        self.kind = kind if not np.isnan(numbers).all() else self.kind
        self.file.append(numbers[:, None])

    def finish(self) -> ItemsCodec:
        assert isinstance(self.group.extractor, ItemsSpec)
        self.file.close()
        feed = ColumnFeed(self.file, 0)
        bins = self.group.extractor.bins or 1
        edges = tuple((np.unique(quantiles(self.connection, feed, bins + 1)[1:-1]) + 0.0).tolist())  # no -0
        for piece in feed():
            self.items.add(binned(piece, edges))
        return self.items.finish(edges, self.kind)

    def entries(self) -> Iterator[Entries]:
        return self.items.entries()


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


class VectorFit:
    """Fits a VectorCodec: staged are the vectors."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path, name: str, group: Group) -> None:
        del connection
        self.group, self.folder, self.name = group, folder, name
        self.staged: list[tuple[Spilled, Spilled]] = []
        self.work = 0
        self.size: int | None = None

    def stage(self, stage: Stage) -> None:
        present, rows = vectors_of(stage, self.group.columns[0], self.size)
        self.size = rows.shape[1] if len(rows) else self.size
        self.work += rows.size
        path = self.folder / f"{self.name}_{len(self.staged)}"
        self.staged.append((Spilled(present, path), Spilled(rows, path.with_suffix(".rows"))))

    def finish(self) -> VectorCodec:
        return VectorCodec(self.size or 1)

    def entries(self) -> Iterator[Entries]:
        for spilled, vectors in self.staged:
            present = spilled.take()
            rows = vectors.take().reshape(-1, self.size or 1)  # a stage without vectors did not know their size
            yield Entries(present, rows + np.float32(0), Tally(missing=int((~present).sum())))


# --- one for each encoding ------------------------------------------------------------------------------------------


def codec_fit(connection: duckdb.DuckDBPyConnection, folder: Path, name: str, group: Group) -> CodecFit:
    """What fits the codec of a group."""
    spec: ExtractorSpec = group.extractor
    fits: dict[str, Any] = {"items": ItemsFit, "tokens": ItemsFit, "numbers": NumbersFit, "vector": VectorFit}
    if isinstance(spec, ItemsSpec) and spec.bins:
        return BinsFit(connection, folder, name, group)
    fit: CodecFit = fits[spec.encoding](connection, folder, name, group)
    return fit


def codec_from_facts(spec: ExtractorSpec, facts: dict[str, Any], keys: pa.Table | None) -> Codec:
    """A codec as `facts` and its vocabulary's table say."""
    if keys is not None:
        vocabulary = Vocabulary.from_table(keys, facts["unseen"], facts["spelling"])
        sizes = facts["items"], facts["most"]
        return ItemsCodec(vocabulary, *sizes, facts["weighted"], tuple(facts["edges"]), facts["kind"])
    if isinstance(spec, NumbersSpec):
        columns = [ColumnScale(**{**column, "knots": tuple(column["knots"])}) for column in facts["columns"]]
        return NumbersCodec(tuple(columns), facts["nan"])
    return VectorCodec(facts["width"])
