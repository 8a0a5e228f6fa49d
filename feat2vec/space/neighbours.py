"""The nearest training rows of a row, and what they hold of a hidden group.

A space of few dimensions tells what is alike; what rows share to the letter, such as a rare word or a key of three
rows, it blurs. So a run keeps some of its training rows as value ids (`neighbours.npy`), and `complete` asks them, too:

    log p(v | row) = a log p_space(v | row) + sum over j of c_j log(1 + s_j(v | row) / e) - log Z(row)

s_j is the share of the row's 50 nearest training rows (more if the last ones tie) that hold v, each weighted by how
near it is: by the cosine of TF-IDF vectors of keys, words and classes of numbers, by its cube, by exp(cosine / 0.05)
and by exp(cosine / 0.02) of the rows' vectors without the group. e is a quarter of what one of 50 rows says. a and c_j
are fitted to held-out rows (`neighbour_fit`). Mixing in the nearest examples is known from language models (Khandelwal
et al., 2020); here probabilities are multiplied instead of added, which ranked better on nearly every table tried.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from feat2vec.arrays import Array, Float32s, Floats, Int64s, Integers, Ints
from feat2vec.encode.codecs import NumbersCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST
from feat2vec.errors import RESTORE, UserError, in_a_line
from feat2vec.schema.levels import Levels
from feat2vec.space.geometry import Queries, blocks
from feat2vec.writing.digests import check_parts
from feat2vec.writing.files import JsonObject

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Sparse: TypeAlias = "csr_matrix"

NEIGHBOURS_FILE = "neighbours.npy"
NEAREST = 50
TIES = 1e-5  # cosines that differ by less count as equal
CLASSES_OF_NUMBERS = 10
SMALLEST_SHARE = 0.25 / NEAREST  # e
WIDTHS = (0.05, 0.02)  # of the cosines of vectors
FEATURES = 2 + len(WIDTHS)
# The powers of the space and of what the nearest rows say, before any row is seen: about what is fitted on the tables
# of `tools/bench_tables.py`.
EXPECTED = (0.6, 0.1, 0.2, 0.2, 0.2)
SIMILARITIES_IN_MEMORY = 1 << 21  # at a time: 8 MB, which the processor's caches hold
FREQUENT_SHARE = 0.05  # of the kept rows, which have an item
PARTS_OF_ROW = 512  # of similarities, whose maxima are compared first
MOST_SORTED = 4 * NEAREST  # similarities of a row that are as large as the last of these maxima


@dataclass(frozen=True)
class ValueVectors:
    """The vectors of rows as those of the distinct values of their groups.

    Args:
        values: The vectors of the distinct values of each group, `side_by_side`: [values, E].
        places: The value of each row, by group: [rows].

    """

    values: Mapping[str, Float32s]
    places: Mapping[str, Int64s]

    def weighted(self, weights: Mapping[str, float], rows: Integers) -> Float32s:
        """The weighted sums of the vectors of some rows, [rows, E]."""
        total: Float32s | None = None
        for name, weight in weights.items():
            of_rows = (self.values[name] * np.float32(weight))[self.places[name][rows]]
            total = of_rows if total is None else np.add(total, of_rows, out=total)
        assert total is not None
        return total


@dataclass(frozen=True)
class KeptRows:
    """Training rows that a run keeps.

    Args:
        encoder: The encoder, which has their values.
        value_ids: [rows, groups], -1 where a group is missing.
        vectors: Those of their values, where many groups are asked for; otherwise they are made when needed.

    """

    encoder: Encoder
    value_ids: Ints
    vectors: ValueVectors | None = None

    def having(self, group: str) -> Int64s:
        """The places of the rows that have a group."""
        return np.flatnonzero(self.value_ids[:, list(self.encoder.codecs).index(group)] >= 0)

    def entries(self, group: str, places: Integers) -> Array:
        """The entries of a group in some of the rows, [places, width]."""
        return self.entries_of_values(group, self.value_ids[places, list(self.encoder.codecs).index(group)])

    def entries_of_values(self, group: str, ids: Integers) -> Array:
        """The entries of some values of a group, [ids, width]; -1 is a missing one."""
        values = self.encoder.values[group].entries
        taken = np.array(values[np.maximum(ids, 0)]) if len(values) else np.zeros((len(ids), values.shape[1]), "f4")
        taken[ids < 0] = np.nan if taken.dtype == np.float32 else 0
        return taken


def kept_rows_bytes(value_ids: Ints) -> bytes:
    """What `neighbours.npy` holds."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(value_ids, np.int32), allow_pickle=False)
    return buffer.getvalue()


