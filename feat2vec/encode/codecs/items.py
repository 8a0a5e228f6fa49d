"""Items of rows: read from a stage, binned, cut, and laid out as padded rows of ids."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Floats, Ints
from feat2vec.encode.arrays_on_disk import ROWS_PER_PIECE, ArrayFile, SpilledArray, is_finite
from feat2vec.encode.codecs.entries import Codec, CodecFit, Entries, Facts, Tally
from feat2vec.encode.codecs.given_levels import GivenLevels, LevelColumn
from feat2vec.encode.codecs.numbers import ColumnFeed, quantiles, shared_kind
from feat2vec.encode.finished_steps import StepRecord
from feat2vec.encode.vocabulary import (
    PADDING,
    UNSEEN,
    Counts,
    Vocabulary,
    is_count,
    read_keys,
    write_keys,
)
from feat2vec.encode.vocabulary_fit import VocabularyFit
from feat2vec.encode.workspace import Workspace
from feat2vec.schema.extractor_options import ExtractorSpec, ItemsSpec, TokensSpec
from feat2vec.schema.options import Group
from feat2vec.table.keys import Items, items_of, tokens_of
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage
from feat2vec.table.types import Kind, kind_of_keys

LARGEST_ID = np.iinfo(np.int32).max
MEAN_UNIT = 2.0**64  # numbers are divided by it before they are added up, so that no sum overflows


def parse_items(stage: Stage, group: Group, edges: Sequence[float] = (), kind: Kind | None = None) -> Items:
    """A stage's items: keys, tokens, or numbers as bins between `edges`."""
    spec, column = group.extractor, group.columns[0]
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
    codes = bins_of(numbers[present], edges)
    return Items(present.astype(np.int32), codes, pa.array(bin_names(edges), pa.string()), None, 0)


def bins_of(numbers: Floats, edges: Sequence[float]) -> Ints:
    """The bin of each number, counted from 0, [numbers]."""
    return np.searchsorted(np.array(edges), numbers, side="right").astype(np.int32)


def bin_names(edges: Sequence[float]) -> list[str]:
    """The keys of the bins between edges, in ascending order."""
    ends = ["-inf", *(f"{edge:g}" if float(f"{edge:g}") == edge else repr(edge) for edge in edges), "inf"]
    return [f"[{low}, {high})" for low, high in pairwise(ends)]


def pack(items: Items, ids: Ints, width: int, *, ordered: bool) -> Entries:
    """The items' ids as padded rows; those of a bag in ascending order, as its order has no meaning.

    Args:
        items: The items of all rows.
        ids: The id of each item, [items].
        width: Items in a padded row.
        ordered: Whether the order of the items has a meaning.

    Returns:
        Entries of the width `width`, or twice that if the items have weights: the ids, then the bits of the weights.

    """
    present = items.lengths > 0
    if width == 1 and items.weights is None:
        return Entries(present, ids[:, None], Tally())
    lengths = items.lengths[present]
    is_filled = np.arange(width, dtype=np.int32) < lengths[:, None]  # [present rows, width]
    rows = np.zeros((len(lengths), width), np.int32)
    rows[is_filled] = ids
    if items.weights is not None:
        weights = np.zeros((len(lengths), width), np.float32)
        weights[is_filled] = items.weights
        padding_last = np.where(is_filled, rows, LARGEST_ID)
        order = np.lexsort((weights, padding_last), axis=1)
        rows, weights = np.take_along_axis(rows, order, 1), np.take_along_axis(weights, order, 1)
        rows = np.concatenate([rows, weights.view(np.int32)], axis=1)  # [present rows, 2 width]
    elif not ordered:
        unsigned = rows.view(np.uint32)
        unsigned -= 1  # padding becomes the largest number and is sorted to the end
        unsigned.sort(axis=1)
        unsigned += 1
    return Entries(present, rows, Tally())


def without_padding(items: Items, ids: Ints) -> tuple[Items, Ints]:
    """Items and their ids, without the items that are treated as missing."""
    keep = ids != PADDING
    row_of_item = np.repeat(np.arange(len(items.lengths)), items.lengths)
    lengths = np.bincount(row_of_item[keep], minlength=len(items.lengths)).astype(np.int32)
    return _selected(items, keep, lengths), ids[keep]


