"""Fold-in: a value that training has not seen gets the vector that solves its own rows, with all else held.

One small least-squares problem a value, in place of a training: `labelled_fold_in` has it for runs with a target,
`noise_fold_in` for runs without one.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Float32s, Floats, Int64s
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError, listed, suggest
from feat2vec.schema.extractor_options import Lookup
from feat2vec.schema.objectives import OBJECTIVES
from feat2vec.schema.options import Schema
from feat2vec.schema.training_options import Mlp
from feat2vec.space.geometry import Candidates, Model, candidates, dense, linear_terms
from feat2vec.space.groups_and_levels import refuse_no_vectors
from feat2vec.space.key_lookup import Names
from feat2vec.space.labelled_fold_in import Ridge, solve_labelled
from feat2vec.space.new_values import NewItems, NewKeys, NewRows, read_new_rows, unseen_vector
from feat2vec.space.noise_fold_in import KnownCandidates, check_target_of_noise, known_candidates, solve_by_noise
from feat2vec.space.run_completion import kept_rows_of_run
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.space.value_space import ValueSpace
from feat2vec.space.vectors import Vectors
from feat2vec.table.table import Stage, open_table
from feat2vec.training.run_folder import TrainedRun

FIRST_NOISE = 0.5  # of a run with `posterior: gaussian` whose losses are not known
NOISE_SHARE = 0.8  # of the mean loss that is noise; see `model.gaussian_posterior`


@dataclass(frozen=True)
class FoldedIn:
    """New values of a group, with vectors of the first level.

    Args:
        group: The group.
        keys: The values, [values].
        vectors: Their vectors with the group's gain, [values, D_1].
        terms: Their linear terms, [values].
        counts: How often each was found, [values].
        unseen: The vector that the model gives to any value that it has not seen, with the gain, [D_1].

    """

    group: str
    keys: pa.StringArray
    vectors: Float32s
    terms: Float32s
    counts: Int64s
    unseen: Float32s

    def differences(self, encoder: Encoder, stage: Stage) -> tuple[Int64s, Float32s]:
        """What the rows of a stage have of new values, and what their vectors of the group change by.

        Args:
            encoder: The run's encoder.
            stage: The rows.

        Returns:
            The rows, ascending, and the differences [rows, D_1].

        """
        new_keys = NewKeys(encoder, self.group)
        new_keys.keys = self.keys
        items = new_keys.items(dense(new_keys.entries(stage, learn=False)))
        rows, place_of_item = np.unique(items.rows, return_inverse=True)
        sums = np.zeros((len(rows), self.vectors.shape[1]), np.float32)
        changes = self.vectors[items.values] - self.unseen
        np.add.at(sums, place_of_item, changes * items.factors[:, None].astype(np.float32))
        return rows, sums


def fold_in(
    run: TrainedRun, rows: object, group: str, known: MutableMapping[str, KnownCandidates] | None = None
) -> FoldedIn:
    """The vectors of the values of a group in a table that training has not seen.

    Args:
        run: The run.
        rows: Any table; its rows without a new value are not used, nor those without a target if the run has one.
        group: A lookup group.
        known: What new values compete with, by group, where it is kept for the next time.

    Returns:
        The values that have rows, with their vectors; there may be none.

    Raises:
        UserError: The group or the run cannot be folded in, or the table lacks a column.

    """
    check_fold_in(run.schema, group)
    model, encoder = run.model_for_rows(), run.fitted
    new = read_new_rows(model, encoder, group, open_table(rows))
    schema, gain = encoder.schema, encoder.schema.groups[group].extractor.gain
    if schema.target is None:
        new = _in_rows_with_context(new)
    new = _values_with_rows(new)
    unseen, _ = unseen_vector(model, encoder, group)
    counts = np.bincount(new.items.values, minlength=len(new.keys))
    if not len(new.keys):
        vectors, terms = np.zeros((0, len(unseen))), np.zeros(0)
    elif schema.target is None:
        known = {} if known is None else known
        if group not in known:
            known[group] = known_candidates(model, encoder, group, kept_rows_of_run(run))
        vectors, terms = solve_by_noise(known[group], schema, group, new)
    else:
        scale = model.answer_scale_value()
        if schema.objective.standardizes:
            assert new.targets is not None
            new = replace(new, targets=(new.targets - scale.shift) / scale.unit)
        vectors, terms = solve_labelled(schema, new, _ridge(run, model, group, counts, unseen), gain)
    return FoldedIn(
        group,
        new.keys,
        (gain * vectors).astype(np.float32),
        terms.astype(np.float32),
        counts,
        (gain * unseen).astype(np.float32),
    )


def fold_in_groups(
    run: TrainedRun, rows: object, groups: Sequence[str], known: MutableMapping[str, KnownCandidates] | None = None
) -> list[FoldedIn]:
    """`fold_in` of several groups: a new value of one is solved beside the others' values as the run has them.

    Args:
        run: The run.
        rows: Any table.
        groups: Lookup groups; one that is named twice counts once.
        known: As for `fold_in`.

    Returns:
        The values of each group.

    Raises:
        UserError: As from `fold_in`, for any of the groups.

    """
    names = list(dict.fromkeys(groups))
    for name in names:
        check_fold_in(run.schema, name)
    table = open_table(rows)
    return [fold_in(run, table, name, known) for name in names]


def check_fold_in(schema: Schema, group: object) -> None:
    """Raise a `UserError` unless the values of a group can be folded into a run of this schema."""
    if not isinstance(group, str) or group not in schema.groups:
        near = suggest(group, schema.groups) or f"; the groups are {listed(schema.groups)}"
        raise UserError(f"--fold-in: there is no group {group!r}{near}")
    refuse_no_vectors(schema.model)
    extractor, objective = schema.groups[group].extractor, schema.objective
    if not isinstance(extractor, Lookup) or extractor.type != "lookup":
        raise UserError(f"--fold-in: {group!r} is no lookup; {extractor.type} makes vectors of new values by itself")
    sharing = [name for name in schema.sharing(group) if name != group]
    if sharing:
        raise UserError(
            f"--fold-in: {group!r} shares its vectors with {listed(sharing)}; a group of its own is folded in"
        )
    if isinstance(schema.head, Mlp):
        raise UserError("--fold-in: a new vector is solved from scores that are linear in it; the head mlp's are not")
    has_loss = objective.folds_in if schema.target is not None else objective.completes_rows
    if not has_loss or objective.implicit_group is not None:
        implicit = " with `implicit`" if objective.implicit_group is not None else ""
        labelled = [name for name, spec in OBJECTIVES.items() if spec.folds_in]
        raise UserError(
            f"--fold-in: is for objectives without a target, and for {listed(labelled)}; "
            f"the run's is {objective.type}{implicit}"
        )
    if schema.target is None:
        check_target_of_noise(schema, group)


def _in_rows_with_context(new: NewRows) -> NewRows:
    """The same without values of rows that hold nothing else, which tell nothing of them."""
    with_context = np.flatnonzero((new.contexts != 0).sum(axis=1)[new.items.rows])  # [items]
    rows, values, factors = new.items
    return replace(new, items=NewItems(rows[with_context], values[with_context], factors[with_context]))


def _values_with_rows(new: NewRows) -> NewRows:
    """The same without values that no row is left of, as those whose rows have no target."""
    has_rows = np.bincount(new.items.values, minlength=len(new.keys)) > 0
    number_of_value = np.cumsum(has_rows) - 1
    items = NewItems(new.items.rows, number_of_value[new.items.values], new.items.factors)
    return replace(new, keys=new.keys.filter(pa.array(has_rows)), items=items)


def _ridge(run: TrainedRun, model: Model, group: str, counts: Int64s, unseen: Floats) -> Ridge:
    """What holds back values that have so many occurrences: the run's own l2, or the prior of normal weights.

    The mean of such a prior is that of the group, and the vector of keys that no row has.
    """
    centre = np.zeros(len(unseen))
    training, encoder = run.schema.training, run.fitted
    of_vector, of_term = training.l2_of(group), training.l2_linear
    if run.schema.model.posterior == "gaussian":  # precisions of priors, which count once a value
        noise = 2 * _noise(run, model)
        if not of_term:
            known_terms = linear_terms(model, encoder, group)
            of_term = 1 / max(float(np.square(known_terms, dtype=np.float64).mean()), 1e-6)
        codec = encoder.codecs[group]
        assert codec.vocabulary is not None
        centre = unseen
        if codec.vocabulary.unseen:  # then the vector of unseen keys is learnt from the rows of rare ones
            centre = candidates(model, encoder, group).tables[0].mean(axis=0, dtype=np.float64)
            centre /= encoder.schema.groups[group].extractor.gain
        return Ridge(np.full(len(counts), noise * of_vector), np.full(len(counts), noise * of_term), centre)
    if training.l2_over == "tables":  # all values in each step
        of_all = training.l2 * max(int(np.sum(values.counts)) for values in encoder.values.values())
        return Ridge(np.full(len(counts), of_all), of_all + counts * of_term, centre)
    return Ridge(counts * of_vector, counts * of_term, centre)


def _noise(run: TrainedRun, model: Model) -> float:
    """About the variance of errors that a run with normal weights has learnt, in units of the targets' deviation."""
    losses = [row["loss"] for row in run.history if "loss" in row] if run.in_training is None else []
    if not losses:
        return FIRST_NOISE
    return min(NOISE_SHARE * losses[-1] / model.answer_scale_value().unit ** 2, 1.0)