def read_kept_rows(folder: Path, manifest: JsonObject, encoder: Encoder) -> KeptRows | None:
    """The rows that a run has kept; None if it has none.

    Args:
        folder: The run's folder.
        manifest: Its manifest, which has the file's digest.
        encoder: Its encoder.

    Raises:
        UserError: The file is not as training wrote it.

    """
    path = folder / NEIGHBOURS_FILE
    if not path.exists():
        return None
    check_parts(folder, manifest, [NEIGHBOURS_FILE])
    try:
        value_ids = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
        if value_ids.dtype != np.int32 or value_ids.ndim != 2 or value_ids.shape[1] != len(encoder.codecs):
            raise ValueError(f"{value_ids.dtype} {value_ids.shape}")
        sizes = np.array([len(encoder.values[name].counts) for name in encoder.codecs])
        if len(value_ids) and ((value_ids < -1).any() or (value_ids.max(axis=0) >= sizes).any()):
            raise ValueError("a value that the run does not have")
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise UserError(f"{path}: cannot be read ({in_a_line(error)}); {RESTORE}") from None
    return KeptRows(encoder, value_ids)


# --- rows as TF-IDF vectors -------------------------------------------------------------------------------------------


class RowItems:
    """Rows as sparse TF-IDF vectors of length 1, of their keys, their words and the classes of their numbers.

    Args:
        encoder: The encoder.
        given: The groups that are looked at.
        entries: Rows that the classes of numbers and the frequencies are taken of, [rows, width] of each group.

    """

    def __init__(self, encoder: Encoder, given: Sequence[str], entries: Mapping[str, Array]) -> None:
        self.encoder = encoder
        self.edges: dict[str, list[Floats]] = {}  # of a group's numbers, by column
        self.starts: dict[str, int] = {}  # the first item of a group
        self.size = 0
        for name in given:
            codec, of_group = encoder.codecs[name], entries[name]
            self.starts[name] = self.size
            if isinstance(codec, NumbersCodec):
                self.edges[name] = [_class_edges(column) for column in of_group.T]
                self.size += CLASSES_OF_NUMBERS * of_group.shape[1]
            elif codec.vocabulary is not None:
                self.size += len(codec.vocabulary.keys) + FIRST
        counts = self._counts(entries)
        frequency = np.bincount(counts.indices, minlength=max(self.size, 1))  # the rows that have an item
        self.idf: Floats = np.log((1 + counts.shape[0]) / (1 + frequency)) + 1

    def vectors(self, entries: Mapping[str, Array]) -> Sparse:
        """TF-IDF vectors, [rows, items]."""
        counts = self._counts(entries)
        counts.data *= self.idf[counts.indices]
        squares = np.asarray(counts.multiply(counts).sum(axis=1)).ravel()
        lengths = np.sqrt(np.maximum(squares, 1e-30))
        counts.data /= np.repeat(lengths, np.diff(counts.indptr))
        return counts.astype(np.float32)

    def _counts(self, entries: Mapping[str, Array]) -> Sparse:
        """How often each row has an item, [rows, items]."""
        from scipy import sparse

        rows_of_items, items = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        total = 0
        for name, start in self.starts.items():
            total = len(entries[name])
            rows, of_rows = self._items_of_group(name, entries[name])
            rows_of_items.append(rows)
            items.append(of_rows + start)
        all_rows, all_items = np.concatenate(rows_of_items), np.concatenate(items)
        shape = (total, max(self.size, 1))
        counts = sparse.csr_matrix((np.ones(len(all_rows)), (all_rows, all_items)), shape=shape)
        counts.sum_duplicates()
        return counts

    def _items_of_group(self, group: str, entries: Array) -> tuple[Int64s, Int64s]:
        """The row of each item, and the item, counted from the group's first."""
        if group in self.edges:
            classes = np.stack(
                [np.searchsorted(edges, column) for edges, column in zip(self.edges[group], entries.T, strict=True)],
                axis=1,
            )  # [rows, columns]
            rows, columns = np.nonzero(~np.isnan(entries))
            return rows, classes[rows, columns] + columns * CLASSES_OF_NUMBERS
        codec = self.encoder.codecs[group]
        if codec.vocabulary is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        ids = _ids(codec, entries)
        rows, columns = np.nonzero(ids >= FIRST)
        return rows, ids[rows, columns].astype(np.int64)


def _class_edges(numbers: Array) -> Floats:
    """The numbers between classes of about as many rows each, [CLASSES_OF_NUMBERS - 1]."""
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        return np.zeros(CLASSES_OF_NUMBERS - 1)
    shares = np.arange(1, CLASSES_OF_NUMBERS) / CLASSES_OF_NUMBERS
    return np.asarray(np.quantile(present, shares), np.float64)