def first_items(items: Items, ids: Ints, most: int) -> tuple[Items, Ints]:
    """The first `most` items of each row: a text may be longer than any of the training rows."""
    longer_rows = int(np.count_nonzero(items.lengths > most))
    if not longer_rows:
        return items, ids
    first_of_row = np.cumsum(items.lengths, dtype=np.int64) - items.lengths
    keep = np.arange(len(items.codes)) - np.repeat(first_of_row, items.lengths) < most
    lengths = np.minimum(items.lengths, np.int32(most))
    kept = replace(_selected(items, keep, lengths), truncated=max(items.truncated, longer_rows))
    return kept, ids[keep]


def _selected(items: Items, keep: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], lengths: Ints) -> Items:
    weights = None if items.weights is None else items.weights[keep]
    return Items(lengths, items.codes[keep], items.keys, weights, items.truncated)


@dataclass(frozen=True)
class ItemsCodec:
    """Keys (a lookup) or tokens (a text) as padded ids.

    A bag with weights has twice the width: the ids, then the bits of the float32 weights.
    """

    vocabulary: Vocabulary
    items: int  # of the training row that has most
    max_items: int  # of any row
    weighted: bool = False
    edges: tuple[float, ...] = ()  # of the bins of numbers
    kind: Kind | None = None  # what text is read as before it is binned
    means: tuple[float, ...] = ()  # of the training numbers in each bin, NaN for an empty one; of a run of before none
    dtype: ClassVar[type[np.generic]] = np.int32

    @property
    def width(self) -> int:
        """Numbers in an entry, at most."""
        return self.items * 2 if self.weighted else self.max_items

    @property
    def training_width(self) -> int:
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
        """The entries of rows of items; `ids_of_keys` are the ids of `items.keys`, [keys]."""
        ids = ids_of_keys[items.codes]
        has_unseen_keys = bool((ids_of_keys == UNSEEN).any())
        has_missing_keys = not ids_of_keys.all()
        if has_missing_keys and not ids.all():
            items, ids = without_padding(items, ids)
        items, ids = first_items(items, ids, self.max_items)
        width = max(self.items, int(items.lengths.max(initial=0)))
        entries = pack(items, ids, width, ordered=isinstance(group.extractor, TokensSpec))
        entries.tally.missing = len(entries.present) - int(np.count_nonzero(entries.present))
        entries.tally.unseen = int(np.count_nonzero(ids == UNSEEN)) if has_unseen_keys else 0
        entries.tally.truncated = items.truncated
        return entries

    def decode(self, entries: Array) -> list[Any]:
        """The keys of each entry, None for an unseen one; (key, weight) in a bag with weights."""
        ids = entries[:, : self.items] if self.weighted else entries
        keys = [[self.vocabulary.key(id_) for id_ in row if id_] for row in ids.tolist()]
        if not self.weighted:
            return keys
        weights = np.ascontiguousarray(entries[:, self.items :]).view(np.float32).tolist()
        # the weights of a row are padded, its keys are not
        return [
            list(zip(row_keys, row_weights, strict=False)) for row_keys, row_weights in zip(keys, weights, strict=True)
        ]

    def facts(self) -> dict[str, object]:
        of_levels = {} if self.vocabulary.levels is None else {"levels_given": True}
        return {
            **of_levels,
            "items": self.items,
            "most": self.max_items,
            "weighted": self.weighted,
            "edges": list(self.edges),
            "means": [None if np.isnan(mean) else mean for mean in self.means],
            "kind": self.kind,
            "unseen": self.vocabulary.unseen,
            "spelling": self.vocabulary.kind,
            "too_frequent": self.vocabulary.too_frequent,
        }

    @classmethod
    def from_facts(cls, group: Group, facts: Facts, keys: pa.Table | None) -> ItemsCodec:
        if keys is None:
            raise ValueError("the vocabulary is missing")
        words = facts["unseen"], facts["spelling"], facts["too_frequent"]
        vocabulary = Vocabulary.from_table(keys, *words, levels_given=facts.get("levels_given", False) is True)
        edges = tuple(facts["edges"])
        means = tuple(math.nan if mean is None else mean for mean in facts.get("means", ()))
        codec = cls(vocabulary, facts["items"], facts["most"], facts["weighted"], edges, facts["kind"], means)
        codec._check_facts(group.extractor)
        return codec

    def _check_facts(self, spec: ExtractorSpec) -> None:
        """Raise a ValueError for facts that `ItemsFit` cannot give."""
        most_items, weights = 1, None
        if isinstance(spec, TokensSpec):
            most_items = spec.max_tokens
        elif isinstance(spec, ItemsSpec) and spec.bag:
            most_items, weights = max(spec.max_items, len(spec.parts)), spec.weights
        are_counts = is_count(self.items) and is_count(self.max_items)
        if not (are_counts and 1 <= self.items <= self.max_items <= most_items):
            received = f"received {self.items!r} and {self.max_items!r}"
            raise ValueError(f"entries have at most {most_items:,} items; {received}")
        if self.weighted is not (weights is not None):
            raise ValueError("the schema and the encoder differ about weights")
        if self.kind not in (None, *get_args(Kind)):
            raise ValueError(f"no kind of keys: {self.kind!r}")
        are_finite = all(isinstance(edge, float) and np.isfinite(edge) for edge in self.edges)
        if not are_finite or list(self.edges) != sorted(set(self.edges)):
            raise ValueError("the edges of bins are no ascending numbers")
        are_numbers = all(isinstance(mean, float) and not np.isinf(mean) for mean in self.means)
        if not are_numbers or len(self.means) not in (0, len(self.edges) + 1):
            raise ValueError("the means of bins are no numbers")

    def check(self, entries: Array) -> None:
        ids = entries[:, : self.items]
        if ids.size and (ids.min() < 0 or ids.max() >= len(self.vocabulary)):
            raise ValueError("entries hold ids that are no key's")
        if self.weighted and not is_finite(np.ascontiguousarray(entries[:, self.items :]).view(np.float32)):
            raise ValueError("entries hold weights that are not finite")

    def of_columns(self, columns: Sequence[str]) -> ItemsCodec:
        del columns
        return self


