"""How probable each candidate of a hidden group is beside the rest of a row; the formula is that of `calibration`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Array, Bools, Float32s, Floats
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError, listed, suggest
from feat2vec.schema.options import Schema
from feat2vec.space.calibration import GroupCalibration, default_calibration
from feat2vec.space.geometry import Model, Queries, blocks, dense, extract_groups, known, similarities
from feat2vec.space.hidden_group import MOST_NUMBERS, HiddenGroup, read_hidden_group
from feat2vec.table.table import Stage

SCORES_IN_MEMORY = 1 << 19  # probabilities that are computed at a time: 4 MB
ROWS_AT_ONCE = 4096  # rows whose vectors are made at a time
STAGE_BYTES = 16 << 20  # of rows that are encoded at a time


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
    queries: Queries
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
    ) -> None:
        check_completed_group(encoder.schema, group)
        self.encoder, self.model, self.group = encoder, model, group
        self.calibration = default_calibration(encoder, group) if calibration is None else calibration
        self.given = groups_beside(encoder.schema, group) if given is None else list(given)
        self.hidden: HiddenGroup = read_hidden_group(model, encoder, group, most_numbers)
        self.scale = 1 / encoder.schema.objective.score_scale
        log_counts = np.log(self.hidden.counts + 1.0)
        self.prior: Floats = self.scale * self.hidden.linear + self.calibration.popularity * log_counts  # [candidates]

    def queries(self, entries: Mapping[str, Array]) -> Queries:
        """The weighted sums of the vectors of rows, given their entries [rows, width] of the groups."""
        return self.weighted(extract_groups(self.model, {name: entries[name] for name in self.given}))

    def weighted(self, vectors: Mapping[str, Queries]) -> Queries:
        """The weighted sums of the vectors of rows, given those of the groups."""
        total: Queries | None = None
        for name in self.given:
            weighted = vectors[name].times(self.scale * self.calibration.weight(name))
            total = weighted if total is None else total.plus(weighted)
        assert total is not None
        return total

    def products(self, queries: Queries) -> Float32s:
        """The dot products of queries with the candidates, [rows, candidates]."""
        return similarities(queries, self.hidden.candidates, "dot")

    def scores(self, queries: Queries) -> Float32s:
        """What ranks the candidates of rows: log p and a number for each row, [rows, candidates]."""
        scores = self.products(queries)
        scores += self.prior.astype(np.float32)
        return scores

    def log_probabilities(self, queries: Queries) -> Floats:
        """Log p(candidate | row), [rows, candidates]."""
        return log_softmax(self.products(queries).astype(np.float64) + self.prior)

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

    def queries_of_table(self, source: object) -> Queries:
        """The weighted sums of the vectors of all rows of a table, for `scores` and `log_probabilities`."""
        batches = [batch.queries for batch in self._query_batches(source, ())]
        levels = range(len(batches[0].free))
        free = [np.concatenate([queries.free[level] for queries in batches]) for level in levels]
        dependent = [np.concatenate([queries.dependent[level] for queries in batches]) for level in levels]
        return Queries(free, dependent)

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


def log_softmax(logits: Floats) -> Floats:
    """Log softmax of each row, [rows, candidates]; the argument is used up."""
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits
