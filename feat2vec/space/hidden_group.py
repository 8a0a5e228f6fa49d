"""The candidates of a group that is completed: their vectors, counts and names, and the numbers that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Float32s, Floats, Int64s, Integers, as_numbers
from feat2vec.encode.codecs import Codec, ItemsCodec, NumbersCodec
from feat2vec.encode.codecs.bins import bin_names
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.entry_text import roundest_numbers, spell
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.objectives.formulas import UNIT_EPSILON
from feat2vec.space.geometry import Candidates, Model, candidates, candidates_of_entries, linear_terms

MOST_NUMBERS = 2000  # candidates of a group of numbers; of more distinct ones as many quantiles


@dataclass(frozen=True)
class NumberColumn:
    """What candidates are as numbers of one column.

    Args:
        column: Its name.
        is_date: Whether the numbers are days since 1970.
        low: The lower end of the numbers that a candidate stands for, [candidates]; NaN where it has none.
        high: The upper end.
        mean: Their mean.

    """

    column: str
    is_date: bool
    low: Floats
    high: Floats
    mean: Floats


@dataclass(frozen=True)
class HiddenGroup:
    """The candidates of a group.

    Args:
        encoder: That of the run.
        name: The group.
        candidates: Their vectors as scores meet them: of length 1 if the objective says so.
        counts: How often each occurs in the training rows, [candidates].
        linear: What each adds to a score by itself, [candidates].
        entries: Their entries [candidates, width], where they are no keys.

    """

    encoder: Encoder
    name: str
    candidates: Candidates
    counts: Int64s
    linear: Float32s
    entries: Array | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def codec(self) -> Codec:
        """What encodes the group."""
        return self.encoder.codecs[self.name]

    def names(self, places: Sequence[int] | Integers) -> list[str]:
        """What some candidates are called."""
        numbers = np.asarray(places, np.int64)
        if self.entries is None:
            assert isinstance(self.codec, ItemsCodec)
            names: list[str] = self.codec.vocabulary.keys.take(pa.array(numbers)).to_pylist()
            return names
        group = self.encoder.schema.groups[self.name]
        spelled: list[str] = spell(self.codec, group, np.asarray(self.entries[numbers]), numbers).to_pylist()
        return spelled

    @cached_property
    def columns(self) -> list[NumberColumn]:
        """The columns whose numbers the candidates are; none if they are no numbers."""
        codec, columns = self.codec, self.encoder.schema.groups[self.name].columns
        if isinstance(codec, NumbersCodec) and self.entries is not None:
            exact = codec.numbers(self.entries)  # [candidates, columns]
            number_columns = []
            for i, column in enumerate(codec.columns):
                rounded = roundest_numbers(column, np.asarray(self.entries[:, i]))
                numbers = np.where(np.isnan(exact[:, i]), np.nan, rounded)
                number_columns.append(NumberColumn(column.column, column.kind == "date", numbers, numbers, numbers))
            return number_columns
        if isinstance(codec, ItemsCodec) and self.has_bins:
            bins = np.array([bin_names(codec.edges).index(key) for key in codec.vocabulary.keys.to_pylist()])
            ends = [parts[bins] for parts in bin_ends(codec.edges, codec.means)]
            return [NumberColumn(columns[0], codec.kind == "date", *ends)]
        return []

    @property
    def has_bins(self) -> bool:
        """Whether the candidates are bins of numbers."""
        spec = self.encoder.schema.groups[self.name].extractor
        return isinstance(spec, ItemsSpec) and bool(spec.bins)


def read_hidden_group(
    model: Model, encoder: Encoder, group: str, most_numbers: int | None = MOST_NUMBERS
) -> HiddenGroup:
    """The candidates of a group.

    Args:
        model: The model, in memory or in its file.
        encoder: That of the run.
        group: The group.
        most_numbers: How many candidates a group of numbers has at most; None for all distinct ones.

    Returns:
        Its known keys, or the distinct values of the training rows; of many numbers 2,000 quantiles.

    """
    if model.is_lookup(group):
        vectors = _as_scored(model, candidates(model, encoder, group))
        return HiddenGroup(encoder, group, vectors, encoder.key_counts(group), linear_terms(model, encoder, group))
    values, codec = encoder.values[group], encoder.codecs[group]
    entries, counts = values.entries, np.asarray(values.counts, np.int64)
    if isinstance(codec, NumbersCodec) and most_numbers is not None and len(entries) > most_numbers:
        chosen, counts = quantile_values(codec.numbers(np.asarray(entries)), counts, most_numbers)
        entries = np.asarray(entries[chosen])
    vectors = _as_scored(model, candidates_of_entries(model, group, entries))
    return HiddenGroup(encoder, group, vectors, counts, _linear_of_entries(model, group, entries), entries)


def has_quantiles(encoder: Encoder, group: str) -> bool:
    """Whether what a group is completed with is a distribution of numbers that are no bins."""
    return isinstance(encoder.codecs[group], NumbersCodec)


def quantile_values(numbers: Floats, counts: Int64s, most: int) -> tuple[Integers, Int64s]:
    """Values that stand for all: the middle ones of so many parts of the rows, in the order of their numbers.

    Args:
        numbers: The numbers of each value [values, columns].
        counts: How many rows have each, [values].
        most: How many parts.

    Returns:
        The places of the values that are kept, and how many rows each stands for.

    """
    order = np.lexsort(numbers.T[::-1])  # by the first column, then by the next
    rows_up_to = np.cumsum(counts[order])
    part_of_value = np.minimum((rows_up_to - counts[order] / 2) * most / rows_up_to[-1], most - 1).astype(np.int64)
    first_of_part = np.flatnonzero(np.diff(part_of_value, prepend=-1))
    totals = np.add.reduceat(counts[order], first_of_part)
    middle_rows = np.cumsum(totals) - totals / 2
    return order[np.searchsorted(rows_up_to, middle_rows)], totals


def bin_ends(edges: Sequence[float], means: Sequence[float] = ()) -> tuple[Floats, Floats, Floats]:
    """The lower end, the upper end and the mean of each bin, all of them finite.

    Args:
        edges: The numbers between bins.
        means: The mean of the training numbers in each bin; NaN, or nothing at all, where it is not known. Without
            them it is the middle, and the first and the last bin are as wide as their neighbours.

    Returns:
        Three arrays [bins].

    """
    if not len(edges):
        middle = np.array(means[:1] or [0.0])
        return middle, middle, middle
    inner = np.array(edges, np.float64)
    widths = np.diff(inner) if len(inner) > 1 else np.ones(1)
    low = np.concatenate([inner[:1] - widths[:1], inner])
    high = np.concatenate([inner, inner[-1:] + widths[-1:]])
    mean = (low + high) / 2
    if len(means) == len(mean):
        known = np.array(means, np.float64)
        mean = np.where(np.isnan(known), mean, known)
        low[0] = min(2 * mean[0] - inner[0], inner[0])  # as far on the other side of the mean
        high[-1] = max(2 * mean[-1] - inner[-1], inner[-1])
    return low, high, mean


def _as_scored(model: Model, values: Candidates) -> Candidates:
    """Vectors of length 1 at each level, if the objective scores such."""
    if not model.schema.objective.unit_candidates:
        return values
    tables = []
    for table in values.tables:
        squares = np.einsum("ij,ij->i", table, table)
        tables.append(table / np.sqrt(np.maximum(squares, np.float32(UNIT_EPSILON)))[:, None])
    return Candidates(tables)


def _linear_of_entries(model: Model, group: str, entries: Array) -> Float32s:
    if not model.schema.model.bias:
        return np.zeros(len(entries), np.float32)
    import tensorflow as tf

    terms = model.model_of_group(group).vectors(group, tf.convert_to_tensor(np.asarray(entries))).linear
    return np.asarray(as_numbers(terms), np.float32)