# --- fitting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StagedItems:
    """A stage's items on disk, without their keys."""

    rows: int
    number: int  # of the stage in the fit of the vocabulary
    truncated_rows: int
    lengths: SpilledArray | None  # None where each row has one item
    codes: SpilledArray
    weights: SpilledArray | None

    def record(self) -> StepRecord:
        """What restores it; the number of the stage follows from its place."""
        arrays = {"lengths": self.lengths, "codes": self.codes, "weights": self.weights}
        facts = {name: None if array is None else array.facts() for name, array in arrays.items()}
        files = [array.path for array in arrays.values() if array is not None]
        return StepRecord({"rows": self.rows, "truncated_rows": self.truncated_rows, **facts}, files)

    @classmethod
    def from_facts(cls, facts: Facts, number: int, folder: Path) -> StagedItems:
        """The items that a process has left that was killed."""
        lengths, codes, weights = (
            None if facts[name] is None else SpilledArray.from_facts(facts[name], folder)
            for name in ("lengths", "codes", "weights")
        )
        assert codes is not None
        return cls(facts["rows"], number, facts["truncated_rows"], lengths, codes, weights)

    def take(self, rows_per_block: int) -> Iterator[Items]:
        """Read the items; those of rows with one item each in small blocks, which stay in the processor's cache."""
        no_keys = pa.array([], pa.string())
        if self.lengths is None and self.weights is None:
            truncated_rows = self.truncated_rows
            for codes in self.codes.take_blocks(rows_per_block):
                yield Items(np.broadcast_to(np.int32(1), len(codes)), codes, no_keys, None, truncated_rows)
                truncated_rows = 0
            return
        if self.lengths is None:
            lengths = np.broadcast_to(np.int32(1), self.rows)
        else:
            lengths = self.lengths.take().astype(np.int32)
        weights = None if self.weights is None else self.weights.take()
        yield Items(lengths, self.codes.take(), no_keys, weights, self.truncated_rows)


