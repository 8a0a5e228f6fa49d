"""Calibrating what completes rows: each group is hidden in held-out rows, and its numbers are fitted and checked.

Every third of these rows stands there twice: as it is, and without about half of its groups (`HeldOut`).

What is told of a fit (log loss, reliability) is measured in the half of the rows that it has not seen; of few rows each
half is measured by a fit to the other one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Bools, Int64s
from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.schema.options import Schema
from feat2vec.space.calibration import (
    COMPLETION_FILE,
    GroupCalibration,
    completion_text,
    default_calibration,
)
from feat2vec.space.completer import ROWS_AT_ONCE, Completer, groups_beside, rows_with_known
from feat2vec.space.completion_fit import (
    sampled_candidates,
    sizes_of_fit,
)
from feat2vec.space.geometry import Model, blocks, extract_groups
from feat2vec.space.group_fit import Check, GroupFit, surer, with_checks
from feat2vec.space.held_out_values import (
    LEAST_ROWS,
    HeldOut,
    Truth,
    counts_of_candidates,
    read_held_out,
    true_candidates,
)
from feat2vec.space.neighbours import KeptRows, ValueVectors, side_by_side
from feat2vec.space.sureness import sureness
from feat2vec.training.held_out import held_out_places
from feat2vec.training.run_folder import TrainedRun

ROWS_OF_ONE_CHECK = 500  # from which half of them are enough to check a fit
MOST_KEPT_BYTES = 256 << 20  # of the vectors of all groups of the rows that are kept
MOST_FITTED_GROUPS = 40


def fit_completion(
    run: TrainedRun,
    rows: pa.Table,
    counts: Mapping[str, Int64s] | None = None,
    kept_rows: KeptRows | None = None,
    later_rows: pa.Table | None = None,
) -> dict[str, GroupCalibration]:
    """Fit the numbers of each group that can be completed.

    Args:
        run: A run, or a model in training.
        rows: Rows that it was not trained on.
        counts: How often each value of a group's value table occurs in the training rows, by group; by default what the
            encoder says.
        kept_rows: Rows that it was trained on, the nearest of which are asked; none by default.
        later_rows: The last rows by `training.time`, on which it was not trained either.

    Returns:
        The numbers by group; a group of which there are fewer than 20 rows is left out.

    """
    return {fitted.group: fitted.calibration for fitted in fitted_groups(run, rows, counts, kept_rows, later_rows)}


class FittedGroup(NamedTuple):
    """The numbers of a group and what they were fitted by."""

    group: str
    calibration: GroupCalibration
    fit: GroupFit


def fitted_groups(
    run: TrainedRun,
    rows: pa.Table,
    counts: Mapping[str, Int64s] | None = None,
    kept_rows: KeptRows | None = None,
    later_rows: pa.Table | None = None,
) -> Iterator[FittedGroup]:
    """The groups of `fit_completion` one by one, with what measures of the same rows can take from the fit.

    Args:
        run: As of `fit_completion`.
        rows: The held-out rows.
        counts: How often each value occurs in the training rows.
        kept_rows: Training rows.
        later_rows: The last rows.

    Yields:
        The groups whose numbers can be fitted.

    """
    schema, encoder = run.schema, run.fitted
    if not schema.objective.completes_rows:
        return
    rng = np.random.default_rng(schema.training.seed)
    model = run.model_for_rows()
    held_out = read_held_out(encoder, model, rows, rng)
    # Keys that only held-out rows have are left as they are in rows of any time: made unseen, ranks were no better.
    later = None if later_rows is None else read_held_out(encoder, model, later_rows, rng, counts)
    if kept_rows is not None and kept_rows.vectors is None:
        kept_rows = with_vectors(kept_rows, model)
    for group in _fitted_groups(schema, held_out):
        if len(schema.groups) < 2 or set(schema.groups) - set(held_out.vectors.groups):
            continue
        counts_of_values = None if counts is None else counts[group]
        fitted = _fit_group(encoder, model, held_out, group, counts_of_values, rng, kept_rows)
        if fitted is None:
            continue
        if later is not None and schema.training.time in groups_beside(schema, group):
            of_later = _fit_group(encoder, model, later, group, counts_of_values, rng, kept_rows)
            calibration = replace(fitted.calibration, later=None if of_later is None else of_later.calibration)
            fitted = fitted._replace(calibration=calibration)
        yield fitted


def files_of_completion(completion: Mapping[str, GroupCalibration]) -> dict[str, bytes]:
    """What a training adds to its run so that rows are completed with calibrated probabilities.

    Args:
        completion: The fitted numbers by group.

    Returns:
        The file `completion.json`; nothing for a run that completes no rows.

    """
    return {COMPLETION_FILE: completion_text(completion).encode()} if completion else {}


def rows_to_keep(learnt: Encoded, most: int) -> tuple[Int64s, Int64s]:
    """Rows whose value ids a run keeps.

    Args:
        learnt: The rows that the chosen model was trained on; the others of the table are left out of them.
        most: How many are kept at most.

    Returns:
        The numbers of those that the model was trained on, and of those that are kept, which are all if they are few.

    """
    schema = learnt.encoder.schema
    vector_bytes = sum(schema.model.levels.dims) * 4 * len(schema.groups)
    most = min(most, max(MOST_KEPT_BYTES // vector_bytes, LEAST_ROWS))
    fitted_to = held_out_places(learnt, 1.0, schema.training.seed + 2, most)
    return fitted_to, np.arange(len(learnt)) if len(learnt) <= most else fitted_to


def with_vectors(kept_rows: KeptRows, model: Model) -> KeptRows:
    """The same rows with the vectors of their groups' values."""
    values, places = {}, {}
    for i, name in enumerate(kept_rows.encoder.codecs):
        ids, places[name] = np.unique(kept_rows.value_ids[:, i], return_inverse=True)
        parts = []
        for block in blocks(len(ids), ROWS_AT_ONCE):
            vectors = extract_groups(model, {name: kept_rows.entries_of_values(name, ids[block])})[name]
            parts.append(side_by_side(vectors, kept_rows.encoder.schema.model.levels))
        values[name] = np.concatenate(parts)
    return replace(kept_rows, vectors=ValueVectors(values, places))


