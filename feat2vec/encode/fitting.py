"""Codecs, fitted to the training rows in two passes: `stage` keeps what is needed, `finish` makes the codec of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb
import numpy as np
import pyarrow as pa

from feat2vec.encode.codecs import (
    Codec,
    Entries,
    ItemsCodec,
    NumbersCodec,
    Tally,
    VectorCodec,
    binned,
    numbers_checked,
    parse_items,
)
from feat2vec.encode.entry_tables import BLOCK, CHUNK, Array, ArrayFile, Spilled
from feat2vec.encode.scaling import ColumnFeed, fit_scale, quantiles
from feat2vec.encode.vocabulary import Counts, VocabularyFit
from feat2vec.schema.extractor_options import ExtractorSpec, ItemsSpec, NumbersSpec, TokensSpec
from feat2vec.schema.options import Group
from feat2vec.table.keys import Items
from feat2vec.table.numbers import numbers_of, vectors_of
from feat2vec.table.stages import Ints, Kind, Stage, kind_of_keys


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


@dataclass(frozen=True)
class _StagedItems:
    """A stage's items on disk, less their keys."""

    rows: int
    truncated: int  # rows
    lengths: Spilled | None  # None where each row has one item
    codes: Spilled
    weights: Spilled | None

    def blocks(self) -> Iterator[Items]:
        """The items; those of rows with one item each in small blocks, which stay in a cache."""
        keys, truncated = pa.array([], pa.string()), self.truncated
        if self.lengths is None and self.weights is None:
            for codes in self.codes.blocks(BLOCK):
                yield Items(np.broadcast_to(np.int32(1), len(codes)), codes, keys, None, truncated)
                truncated = 0
            return
        one = np.broadcast_to(np.int32(1), self.rows)
        lengths = one if self.lengths is None else self.lengths.take().astype(np.int32)
        weights = None if self.weights is None else self.weights.take()
        yield Items(lengths, self.codes.take(), keys, weights, truncated)


class ItemsFit:
    """Fits an ItemsCodec: staged are the codes of each row, whose keys DuckDB counts."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path, name: str, group: Group) -> None:
        self.group, self.folder, self.name = group, folder, name
        self.words = VocabularyFit(connection, name)
        self.staged: list[_StagedItems] = []
        self.widest = 1
        self.kind: Kind | None = None
        self.codec: ItemsCodec | None = None
        self.work = self.rows = 0

    def stage(self, stage: Stage) -> None:
        self.add(parse_items(stage, self.group))
        if self.kind is None and stage.table.typed:
            self.kind = kind_of_keys(stage.column(self.group.columns[0]).type)

    def add(self, items: Items) -> None:
        number = len(self.staged)
        self.work += len(items.codes) + len(items.keys)
        self.rows += len(items.lengths)
        self.words.add(items.keys, _occurrences(items.codes, len(items.keys)))
        self.widest = max(self.widest, int(items.lengths.max(initial=0)))
        single = items.lengths.size == items.codes.size and bool((items.lengths == 1).all())

        def spilled(part: str, array: Array) -> Spilled:
            return Spilled(array, self.folder / f"{self.name}_{part}_{number}")

        self.staged.append(
            _StagedItems(
                len(items.lengths),
                items.truncated,
                None if single else spilled("lengths", items.lengths.astype(np.min_scalar_type(self.widest))),
                spilled("codes", items.codes.astype(np.min_scalar_type(len(items.keys)))),
                None if items.weights is None else spilled("weights", items.weights),
            )
        )

    def finish(self, edges: tuple[float, ...] = (), kind: Kind | None = None) -> ItemsCodec:
        spec = self.group.extractor
        assert isinstance(spec, (ItemsSpec, TokensSpec))
        untyped = self.kind is None and isinstance(spec, ItemsSpec) and not edges
        spelling = self.words.spell() if untyped else self.kind or "text"
        share = spec.max_share if isinstance(spec, ItemsSpec) else 1.0
        most_often = int(round(share * self.rows, 6)) if share < 1 else None  # 0.29 * 100 is below 29
        vocabulary = self.words.finish(spec.min_count, spec.max_size, spelling, most_often)
        if isinstance(spec, ItemsSpec) and spec.bag and not spec.parts:
            self.widest = min(self.widest, spec.max_items)
        weighted = isinstance(spec, ItemsSpec) and spec.weights is not None
        # the layer of a text or of a bag with weights is built for one width
        most = spec.max_items if isinstance(spec, ItemsSpec) and spec.bag and not weighted else self.widest
        self.codec = ItemsCodec(vocabulary, self.widest, max(most, self.widest), weighted, edges, kind)
        return self.codec

    def entries(self) -> Iterator[Entries]:
        assert self.codec is not None
        for number, staged in enumerate(self.staged):
            ids = self.words.ids(number)
            yield from (self.codec.pack(items, ids, self.group) for items in staged.blocks())


def _occurrences(codes: Ints, keys: int) -> Counts:
    """How often each key occurs; in blocks, since NumPy counts in a copy of 64 bits a code."""
    counts = np.zeros(keys, np.int64)
    block = max(keys, CHUNK // 4)
    for start in range(0, len(codes), block):
        counts += np.bincount(codes[start : start + block], minlength=keys)
    return counts


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
                    self.connection,
                    column,
                    self.kinds[i] or "number",
                    self.spec.scale,
                    ColumnFeed(self.file, i),
                    bool(self.gaps[i]),
                )
                for i, column in enumerate(self.group.columns)
            ),
            self.spec.nan,
        )
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


def codec_fit(connection: duckdb.DuckDBPyConnection, folder: Path, name: str, group: Group) -> CodecFit:
    """What fits the codec of a group."""
    spec: ExtractorSpec = group.extractor
    fits: dict[str, Any] = {"items": ItemsFit, "tokens": ItemsFit, "numbers": NumbersFit, "vector": VectorFit}
    if isinstance(spec, ItemsSpec) and spec.bins:
        return BinsFit(connection, folder, name, group)
    fit: CodecFit = fits[spec.encoding](connection, folder, name, group)
    return fit