class ItemsFit:
    """Fits an ItemsCodec: the codes of each row are staged, and their keys counted.

    Args:
        workspace: Where codes are staged, and DuckDB.
        name: The beginning of the names of the group's files, and of its table in DuckDB.
        group: The group.
        level_column: The column that tells the levels of keys, if there is one.

    """

    def __init__(self, workspace: Workspace, name: str, group: Group, level_column: LevelColumn | None = None) -> None:
        self.workspace, self.name, self.group = workspace, name, group
        self.given_levels = None if level_column is None else GivenLevels(level_column)
        self.vocabulary_fit = VocabularyFit(workspace.connection, name, workspace.sizes.held_key_bytes)
        self.staged: list[StagedItems] = []
        self.ids_of_keys: list[SpilledArray] = []  # of each stage, where they are on disk once the codec is fitted
        self.most_items = 1  # of a row so far
        self.kind: Kind | None = None  # None for text without a type, as of a CSV
        self.fits = [self]  # this one, and those that share its codec
        self.codec: ItemsCodec | None = None
        self.work = self.rows = 0

    def share(self, owner: CodecFit) -> None:
        assert isinstance(owner, ItemsFit)
        owner.fits.append(self)
        self.vocabulary_fit = owner.vocabulary_fit

    def stage(self, stage: Stage) -> None:
        items = parse_items(stage, self.group)
        if self.given_levels is not None:
            self.given_levels.stage(stage, items)
        self.add(items)
        if self.kind is None and stage.table.typed:
            self.kind = kind_of_keys(stage.column(self.group.columns[0]).type)

    def add(self, items: Items) -> None:
        """Stage the items of some rows."""
        self.work += len(items.codes) + len(items.keys)
        self.rows += len(items.lengths)
        occurrences = _occurrences(items.codes, len(items.keys))
        if self.workspace.steps is not None:
            write_keys(self._path("keys"), items.keys, occurrences)
        number = self.vocabulary_fit.add(items.keys, occurrences)
        self.most_items = max(self.most_items, int(items.lengths.max(initial=0)))
        has_one_item_a_row = items.lengths.size == items.codes.size and bool((items.lengths == 1).all())
        lengths = None
        if not has_one_item_a_row:
            lengths = self._spilled("lengths", items.lengths.astype(np.min_scalar_type(self.most_items)))
        codes = self._spilled("codes", items.codes.astype(np.min_scalar_type(len(items.keys))))
        weights = None if items.weights is None else self._spilled("weights", items.weights)
        self.staged.append(StagedItems(len(items.lengths), number, items.truncated, lengths, codes, weights))

    def _spilled(self, part: str, array: Array) -> SpilledArray:
        return self.workspace.spill(array, self._path(part).name)

    def _path(self, part: str) -> Path:
        """The file of a part of the stage that is worked on."""
        return self.workspace.staging / f"{self.name}_{part}_{len(self.staged)}"

    def record(self) -> StepRecord:
        place, stage = len(self.staged) - 1, self.staged[-1].record()
        keys = self.workspace.staging / f"{self.name}_keys_{place}"
        facts = {"items": stage.facts, "keys": keys.name, "most_items": self.most_items, "kind": self.kind}
        files = [*stage.files, keys]
        if self.given_levels is not None:
            levels = self.workspace.spill(self.given_levels.stages[-1], f"{self.name}_levels_{place}")
            facts["levels"] = levels.facts()
            files.append(levels.path)
        return StepRecord(facts, files)

    def restore(self, stages: Sequence[Facts], *, is_fitted: bool) -> None:
        if is_fitted:
            return
        folder = self.workspace.staging
        for facts in stages:
            keys, occurrences = read_keys(folder / facts["keys"])
            number = self.vocabulary_fit.add(keys, occurrences)
            staged = StagedItems.from_facts(facts["items"], number, folder)
            self.staged.append(staged)
            self.work += staged.codes.shape[0] + len(keys)
            self.rows += staged.rows
            self.most_items, self.kind = facts["most_items"], facts["kind"]
            if self.given_levels is not None:
                self.given_levels.stages.append(SpilledArray.from_facts(facts["levels"], folder).take())

    def record_fitted(self) -> StepRecord:
        self.ids_of_keys = [
            self.workspace.spill(self.vocabulary_fit.ids(stage.number), f"{self.name}_ids_{place}")
            for place, stage in enumerate(self.staged)
        ]
        records = [stage.record() for stage in self.staged]
        facts = {
            "stages": [record.facts for record in records],
            "ids_of_keys": [ids.facts() for ids in self.ids_of_keys],
        }
        return StepRecord(facts, [*(file for record in records for file in record.files), *_paths(self.ids_of_keys)])

    def restore_fitted(self, codec: Codec, facts: Facts) -> None:
        assert isinstance(codec, ItemsCodec)
        self.codec, folder = codec, self.workspace.staging
        self.staged = [StagedItems.from_facts(stage, number, folder) for number, stage in enumerate(facts["stages"])]
        self.ids_of_keys = [SpilledArray.from_facts(ids, folder) for ids in facts["ids_of_keys"]]

    def finish(
        self, edges: tuple[float, ...] = (), kind: Kind | None = None, means: tuple[float, ...] = ()
    ) -> ItemsCodec:
        """The codec; `edges`, `kind` and `means` are those of bins."""
        if self.codec is None:
            codec = self._fitted(edges, kind, means)
            for fit in self.fits:
                fit.codec = codec
        assert self.codec is not None
        return self.codec

    def _fitted(self, edges: tuple[float, ...], kind: Kind | None, means: tuple[float, ...]) -> ItemsCodec:
        spec = self.group.extractor
        assert isinstance(spec, (ItemsSpec, TokensSpec))
        kind_of_keys = shared_kind({fit.group.columns[0]: fit.kind for fit in self.fits})
        is_untyped = kind_of_keys is None and isinstance(spec, ItemsSpec) and not edges
        columns = [[staged.number for staged in fit.staged] for fit in self.fits if fit.staged]  # the stages of each
        columns = columns if len(columns) > 1 else []
        spelling = self.vocabulary_fit.spell(columns) if is_untyped else kind_of_keys or "text"
        max_share = spec.max_share if isinstance(spec, ItemsSpec) else 1.0
        rows = sum(fit.rows for fit in self.fits)
        # rounded before it is cut, as 0.29 * 100 is below 29 in floats
        max_count = int(round(max_share * rows, 6)) if max_share < 1 else None
        vocabulary = self.vocabulary_fit.finish(spec.min_count, spec.max_size, spelling, max_count)
        if self.given_levels is not None:
            self.given_levels.refuse_no_level()
            column, level_stages = self.given_levels.column, self.given_levels.stages
            vocabulary = self.vocabulary_fit.by_levels(vocabulary, level_stages, column.levels)
        is_bag = isinstance(spec, ItemsSpec) and spec.bag
        most_items = max(fit.most_items for fit in self.fits)
        if isinstance(spec, ItemsSpec) and is_bag and not spec.parts:
            most_items = min(most_items, spec.max_items)
        weighted = isinstance(spec, ItemsSpec) and spec.weights is not None
        # New rows may have more items than training rows in a bag. The layer of a text, or of a bag with weights, is
        # built for one width.
        max_items = spec.max_items if isinstance(spec, ItemsSpec) and is_bag and not weighted else most_items
        return ItemsCodec(vocabulary, most_items, max(max_items, most_items), weighted, edges, kind, means)

    def release(self) -> None:
        self.fits = []  # a reference to itself would keep it until the garbage is collected
        self.vocabulary_fit.release()

    def entries(self) -> Iterator[Entries]:
        assert self.codec is not None
        for place, staged in enumerate(self.staged):
            is_kept = bool(self.ids_of_keys)
            ids_of_keys = self.ids_of_keys[place].take() if is_kept else self.vocabulary_fit.ids(staged.number)
            for items in staged.take(self.workspace.sizes.rows_per_block):
                yield self.codec.pack(items, ids_of_keys, self.group)


