"""How probable each candidate of a hidden group is beside the rest of a row; the formula is that of `calibration`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from feat2vec.arrays import Array, Bools, Float32s, Floats
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.time_order import are_of_new_times
from feat2vec.errors import UserError, listed, suggest
from feat2vec.schema.options import Schema
from feat2vec.space.calibration import GroupCalibration, default_calibration
from feat2vec.space.geometry import Model, Queries, Rows, blocks, dense, extract_groups, known, similarities
from feat2vec.space.hidden_group import MOST_NUMBERS, HiddenGroup, read_hidden_group
from feat2vec.space.neighbours import EXPECTED, FEATURES, KeptRows, Neighbours, Sparse, side_by_side, stacked, unit_rows
from feat2vec.table.table import Stage

SCORES_IN_MEMORY = 1 << 19  # probabilities that are computed at a time: 4 MB
LOGITS_AT_ONCE = 1 << 17  # which the caches of a core hold
ROWS_AT_ONCE = 4096  # rows whose vectors are made at a time
STAGE_BYTES = 16 << 20  # of rows that are encoded at a time
CANDIDATES_AT_ONCE = 1 << 16  # whose priors are computed at a time


class RowQueries(NamedTuple):
    """What candidates are found by in some rows."""

    sums: Queries  # the weighted sums of the rows' vectors
    items: Sparse | None  # TF-IDF vectors of the rows [rows, items], where the nearest training rows are asked
    are_later: Bools | None = None  # [rows], of a time that training has not seen, where other numbers are for those
    evidence: Sequence[Sparse] | None = None  # what the nearest rows say [rows, candidates], where it is known already

    def take(self, rows: Rows) -> RowQueries:
        """Those of some of the rows."""
        items = None if self.items is None else self.items[rows]
        evidence = None if self.evidence is None else [matrix[rows] for matrix in self.evidence]
        are_later = None if self.are_later is None else self.are_later[rows]
        return RowQueries(self.sums.take(rows), items, are_later, evidence)


class CompletedRows(NamedTuple):
    """Consecutive rows, and how probable each candidate is in them."""

    stage: Stage
    rows: slice  # of the stage
    log_probabilities: Floats  # [rows, candidates]
    findable: Bools  # [rows], whether anything is known that the group is found by


class _QueryRows(NamedTuple):
    """Consecutive rows and the weighted sums of their vectors."""

    stage: Stage
    rows: slice  # of the stage
    queries: RowQueries
    findable: Bools  # [rows]


class Completer:
    """The probabilities of a group's candidates.

    Args:
        encoder: The run's encoder, for rows.
        model: The run's model, in memory or in its file.
        group: The group that is hidden.
        calibration: The numbers of the group; those of the objective without them.
        given: The groups that it is found by; by default all that share no column with it.
        most_numbers: How many candidates a group of numbers has at most; None for all distinct ones.
        kept_rows: Training rows, the nearest of which are asked as the calibration says.

    Raises:
        UserError: The group is unknown, or the run predicts a target instead.

    >>> completer = Completer(run.fitted, run.model, "director")
    >>> completer.given, len(completer.hidden)
    (['genre', 'year'], 3)

    """

    def __init__(
        self,
        encoder: Encoder,
        model: Model,
        group: str,
        calibration: GroupCalibration | None = None,
        given: Sequence[str] | None = None,
        most_numbers: int | None = MOST_NUMBERS,
        kept_rows: KeptRows | None = None,
    ) -> None:
        check_completed_group(encoder.schema, group)
        self.encoder, self.model, self.group = encoder, model, group
        self.is_calibrated = calibration is not None  # to held-out rows
        if calibration is None:  # the rows that the run has kept are asked all the same
            calibration = replace(default_calibration(encoder, group), neighbours=() if kept_rows is None else EXPECTED)
        self.calibration = calibration
        self.given = groups_beside(encoder.schema, group) if given is None else list(given)
        self.hidden: HiddenGroup = read_hidden_group(model, encoder, group, most_numbers)
        self.scale = 1 / encoder.schema.objective.score_scale
        self.kept_rows = kept_rows

    @cached_property
    def prior(self) -> Floats:
        """What the candidates' scores have beside products, [candidates]."""
        return self._prior_of(np.float64)

    @cached_property
    def short_prior(self) -> Float32s:
        """The same as `scores` adds it, [candidates]; of millions of candidates no other array is made."""
        return self._prior_of(np.float32)

    def _prior_of(self, dtype: type[np.floating[Any]]) -> Array:
        hidden, prior = self.hidden, np.empty(len(self.hidden), dtype)
        is_shared = len(self.encoder.schema.sharing(self.group)) > 1
        for block in blocks(len(prior), CANDIDATES_AT_ONCE):  # in float64, rounded once
            counts = hidden.counts[block]
            of_linear_terms = self.scale * hidden.linear[block].astype(np.float64)
            prior[block] = of_linear_terms + self.calibration.popularity * np.log(counts + 1.0)
            if is_shared:  # keys that stand in the columns of other groups alone
                prior[block][counts == 0] = -np.inf
        return prior

    def with_numbers(self, calibration: GroupCalibration) -> Completer:
        """The completer with other numbers; what it has read of the model and of the kept rows is shared."""
        completer = copy(self)
        completer.calibration = calibration
        for name in ("prior", "short_prior", "kept_vectors", "of_later_rows"):  # these follow from the numbers
            completer.__dict__.pop(name, None)
        return completer

    @cached_property
    def of_later_rows(self) -> Completer | None:
        """What completes rows of a time that training has not seen; None if they are completed as the others."""
        later = self.calibration.later
        if later is None or self.encoder.schema.training.time not in self.given:
            return None
        _ = self.neighbours  # which the other one has, too
        return self.with_numbers(later)

    def queries(
        self,
        entries: Mapping[str, Array],
        vectors: Mapping[str, Queries] | None = None,
        evidence: Sequence[Sparse] | None = None,
    ) -> RowQueries:
        """What candidates are found by in rows.

        Args:
            entries: Entries [rows, width] of the groups.
            vectors: The vectors of these entries by group; by default they are made.
            evidence: What the nearest training rows say of the rows; by default they are looked for.

        Returns:
            The weighted sums of the vectors, and TF-IDF vectors where the nearest training rows are asked.

        """
        if vectors is None:
            vectors = extract_groups(self.model, {name: entries[name] for name in self.given})
        sums, are_later, time = self.weighted(vectors), None, self.encoder.schema.training.time
        if self.of_later_rows is not None and time is not None:
            are_later = are_of_new_times(self.encoder, time, entries[time])
            rows = np.flatnonzero(are_later)
            self.of_later_rows.weighted({name: vectors[name].take(rows) for name in self.given}).put_into(sums, rows)
        if evidence is not None:
            return RowQueries(sums, None, are_later, evidence)
        items = None if self.neighbours is None else self.neighbours.row_items.vectors(entries)
        return RowQueries(sums, items, are_later)

    def weighted(self, vectors: Mapping[str, Queries]) -> Queries:
        """The weighted sums of the vectors of rows, given those of the groups."""
        total: Queries | None = None
        for name, weight in self.weights.items():
            weighted = vectors[name].times(weight)
            total = weighted if total is None else total.plus(weighted)
        assert total is not None
        return total

    @property
    def weights(self) -> dict[str, float]:
        """What the vectors of the given groups are multiplied by."""
        return {name: self.scale * self.calibration.weight(name) for name in self.given}

    def products(self, queries: Queries) -> Float32s:
        """The dot products of queries with the candidates, [rows, candidates]."""
        return similarities(queries, self.hidden.candidates, "dot")

    def scores(self, queries: RowQueries) -> Float32s:
        """What ranks the candidates of rows: log p and a number for each row, [rows, candidates]."""
        return self._scores(queries, np.float32)

    def log_probabilities(self, queries: RowQueries) -> Floats:
        """Log p(candidate | row), [rows, candidates]."""
        return log_softmax(self._scores(queries, np.float64))

    def _scores(self, queries: RowQueries, dtype: type[np.floating[Any]]) -> Array:
        """Log p and a number for each row, [rows, candidates]."""
        are_later = queries.are_later
        if are_later is None or self.of_later_rows is None or not are_later.any():
            return self._scores_of_time(queries, dtype)
        scores = np.empty((len(are_later), len(self.hidden)), dtype)
        for completer, rows in ((self, ~are_later), (self.of_later_rows, are_later)):
            if rows.any():
                scores[rows] = completer._scores_of_time(queries.take(np.flatnonzero(rows)), dtype)
        return scores

    def _scores_of_time(self, queries: RowQueries, dtype: type[np.floating[Any]]) -> Array:
        """The same by the numbers of this completer, whatever the rows' time."""
        scores: Array = self.products(queries.sums).astype(dtype, copy=False)
        scores += self.short_prior if scores.dtype == np.float32 else self.prior
        self.add_evidence(scores, queries)
        return scores

    # --- the nearest training rows ------------------------------------------------------------------------------------

    @cached_property
    def neighbours(self) -> Neighbours | None:
        """The kept rows as they are looked for; None if they are not asked."""
        has_powers = len(self.calibration.neighbours) == 1 + FEATURES
        if self.kept_rows is None or not has_powers or self.hidden.entries is not None:
            return None
        neighbours = Neighbours(self.kept_rows, self.group, self.given)
        return neighbours if len(neighbours.places) else None

    @cached_property
    def kept_vectors(self) -> Float32s:
        """The weighted sums of the kept rows' vectors, of length 1: [kept, E]."""
        assert self.neighbours is not None
        return self.vectors_of_kept(self.neighbours)

    def vectors_of_kept(self, neighbours: Neighbours) -> Float32s:
        """The weighted sums of the vectors of kept rows, of length 1: [kept, E]."""
        kept, parts = neighbours.kept, []
        levels = self.encoder.schema.model.levels
        if kept.vectors is not None:
            return unit_rows(kept.vectors.weighted(self.weights, neighbours.places))
        for block in blocks(len(neighbours.places), ROWS_AT_ONCE):
            entries = {name: kept.entries(name, neighbours.places[block]) for name in self.given}
            parts.append(unit_rows(side_by_side(self.weighted(extract_groups(self.model, entries)), levels)))
        return np.concatenate(parts)

    def add_evidence(self, scores: Array, queries: RowQueries) -> None:
        """Multiply probabilities by powers of what the nearest rows say, given their logs [rows, candidates]."""
        evidence = queries.evidence
        if evidence is None:
            if self.neighbours is None:
                return
            assert queries.items is not None
            vectors = unit_rows(side_by_side(queries.sums, self.encoder.schema.model.levels))
            evidence = self.neighbours.evidence(queries.items, vectors, self.kept_vectors)
        of_space, *of_neighbours = self.calibration.neighbours
        with np.errstate(invalid="ignore"):
            scores *= of_space
        for power, matrix in zip(of_neighbours, evidence, strict=True):
            if power:
                add_sparse(scores, matrix, power)

    def batches(
        self, source: object, kept_columns: Sequence[str] = (), scores_in_memory: int = SCORES_IN_MEMORY
    ) -> Iterator[CompletedRows]:
        """The rows of any table in batches, in their order, whatever they hold of the group itself.

        Args:
            source: The table.
            kept_columns: Columns of the table that the stages hold in addition.
            scores_in_memory: How many probabilities a batch has, at most or for one row.

        Yields:
            The batches.

        Raises:
            UserError: The table cannot be read or encoded.

        """
        for stage, rows, queries, findable in self._query_batches(source, kept_columns):
            for part in blocks(rows.stop - rows.start, max(scores_in_memory // len(self.hidden), 1)):
                place = slice(rows.start + part.start, rows.start + part.stop)
                yield CompletedRows(stage, place, self.log_probabilities(queries.take(part)), findable[part])

    def queries_of_table(self, source: object) -> RowQueries:
        """What candidates are found by in all rows of a table, for `scores` and `log_probabilities`."""
        batches = [batch.queries for batch in self._query_batches(source, ())]
        levels = range(len(batches[0].sums.free))
        free = [np.concatenate([queries.sums.free[level] for queries in batches]) for level in levels]
        dependent = [np.concatenate([queries.sums.dependent[level] for queries in batches]) for level in levels]
        are_later = [queries.are_later for queries in batches if queries.are_later is not None]
        items = stacked([queries.items for queries in batches])
        return RowQueries(Queries(free, dependent), items, np.concatenate(are_later) if are_later else None)

    def _query_batches(self, source: object, kept_columns: Sequence[str]) -> Iterator[_QueryRows]:
        encoder = self.encoder.only(self.given)
        for stage, stage_entries in encoder.staged(source, kept_columns, STAGE_BYTES):
            for rows in blocks(stage.rows, ROWS_AT_ONCE):
                entries = {name: np.ascontiguousarray(dense(stage_entries[name])[rows]) for name in self.given}
                yield _QueryRows(stage, rows, self.queries(entries), rows_with_known(encoder, entries, self.given))


def has_groups_beside(schema: Schema, group: str) -> bool:
    """Whether a group shares no column with some other."""
    columns = set(schema.groups[group].columns)
    return any(not columns & set(options.columns) for options in schema.groups.values())


def groups_beside(schema: Schema, group: str) -> list[str]:
    """The groups that a group is found by: those that share no column with it.

    Raises:
        UserError: There is none.

    """
    columns = set(schema.groups[group].columns)
    beside = [name for name, options in schema.groups.items() if not columns & set(options.columns)]
    if not beside:
        raise UserError(f"the group {group!r} is all that the run has of a row: there is nothing to complete it by")
    return beside


def check_completed_group(schema: Schema, group: object) -> None:
    """Raise a `UserError` if a group is unknown, or the run's scores say nothing of what a row lacks."""
    objective = schema.objective
    if not objective.completes_rows:
        target = objective.target_column
        raise UserError(
            f"the run predicts {target!r} ({objective.type}) and says nothing of what a row lacks; "
            f"`predict` gives {target!r}, and a run trained without a target completes rows"
        )
    if group not in schema.groups or not isinstance(group, str):
        near = suggest(group, schema.groups) or f"; the groups are {listed(schema.groups)}"
        raise UserError(f"there is no group {group!r}{near}")


def rows_with_known(encoder: Encoder, entries: Mapping[str, Array], given: Sequence[str]) -> Bools:
    """Which rows [rows] hold something that training has seen, in one of the given groups."""
    has_known: Bools = np.logical_or.reduce([known(encoder, name, entries[name]) for name in given])
    return has_known


AnyFloats = TypeVar("AnyFloats", Floats, Float32s)


def log_softmax(logits: AnyFloats) -> AnyFloats:
    """Log softmax of each row, [rows, candidates]; the argument is used up."""
    for block in blocks(len(logits), max(LOGITS_AT_ONCE // max(logits.shape[1], 1), 1)):
        of_block = logits[block]
        of_block -= of_block.max(axis=1, keepdims=True)
        of_block -= np.log(np.exp(of_block).sum(axis=1, keepdims=True))
    return logits


def add_sparse(scores: Array, matrix: Sparse, factor: float) -> None:
    """Add a multiple of a sparse matrix to scores [rows, candidates], which are contiguous."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    scores.reshape(-1)[rows * matrix.shape[1] + matrix.indices] += factor * matrix.data