def vectors_of_new_values(
    run: TrainedRun, rows: object, group: str, known: MutableMapping[str, KnownCandidates] | None = None
) -> Vectors:
    """The vectors of new values by key, to compare and search.

    Args:
        run: The run.
        rows: Any table.
        group: A lookup group.
        known: As for `fold_in`.

    Raises:
        UserError: As from `fold_in`, and if the table has no new value of the group.

    """
    table = open_table(rows)
    folded = fold_in(run, table, group, known)
    if not len(folded.keys):
        where = "beside something else" if run.schema.target is None else "in a row with a target"
        raise UserError(f"{table.name}: has no value of {group!r} that training has not seen {where}")
    model, bias = run.vector_source, run.schema.model.bias
    no_vectors = [np.zeros((0, dim), np.float32) for dim in run.schema.model.levels.dims[1:]]
    space = ValueSpace(
        f"new {group}",
        len(folded.keys),
        read_candidates=partial(Candidates, [folded.vectors, *no_vectors]),
        read_linear=partial(np.asarray, folded.terms) if bias else None,
        read_bias=model.bias_value,
        truncate=run.schema.model.levels.nested,
    )
    return Vectors(
        f"new {group}",
        f"the new values of {group!r}",
        Names(folded.keys),
        folded.counts,
        np.ones(len(folded.keys), np.int8),
        space,
        partial(vectors_of_group, run),
    )
