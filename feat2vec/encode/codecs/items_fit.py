"""`ItemsFit`: fits an `ItemsCodec`. The items of each stage are put aside, and their keys counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Ints
from feat2vec.encode.arrays_on_disk import ROWS_PER_PIECE, SpilledArray
from feat2vec.encode.codecs.entries import Codec, CodecFit, Entries, Facts
from feat2vec.encode.codecs.given_levels import GivenLevels, LevelColumn
from feat2vec.encode.codecs.items import ItemsCodec, parse_items
from feat2vec.encode.codecs.numbers import shared_kind
from feat2vec.encode.finished_steps import StepRecord
from feat2vec.encode.vocabulary import Counts, read_keys, write_keys
from feat2vec.encode.vocabulary_fit import VocabularyFit
from feat2vec.encode.workspace import Workspace
from feat2vec.schema.extractor_options import ItemsSpec, TokensSpec
from feat2vec.schema.options import Group
from feat2vec.table.keys import Items
from feat2vec.table.table import Stage
from feat2vec.table.types import Kind, kind_of_keys


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
        held_bytes = workspace.sizes.held_key_bytes
        self.vocabulary_fit = VocabularyFit(workspace.connection, name, workspace.staging, held_bytes)
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


def _occurrences(codes: Ints, keys: int) -> Counts:
    """How often each key occurs, [keys]; in pieces, as NumPy counts in a copy of 64 bits a code."""
    counts = np.zeros(keys, np.int64)
    codes_per_piece = max(keys, ROWS_PER_PIECE // 4)
    for start in range(0, len(codes), codes_per_piece):
        counts += np.bincount(codes[start : start + codes_per_piece], minlength=keys)
    return counts