def _ids(codec: object, entries: Array) -> Array:
    """The ids of entries, without weights: [rows, items]."""
    return entries[:, : entries.shape[1] // 2] if getattr(codec, "weighted", False) else entries


# --- what the nearest rows hold ---------------------------------------------------------------------------------------


class Neighbours:
    """The kept rows that have a group, as they are looked for.

    Args:
        kept: The rows that the run keeps.
        group: The hidden group, of keys.
        given: The groups that it is found by.

    """

    def __init__(self, kept: KeptRows, group: str, given: Sequence[str]) -> None:
        from scipy import sparse

        self.kept, self.places = kept, kept.having(group)
        entries = {name: kept.entries(name, self.places) for name in given}
        self.row_items = RowItems(kept.encoder, given, entries)
        self.items = self.row_items.vectors(entries)  # [kept, items]
        codec = kept.encoder.codecs[group]
        assert codec.vocabulary is not None
        ids = _ids(codec, kept.entries(group, self.places))
        rows, columns = np.nonzero(ids >= FIRST)
        shape = (len(ids), len(codec.vocabulary.keys))
        held = (np.ones(len(rows)), (rows, ids[rows, columns].astype(np.int64) - FIRST))
        self.values = sparse.csr_matrix(held, shape=shape, dtype=np.float32)  # [kept, candidates]

    def evidence(self, items: Sparse, vectors: Float32s, kept_vectors: Float32s) -> list[Sparse]:
        """What the nearest rows say of each candidate: log(1 + s_j / e), 0 where they say nothing.

        Args:
            items: TF-IDF vectors of rows, [rows, items].
            vectors: The rows' vectors without the group, of length 1: [rows, E].
            kept_vectors: The same of the kept rows, [kept, E].

        Returns:
            A matrix [rows, candidates] for each way to weigh them.

        """
        return [*self.literal_evidence(items), *self.vector_evidence(vectors, kept_vectors)]

    def literal_evidence(self, items: Sparse) -> list[Sparse]:
        """What the rows say whose TF-IDF vectors are nearest, [rows, candidates] in each way to weigh them."""
        kept = self.items_of_kept
        of_frequent = items[:, kept.frequent].toarray()  # [rows, frequent]

        def cosines(block: slice) -> Float32s:
            products: Float32s = (items[block] @ kept.rare).toarray()
            products += of_frequent[block] @ kept.of_frequent
            return products

        nearest = self._nearest_of(items.shape[0], cosines)
        weights = np.maximum(nearest.similarities, 0)
        return self._shares(items.shape[0], nearest, [weights, weights**3])

    @cached_property
    def items_of_kept(self) -> ItemsOfKept:
        """The TF-IDF vectors of the kept rows, item by item."""
        rows_of_item = np.bincount(self.items.indices, minlength=self.items.shape[1])
        frequent = np.flatnonzero(rows_of_item > FREQUENT_SHARE * len(self.places))
        rare = self.items.copy()
        rare.data[np.isin(rare.indices, frequent)] = 0
        rare.eliminate_zeros()
        of_frequent = np.ascontiguousarray(self.items[:, frequent].toarray().T)
        return ItemsOfKept(rare.T.tocsr(), frequent, of_frequent)

    def vector_evidence(self, vectors: Float32s, kept_vectors: Float32s) -> list[Sparse]:
        """What the rows say whose vectors are nearest, [rows, candidates] in each way to weigh them."""
        nearest = self._nearest_of(len(vectors), lambda block: vectors[block] @ kept_vectors.T)
        starts = np.flatnonzero(np.diff(nearest.rows, prepend=-1))
        largest = np.maximum.reduceat(nearest.similarities, starts) if len(starts) else nearest.similarities
        distances = nearest.similarities - largest[nearest.rows]
        return self._shares(len(vectors), nearest, [np.exp(distances / width) for width in WIDTHS])

    def _nearest_of(self, rows: int, similarities_of: Callable[[slice], Array]) -> Nearest:
        """The kept rows nearest to each of so many rows, whose similarities are computed a block of rows at a time."""
        no_places = np.zeros(0, np.int64)
        parts = [Nearest(no_places, no_places, np.zeros(0, np.float32))]
        for block in blocks(rows, max(SIMILARITIES_IN_MEMORY // max(len(self.places), 1), 1)):
            of_block = nearest_columns(np.asarray(similarities_of(block), np.float32))
            parts.append(of_block._replace(rows=of_block.rows + block.start))
        nearest_rows, columns, similarities = (np.concatenate(of_parts) for of_parts in zip(*parts, strict=True))
        return Nearest(nearest_rows, columns, similarities)

    def _shares(self, rows: int, nearest: Nearest, weighings: Sequence[Array]) -> list[Sparse]:
        """log(1 + s / e) of the candidates [rows, candidates], for each way to weigh the nearest rows, [nearest]."""
        from scipy import sparse

        matrices = []
        for weights in weighings:
            totals = np.maximum(np.bincount(nearest.rows, weights, minlength=rows), 1e-12)
            of_kept = np.asarray(weights / totals[nearest.rows], np.float32)
            shape = (rows, len(self.places))
            shares = sparse.csr_matrix((of_kept, (nearest.rows, nearest.columns)), shape=shape) @ self.values
            shares.data = np.log1p(shares.data / np.float32(SMALLEST_SHARE))
            matrices.append(shares)
        return matrices


class ItemsOfKept(NamedTuple):
    """TF-IDF vectors of kept rows, item by item.

    Products with the few items that many rows have take less time as matrices that are not sparse.

    Args:
        rare: The other items, [items, kept].
        frequent: The items that many rows have, [frequent].
        of_frequent: Those, [frequent, kept].

    """

    rare: Sparse
    frequent: Int64s
    of_frequent: Float32s


class Nearest(NamedTuple):
    """The kept rows that are nearest to rows: row by row, each in the order of the kept ones.

    Args:
        rows: The row that each is near to, [nearest].
        columns: The kept row, [nearest].
        similarities: How near it is, [nearest].

    """

    rows: Integers
    columns: Integers
    similarities: Float32s


def nearest_columns(similarities: Float32s, count: int = NEAREST) -> Nearest:
    """The largest of each row [rows, columns]; all that are as large as the last of so many count, too."""
    columns = similarities.shape[1]
    if columns > count:
        bounds = nth_largest(similarities, count)[:, None] - np.float32(TIES)
        places = np.flatnonzero(similarities >= bounds)
    else:
        places = np.arange(similarities.size)
    rows = places // max(columns, 1)
    return Nearest(rows, places - rows * columns, similarities.ravel()[places])


def nth_largest(numbers: Float32s, n: int) -> Float32s:
    """The n-th largest number of each row [rows, columns]: [rows].

    It is no less than the n-th largest among the maxima of parts of the row, which are quickly made. The few numbers
    that are as large as that are sorted.
    """
    columns = numbers.shape[1]
    if columns < 2 * PARTS_OF_ROW or n > PARTS_OF_ROW:
        return np.asarray(np.partition(numbers, -n, axis=1)[:, -n])
    in_parts = columns - columns % PARTS_OF_ROW
    maxima = numbers[:, :in_parts].reshape(len(numbers), -1, PARTS_OF_ROW).max(axis=1)  # [rows, parts]
    rest = maxima[:, : columns - in_parts]
    np.maximum(rest, numbers[:, in_parts:], out=rest)
    bounds = np.partition(maxima, -n, axis=1)[:, -n]
    places = np.flatnonzero(numbers >= bounds[:, None])
    rows = places // columns
    counts = np.bincount(rows, minlength=len(numbers))
    place_in_row = np.arange(len(places)) - (np.cumsum(counts) - counts)[rows]
    large = np.full((len(numbers), MOST_SORTED), -np.inf, np.float32)
    is_sorted = (counts <= MOST_SORTED)[rows]
    large[rows[is_sorted], place_in_row[is_sorted]] = numbers.ravel()[places[is_sorted]]
    nth: Float32s = np.partition(large, -n, axis=1)[:, -n]
    with_ties = np.flatnonzero(counts > MOST_SORTED)  # such as zeros of rows that share hardly any item
    nth[with_ties] = np.partition(numbers[with_ties], -n, axis=1)[:, -n]
    return nth


def stacked(parts: Sequence[Sparse | None]) -> Sparse | None:
    """Matrices below each other; None if there is one that is not there."""
    from scipy import sparse

    present = [part for part in parts if part is not None]
    return sparse.vstack(present, format="csr") if present and len(present) == len(parts) else None


def unit_rows(vectors: Float32s) -> Float32s:
    """Vectors [rows, E] of length 1; those of nothing stay 0."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return np.asarray(vectors / np.maximum(lengths, np.float32(1e-12))[:, None], np.float32)


def side_by_side(queries: Queries, levels: Levels) -> Float32s:
    """The free and the dependent parts of each level: [rows, E]."""
    if levels.submodels == 1:
        return np.concatenate([free + rest for free, rest in zip(*queries, strict=True)], axis=1)
    return np.concatenate([*queries.free, *queries.dependent], axis=1)