def _paths(arrays: Sequence[SpilledArray]) -> list[Path]:
    return [array.path for array in arrays]


class BinsFit:
    """Fits an ItemsCodec over the quantile bins of a column of numbers: the numbers are staged."""

    def __init__(self, workspace: Workspace, name: str, group: Group) -> None:
        self.workspace, self.group = workspace, group
        self.path = workspace.staging / f"{name}.npy"
        if workspace.steps is None:  # else `restore` follows, which goes on with the file
            self.numbers_file = self._file()
        self.items_fit = ItemsFit(workspace, name, group)
        self.kind: Kind | None = None
        self.fits = [self]  # this one, and those that share its codec

    def share(self, owner: CodecFit) -> None:
        assert isinstance(owner, BinsFit)
        owner.fits.append(self)
        self.items_fit.share(owner.items_fit)

    def _file(self, kept_rows: int = 0) -> ArrayFile:
        return ArrayFile(self.path, np.float64, 1, self.workspace.sizes.rows_per_piece, kept_rows)

    def record(self) -> StepRecord:
        return StepRecord({"rows": self.numbers_file.rows, "kind": self.kind}, [self.path])

    def restore(self, stages: Sequence[Facts], *, is_fitted: bool) -> None:
        self.numbers_file = self._file(stages[-1]["rows"] if stages and not is_fitted else 0)
        self.kind = stages[-1]["kind"] if stages else None

    def record_fitted(self) -> StepRecord:
        return self.items_fit.record_fitted()

    def restore_fitted(self, codec: Codec, facts: Facts) -> None:
        self.items_fit.restore_fitted(codec, facts)

    @property
    def work(self) -> int:
        """How many numbers are staged."""
        return self.numbers_file.rows

    def stage(self, stage: Stage) -> None:
        numbers, kind = numbers_of(stage, self.group.columns[0], self.kind)
        self.kind = kind if not np.isnan(numbers).all() else self.kind
        self.numbers_file.append(numbers[:, None])

    def finish(self) -> ItemsCodec:
        if self.items_fit.codec is not None:
            return self.items_fit.codec
        assert isinstance(self.group.extractor, ItemsSpec)
        kind = shared_kind({fit.group.columns[0]: fit.kind for fit in self.fits})
        for fit in self.fits:
            fit.numbers_file.close()
        numbers = ColumnFeed([fit.numbers_file for fit in self.fits], 0)
        bins = self.group.extractor.bins or 1
        inner_quantiles = quantiles(self.workspace.connection, numbers, bins + 1)[1:-1]
        edges = tuple((np.unique(inner_quantiles) + 0.0).tolist())  # + 0.0: no edge is -0
        sums, counts = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
        for fit in self.fits:
            for piece in ColumnFeed([fit.numbers_file], 0)():
                fit.items_fit.add(binned(piece, edges))
                present = piece[~np.isnan(piece)]
                bins_of_piece = bins_of(present, edges)
                sums += np.bincount(bins_of_piece, present / MEAN_UNIT, len(sums))
                counts += np.bincount(bins_of_piece, minlength=len(sums))
        with np.errstate(invalid="ignore"):
            means = sums / counts * MEAN_UNIT  # of an empty bin NaN
        return self.items_fit.finish(edges, kind, tuple(means.tolist()))

    def release(self) -> None:
        self.fits = []
        self.items_fit.release()

    def entries(self) -> Iterator[Entries]:
        return self.items_fit.entries()


def _occurrences(codes: Ints, keys: int) -> Counts:
    """How often each key occurs, [keys]; in pieces, as NumPy counts in a copy of 64 bits a code."""
    counts = np.zeros(keys, np.int64)
    codes_per_piece = max(keys, ROWS_PER_PIECE // 4)
    for start in range(0, len(codes), codes_per_piece):
        counts += np.bincount(codes[start : start + codes_per_piece], minlength=keys)
    return counts