def _fit_group(
    encoder: Encoder,
    model: Model,
    held_out: HeldOut,
    group: str,
    counts_of_values: Int64s | None,
    rng: np.random.Generator,
    kept_rows: KeptRows | None,
) -> FittedGroup | None:
    """The numbers of a group; None if there is too little to fit them to."""
    columns = set(encoder.schema.groups[group].columns)
    if all(columns & set(options.columns) for options in encoder.schema.groups.values()):
        return None
    given = groups_beside(encoder.schema, group)
    default = default_calibration(encoder, group)
    completer = Completer(encoder, model, group, default, given, kept_rows=kept_rows)
    counts = completer.hidden.counts
    if counts_of_values is not None:
        counts = counts_of_candidates(encoder, completer, counts_of_values)
    truth = true_candidates(completer, held_out.truths[group], counts)
    findable = rows_with_known(encoder, held_out.entries, given)
    kept = findable[truth.rows] & (counts[truth.places] > 0)
    truth = Truth(truth.rows[kept], truth.places[kept])
    rows = np.unique(truth.rows)
    if len(np.unique(held_out.originals[rows])) < LEAST_ROWS or np.count_nonzero(counts) < 2:
        return None
    fit = GroupFit(completer, held_out, counts, truth, sampled_candidates(counts, rng, sizes_of_fit(len(given))[1]))
    originals = np.unique(held_out.originals[rows])
    halves = rng.permutation(len(originals)) % 2 == 0
    in_first = np.isin(held_out.originals[truth.rows], originals[halves])  # [observations]
    every_value = np.ones(len(truth.rows), np.bool_)
    numbers = fit.numbers(every_value)
    fitted_parts = [in_first]
    if len(originals) < ROWS_OF_ONE_CHECK:
        fitted_parts.append(~in_first)
    else:  # which rows are nearest hardly depends on which of so many rows the weights are fitted to
        fit.find_nearest_by(numbers)
    fits = []  # each with what it says of rows that it has not seen
    for part in fitted_parts:
        of_part = fit.calibration(part, fit.numbers(part, numbers))
        fits.append((of_part, part, fit.unseen(of_part, ~part)))
    factor = sureness([part for _, _, unseen in fits for part in unseen])
    checks = []
    for calibration, seen, unseen in fits:
        checks.append(Check(fit, fit.with_list_numbers(surer(calibration, factor), seen), unseen, factor))
    calibration = fit.calibration(every_value, numbers)
    calibration = fit.with_list_numbers(surer(calibration, factor), every_value)
    return FittedGroup(group, with_checks(calibration, checks), fit)


def _fitted_groups(schema: Schema, held_out: HeldOut) -> list[str]:
    """The groups whose numbers are fitted: all, or of very many those that most held-out rows have.

    A fit has a number for each of the other groups, so its time grows by the square of the number of groups.
    """
    groups = list(schema.groups)
    if len(groups) <= MOST_FITTED_GROUPS:
        return groups
    present = {name: int(_is_present(held_out.truths[name]).sum()) for name in groups}
    chosen = set(sorted(groups, key=lambda name: -present[name])[:MOST_FITTED_GROUPS])
    return [name for name in groups if name in chosen]


def _is_present(entries: Array) -> Bools:
    """Which entries [rows, width] hold anything."""
    is_there = np.logical_not(np.isnan(entries)) if entries.dtype == np.float32 else entries != 0
    return np.asarray(is_there.any(axis=1), np.bool_)
