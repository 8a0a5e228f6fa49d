"""Items of rows, keys or tokens: read from a stage, cut, and laid out as padded rows of ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Ints
from feat2vec.encode.arrays_on_disk import is_finite
from feat2vec.encode.codecs.bins import binned
from feat2vec.encode.codecs.entries import Entries, Facts, Tally
from feat2vec.encode.vocabulary import PADDING, UNSEEN, Vocabulary, is_count
from feat2vec.schema.extractor_options import ExtractorSpec, ItemsSpec, TokensSpec
from feat2vec.schema.options import Group
from feat2vec.table.keys import Items, items_of, tokens_of
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage
from feat2vec.table.types import Kind

LARGEST_ID = np.iinfo(np.int32).max


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
