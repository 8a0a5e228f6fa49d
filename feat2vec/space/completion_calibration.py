"""Calibrating what completes rows: each group is hidden in held-out rows, and its numbers are fitted and checked.

Every third of these rows stands there twice: as it is, and without about half of its groups (`HeldOut`).

What is told of a fit (log loss, reliability) is measured in the half of the rows that it has not seen; of few rows each
half is measured by a fit to the other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Bools, Float32s, Floats, Int64s
from feat2vec.encode.codecs import NumbersCodec
from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.encode.value_tables import padded
from feat2vec.encode.vocabulary import FIRST
from feat2vec.schema.levels import Levels
from feat2vec.schema.options import Schema
from feat2vec.space.calibration import (
    COMPLETION_FILE,
    GroupCalibration,
    Reliability,
    completion_text,
    default_calibration,
    is_list,
)
from feat2vec.space.completer import ROWS_AT_ONCE, Completer, groups_beside, log_softmax, rows_with_known
from feat2vec.space.completion import in_list, shares_of_parts, top_places
from feat2vec.space.completion_fit import (
    CandidateSample,
    Observations,
    fitted_list_numbers,
    fitted_numbers,
    log_shares_of_rows,
    sampled_candidates,
)
from feat2vec.space.geometry import Candidates, GroupQueries, Model, Queries, blocks, dense, extract_groups
from feat2vec.space.hidden_group import has_quantiles
from feat2vec.space.neighbour_fit import fitted_powers
from feat2vec.space.neighbours import FEATURES, KeptRows, Neighbours, Sparse, side_by_side, unit_rows
from feat2vec.space.reliability import reliability_of_answers, reliability_of_ranks
from feat2vec.training.held_out import held_out_places
from feat2vec.training.run_folder import TrainedRun

MOST_ROWS = 2000
ROWS_PER_COPY = 3  # held-out rows, one of which stands there a second time
LEFT_OUT_SHARE = 0.5  # of the groups of a held-out row where it stands the second time
MOST_VALUES = 1000  # that the numbers of a group are fitted to
ROWS_OF_ONE_CHECK = 500  # from which half of them are enough to check a fit
LEAST_ROWS = 20  # with a value of the group; of fewer nothing is fitted
MOST_VECTOR_BYTES = 64 << 20  # of the rows' vectors of all groups
SCORES_CHECKED = 1 << 23  # of the rows whose probabilities are compared with what is true
SCORES_IN_MEMORY = 1 << 19
MOST_LISTS = 500  # that the probability of being in a list is fitted to
FEATURES_IN_MEMORY = 1 << 24  # numbers that say how much the nearest rows know
MOST_FITTED_CANDIDATES = 200_000  # of more, the nearest rows are not asked
MOST_KEPT_BYTES = 256 << 20  # of the vectors of all groups of the rows that are kept
MOST_FITTED_GROUPS = 40
SURENESS = np.exp(np.linspace(-1, 0.4, 57))  # factors of log p that are tried
SPREAD_OF_SURENESS = 0.3  # of its logarithm, before any row is seen
ANSWERS_OF_LIST = 5  # of each row that are compared
DIGITS = 6  # that are stored of a number


def fit_completion(
    run: TrainedRun,
    rows: pa.Table,
    counts: Mapping[str, Int64s] | None = None,
    kept_rows: KeptRows | None = None,
) -> dict[str, GroupCalibration]:
    """Fit the numbers of each group that can be completed.

    Args:
        run: A run, or a model in training.
        rows: Rows that it was not trained on.
        counts: How often each value of a group's value table occurs in the training rows, by group; by default what the
            encoder says.
        kept_rows: Rows that it was trained on, the nearest of which are asked; none by default.

    Returns:
        The numbers by group; a group of which there are fewer than 20 rows is left out.

    """
    schema, encoder = run.schema, run.fitted
    if not schema.objective.completes_rows:
        return {}
    rng = np.random.default_rng(schema.training.seed)
    model = run.model_for_rows()
    held_out = _read_held_out(encoder, model, rows, rng)
    if kept_rows is not None:
        kept_rows = with_vectors(kept_rows, model)
    fitted = {}
    for group in _fitted_groups(schema, held_out):
        if len(schema.groups) < 2 or set(schema.groups) - set(held_out.vectors.groups):
            continue
        counts_of_values = None if counts is None else counts[group]
        calibration = _fit_group(encoder, model, held_out, group, counts_of_values, rng, kept_rows)
        if calibration is not None:
            fitted[group] = calibration
    return fitted


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
    """The same rows with the vectors of their groups."""
    places = np.arange(len(kept_rows.value_ids))
    parts = []
    for block in blocks(len(places), ROWS_AT_ONCE):
        entries = {name: kept_rows.entries(name, places[block]) for name in kept_rows.encoder.codecs}
        parts.append(extract_groups(model, entries))
    vectors = {}
    for name in kept_rows.encoder.codecs:
        free = [np.concatenate(level) for level in zip(*(part[name].free for part in parts), strict=True)]
        rest = [np.concatenate(level) for level in zip(*(part[name].dependent for part in parts), strict=True)]
        vectors[name] = Queries(free, rest)
    return replace(kept_rows, vectors=GroupQueries.stacked(vectors))


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows, every third of them twice: as it is, and without about half of its groups.

    Who completes a row often knows little of it. Numbers that are fitted to whole rows rely on the groups that tell
    most, and are too sure without them.

    Args:
        originals: The held-out row that each row is, ascending: [rows].
        truths: The entries of each group, [rows, width].
        entries: What is given of them, [rows, width].
        vectors: The vectors of what is given.

    """

    originals: Int64s
    truths: Mapping[str, Array]
    entries: Mapping[str, Array]
    vectors: GroupQueries


def _read_held_out(encoder: Encoder, model: Model, rows: pa.Table, rng: np.random.Generator) -> HeldOut:
    dims = sum(encoder.schema.model.levels.dims) * 4 * len(encoder.codecs)
    rows = rows.slice(0, min(MOST_ROWS, max(MOST_VECTOR_BYTES // dims, LEAST_ROWS)))
    batches = [{name: dense(entries) for name, entries in batch.items()} for batch in encoder.entries(rows)]
    entries = {}
    for name in encoder.codecs:
        width = max(batch[name].shape[1] for batch in batches)
        entries[name] = np.concatenate([padded(batch[name], width) for batch in batches])
    total = len(next(iter(entries.values())))
    originals = np.sort(np.concatenate([np.arange(total), np.arange(0, total, ROWS_PER_COPY)]))
    truths = {name: of_group[originals] for name, of_group in entries.items()}
    given = {name: without_some(of_group, originals, rng) for name, of_group in truths.items()}
    return HeldOut(originals, truths, given, GroupQueries.stacked(extract_groups(model, given)))


def without_some(entries: Array, originals: Int64s, rng: np.random.Generator) -> Array:
    """Entries of a group [rows, width], about half of which are missing where a row stands the second time."""
    is_second = np.append(False, originals[1:] == originals[:-1])
    is_left_out = is_second & (rng.random(len(entries)) < LEFT_OUT_SHARE)
    given = entries.copy()
    given[is_left_out] = np.nan if given.dtype == np.float32 else 0
    return given


@dataclass(frozen=True)
class _Truth:
    """The true candidates of held-out rows: which of the rows, which of the candidates."""

    rows: Int64s
    places: Int64s


def _fit_group(
    encoder: Encoder,
    model: Model,
    held_out: HeldOut,
    group: str,
    counts_of_values: Int64s | None,
    rng: np.random.Generator,
    kept_rows: KeptRows | None,
) -> GroupCalibration | None:
    """The numbers of a group; None if there is too little to fit them to."""
    columns = set(encoder.schema.groups[group].columns)
    if all(columns & set(options.columns) for options in encoder.schema.groups.values()):
        return None
    given = groups_beside(encoder.schema, group)
    default = default_calibration(encoder, group)
    completer = Completer(encoder, model, group, default, given, kept_rows=kept_rows)
    counts = completer.hidden.counts
    if counts_of_values is not None:
        counts = _counts_of_candidates(encoder, completer, counts_of_values)
    truth = _true_candidates(completer, held_out.truths[group], counts)
    findable = rows_with_known(encoder, held_out.entries, given)
    kept = findable[truth.rows] & (counts[truth.places] > 0)
    truth = _Truth(truth.rows[kept], truth.places[kept])
    rows = np.unique(truth.rows)
    if len(np.unique(held_out.originals[rows])) < LEAST_ROWS or np.count_nonzero(counts) < 2:
        return None
    fit = _GroupFit(completer, held_out, counts, truth, sampled_candidates(counts, rng))
    originals = np.unique(held_out.originals[rows])
    halves = rng.permutation(len(originals)) % 2 == 0
    in_first = np.isin(held_out.originals[truth.rows], originals[halves])  # [observations]
    of_first, numbers = fit.calibration(in_first)
    fits = [(of_first, ~in_first)]  # each with the observations that it has not seen
    if len(originals) < ROWS_OF_ONE_CHECK:
        fits.append((fit.calibration(~in_first, numbers)[0], in_first))
    sureness = fit.sureness(fits)
    checks = [_Check(fit, surer(calibration, sureness), unseen) for calibration, unseen in fits]
    calibration, _ = fit.calibration(np.ones(len(truth.rows), np.bool_), numbers)
    return _with_checks(surer(calibration, sureness), checks)


def surer(calibration: GroupCalibration, factor: float) -> GroupCalibration:
    """Numbers with which log p is multiplied by a factor, but for what makes its sum 1.

    The probability of being in a list, 1 - exp(-exp(a) p^s), stays where it is for most lists: s is divided by it.
    """
    slope = calibration.list_slope / factor
    if calibration.neighbours:
        powers = tuple(_rounded(power * factor) for power in calibration.neighbours)
        return replace(calibration, neighbours=powers, list_slope=_rounded(slope))
    weights = {name: _rounded(weight * factor) for name, weight in calibration.weights.items()}
    popularity = _rounded(calibration.popularity * factor)
    return replace(calibration, weights=weights, popularity=popularity, list_slope=_rounded(slope))


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


class _GroupFit:
    """Fits the numbers of a group to some of its held-out values."""

    def __init__(
        self, completer: Completer, held_out: HeldOut, counts: Int64s, truth: _Truth, sample: CandidateSample
    ) -> None:
        self.completer, self.held_out, self.counts, self.truth, self.sample = completer, held_out, counts, truth, sample
        self.kept_vectors: tuple[dict[str, float], Float32s] | None = None  # of the weights that were asked for last
        self.neighbours = _neighbours(completer)
        self.items: Sparse | None = None  # of the held-out rows
        if self.neighbours is not None:
            self.items = self.neighbours.row_items.vectors(held_out.entries)
        levels = completer.encoder.schema.model.levels
        vectors = [side_by_side(held_out.vectors.of_group(name), levels) * completer.scale for name in completer.given]
        _, rows_per_value = np.unique(truth.rows, return_inverse=True)
        prior = completer.scale * completer.hidden.linear
        place_in_sample = np.full(len(counts), -1, np.int64)
        place_in_sample[sample.places] = np.arange(len(sample.places))
        log_counts = np.log(counts + 1.0)
        self.observations = Observations(
            np.stack(vectors, axis=1),
            truth.rows,
            vectors_of_candidates(completer.hidden.candidates, truth.places, levels),
            prior[truth.places],
            log_counts[truth.places],
            place_in_sample[truth.places],
            1 / np.bincount(rows_per_value)[rows_per_value],  # a row's values count as one
            vectors_of_candidates(completer.hidden.candidates, sample.places, levels),
            prior[sample.places] + sample.log_weights,
            log_counts[sample.places],
        )

    def calibration(self, chosen: Bools, start: Floats | None = None) -> tuple[GroupCalibration, Floats]:
        """The numbers fitted to some of the observations, also as they are to begin another fit with."""
        default = self.completer.calibration
        of_fit = np.flatnonzero(chosen)
        of_fit = of_fit[np.unique(np.linspace(0, len(of_fit) - 1, MOST_VALUES).astype(np.int64))]
        numbers = fitted_numbers(self.observations.take(of_fit), default.popularity, start)
        weights = dict(zip(self.completer.given, map(_rounded, numbers[:-1]), strict=True))
        pairs = self.held_out.originals[self.truth.rows[chosen]] * len(self.counts) + self.truth.places[chosen]
        values = len(np.unique(pairs))  # each of which may stand there twice
        calibration = replace(default, popularity=_rounded(numbers[-1]), weights=weights, values=values)
        rows = np.unique(self.truth.rows[chosen])
        if self.neighbours is not None:
            calibration = replace(calibration, neighbours=self._powers(calibration, rows))
        if not is_list(self.completer.encoder, self.completer.group):
            return calibration, numbers
        rows = rows[:MOST_LISTS]
        if calibration.neighbours:
            rows = rows[: self._most_rows()]
            log_shares, log_weights = self.log_probabilities(calibration, rows), np.zeros(len(self.counts))
            seen = self.counts > 0
            log_shares, log_weights, is_member = log_shares[:, seen], log_weights[seen], self.is_true(rows)[:, seen]
        else:
            log_weights = self.sample.log_weights
            log_shares = log_shares_of_rows(self.observations, rows, numbers) - log_weights
            is_member = self._is_true(rows, self.observations.true_places, len(self.sample.places))
        size, slope = fitted_list_numbers(log_shares, log_weights, is_member, default.list_size)
        return replace(calibration, list_size=_rounded(size), list_slope=_rounded(slope)), numbers

    def _most_rows(self) -> int:
        """How many rows the nearest rows' numbers are fitted to, at most."""
        return max(FEATURES_IN_MEMORY // ((1 + FEATURES) * len(self.counts)), LEAST_ROWS)

    def _powers(self, calibration: GroupCalibration, rows: Int64s) -> tuple[float, ...]:
        """The powers of what the space and the nearest rows say, fitted to rows."""
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(self._most_rows(), MOST_VALUES)).astype(np.int64))]
        of_space = self.log_probabilities(calibration, rows).astype(np.float32)
        evidence = [matrix.toarray() for matrix in self._evidence(calibration, rows)]
        is_true = self.is_true(rows)
        truth = (is_true / is_true.sum(axis=1, keepdims=True)).astype(np.float32)
        return tuple(map(_rounded, fitted_powers(np.stack([of_space, *evidence]), truth)))

    def _evidence(self, calibration: GroupCalibration, rows: Int64s) -> list[Sparse]:
        """What the rows nearest to some rows say, [rows, candidates] in each way to weigh them."""
        completer, neighbours = self._with(calibration), self.neighbours
        assert neighbours is not None
        assert self.items is not None
        if self.kept_vectors is None or self.kept_vectors[0] != calibration.weights:
            self.kept_vectors = dict(calibration.weights), completer.vectors_of_kept(neighbours)
        levels = completer.encoder.schema.model.levels
        sums = self.held_out.vectors.weighted(completer.weights, rows)
        return neighbours.evidence(self.items[rows], unit_rows(side_by_side(sums, levels)), self.kept_vectors[1])

    def _with(self, calibration: GroupCalibration) -> Completer:
        """The completer with other numbers; what it has read of the model is shared."""
        completer = copy(self.completer)
        completer.calibration = calibration
        return completer

    def sureness(self, fits: list[tuple[GroupCalibration, Bools]]) -> float:
        """What log p of fits is multiplied by, so that values which they have not seen are most probable.

        Numbers that are fitted to few rows say of these more than they may say of others.
        """
        losses = np.square(np.log(SURENESS) / SPREAD_OF_SURENESS) / 2
        for calibration, unseen in fits:
            rows = np.unique(self.truth.rows[unseen])
            rows = rows[: max(SCORES_CHECKED // len(self.counts), LEAST_ROWS)]
            for block in blocks(len(rows), max(SCORES_IN_MEMORY // len(self.counts), 1)):
                log_p = self.log_probabilities(calibration, rows[block])
                is_true = self.is_true(rows[block])
                of_true = np.where(is_true, log_p, 0).sum(axis=1) / is_true.sum(axis=1)  # [rows]
                for i, factor in enumerate(SURENESS):
                    top = factor * log_p.max(axis=1)
                    log_sum = top + np.log(np.exp(factor * log_p - top[:, None]).sum(axis=1))
                    losses[i] -= (factor * of_true - log_sum).sum()
        return float(SURENESS[losses.argmin()])

    def log_probabilities(self, calibration: GroupCalibration, rows: Int64s) -> Floats:
        """Log p of rows and all candidates that training has seen; -inf for others: [rows, candidates]."""
        completer = self._with(calibration)
        total = self.held_out.vectors.weighted(completer.weights, rows)
        with np.errstate(divide="ignore"):
            prior = completer.scale * completer.hidden.linear + np.where(self.counts > 0, 0, -np.inf)
        prior = prior + calibration.popularity * np.log(self.counts + 1.0)
        scores: Floats = completer.products(total).astype(np.float64) + prior
        if calibration.neighbours:
            scores *= calibration.neighbours[0]
            for power, matrix in zip(calibration.neighbours[1:], self._evidence(calibration, rows), strict=True):
                scores += power * matrix.toarray()
        return log_softmax(scores)

    def is_true(self, rows: Int64s) -> Bools:
        """Which candidates each row has, [rows, candidates]."""
        return self._is_true(rows, self.truth.places, len(self.counts))

    def _is_true(self, rows: Int64s, places: Int64s, total: int) -> Bools:
        """Which of so many places each row has; -1 is none: [rows, total]."""
        of_rows = np.flatnonzero(np.isin(self.truth.rows, rows) & (places >= 0))
        true = np.zeros((len(rows), total), np.bool_)
        true[np.searchsorted(rows, self.truth.rows[of_rows]), places[of_rows]] = True
        return true


def _neighbours(completer: Completer) -> Neighbours | None:
    """The kept rows that have the group, if it is one of keys; None for too few."""
    hidden, kept_rows = completer.hidden, completer.kept_rows
    if kept_rows is None or hidden.entries is not None or len(hidden) > MOST_FITTED_CANDIDATES:
        return None
    neighbours = Neighbours(kept_rows, completer.group, completer.given)
    return neighbours if len(neighbours.places) else None


class _Check:
    """What a fit says of rows that it has not seen, against what is true."""

    def __init__(self, fit: _GroupFit, calibration: GroupCalibration, unseen: Bools) -> None:
        completer, truth = fit.completer, fit.truth
        rows = np.unique(truth.rows[unseen])
        rows = rows[: max(SCORES_CHECKED // len(fit.counts), LEAST_ROWS)]
        self.is_list = is_list(completer.encoder, completer.group)
        self.has_ranks = has_quantiles(completer.encoder, completer.group)
        log_shares = np.log(np.maximum(fit.counts, 1e-12) / fit.counts.sum())
        losses, popularity_losses, said, true, ranks = [], [], [], [], []
        for block in blocks(len(rows), max(SCORES_IN_MEMORY // len(fit.counts), 1)):
            log_p = fit.log_probabilities(calibration, rows[block])
            is_true = fit.is_true(rows[block])  # [rows, candidates]
            values = is_true.sum(axis=1)
            losses.append(-np.where(is_true, log_p, 0).sum(axis=1) / values)
            popularity_losses.append(-(is_true @ log_shares) / values)
            of_parts = shares_of_parts(completer, np.exp(log_p))
            places = top_places(log_p if of_parts is None else of_parts, ANSWERS_OF_LIST if self.is_list else 1)
            if of_parts is None:
                answers = np.exp(np.take_along_axis(log_p, places, axis=1))
                said.append((in_list(answers, calibration) if self.is_list else answers).ravel())
            else:
                said.append(np.take_along_axis(of_parts, places, axis=1).ravel())
            true.append(np.take_along_axis(is_true, places, axis=1).ravel())
            if self.has_ranks:
                ranks.append(_ranks_of_numbers(completer, np.exp(log_p), is_true.argmax(axis=1)))
        self.losses, self.popularity_losses = np.concatenate(losses), np.concatenate(popularity_losses)
        self.said, self.true = np.concatenate(said), np.concatenate(true)
        self.ranks = np.concatenate(ranks or [np.zeros(0)])


def _with_checks(calibration: GroupCalibration, checks: list[_Check]) -> GroupCalibration:
    reliability: Reliability
    if checks[0].has_ranks:
        reliability = reliability_of_ranks(np.concatenate([check.ranks for check in checks]))
    else:
        said, true = (np.concatenate(parts) for parts in zip(*((c.said, c.true) for c in checks), strict=True))
        reliability = reliability_of_answers(said, true)
    return replace(
        calibration,
        log_loss=_rounded(np.concatenate([check.losses for check in checks]).mean()),
        popularity_log_loss=_rounded(np.concatenate([check.popularity_losses for check in checks]).mean()),
        reliability=reliability,
    )


# --- candidates -----------------------------------------------------------------------------------------------------


def _counts_of_candidates(encoder: Encoder, completer: Completer, counts_of_values: Int64s) -> Int64s:
    """How often each candidate occurs in the training rows, given how often each value of the group does."""
    hidden, values = completer.hidden, encoder.values[completer.group]
    if hidden.entries is None:
        codec = hidden.codec
        entries = np.asarray(values.entries)
        ids = entries[:, : entries.shape[1] // 2] if getattr(codec, "weighted", False) else entries
        weights = np.repeat(np.asarray(counts_of_values, np.float64), ids.shape[1])
        return np.bincount(ids.ravel(), weights, len(hidden) + FIRST)[FIRST:].round().astype(np.int64)
    if len(hidden) == len(values.counts):
        return np.asarray(counts_of_values, np.int64)
    return hidden.counts  # quantiles of many numbers, each of which stands for many rows


def _true_candidates(completer: Completer, entries: Array, counts: Int64s) -> _Truth:
    """The candidates that rows have, given their entries [rows, width] of the group.

    Of numbers it is the nearest of those that training has seen.
    """
    hidden, codec = completer.hidden, completer.hidden.codec
    if hidden.entries is None:
        ids = entries[:, : entries.shape[1] // 2] if getattr(codec, "weighted", False) else entries
        rows, items = np.nonzero(ids >= FIRST)
        pairs = np.unique(np.stack([rows, ids[rows, items] - FIRST], axis=1), axis=0)
        return _Truth(pairs[:, 0], pairs[:, 1])
    candidates = np.asarray(hidden.entries)
    if isinstance(codec, NumbersCodec):
        rows = np.flatnonzero(~np.isnan(entries[:, 0]))
        is_unseen = np.where(counts > 0, 0, np.inf)
        nearest = [int((np.abs(candidates - entries[row]).sum(axis=1) + is_unseen).argmin()) for row in rows]
        return _Truth(rows, np.array(nearest, np.int64))
    place_of_entry = {_trimmed(entry): place for place, entry in enumerate(candidates)}
    places = np.array([place_of_entry.get(_trimmed(entry), -1) for entry in entries], np.int64)
    rows = np.flatnonzero(places >= 0)
    return _Truth(rows, places[rows])


def _trimmed(entry: Array) -> bytes:
    """An entry without its padding, which may be longer in new rows."""
    if entry.dtype == np.float32:
        return entry.tobytes()
    return entry[: np.flatnonzero(entry).max(initial=-1) + 1].tobytes()


def _ranks_of_numbers(completer: Completer, probabilities: Floats, true_places: Int64s) -> Floats:
    """The probability of smaller numbers than the true one, and half of its own: [rows]."""
    numbers = completer.hidden.columns[0].mean  # of the first column
    order = np.argsort(np.where(np.isnan(numbers), np.inf, numbers), kind="stable")
    place_in_order = np.empty(len(order), np.int64)
    place_in_order[order] = np.arange(len(order))
    ordered = probabilities[:, order]
    rows, places = np.arange(len(ordered)), place_in_order[true_places]
    return np.cumsum(ordered, axis=1)[rows, places] - ordered[rows, places] / 2


# --- vectors of all levels side by side -----------------------------------------------------------------------------


def vectors_of_candidates(candidates: Candidates, places: Int64s, levels: Levels) -> Floats:
    """Vectors whose products with `side_by_side` are those of `similarities`: [places, E].

    A candidate meets the free parts of a query at all of its levels, and the dependent part at its highest one.
    """
    free, dependent = [], []
    for size_above, table in zip(candidates.sizes()[1:], candidates.tables, strict=True):
        vectors = np.zeros((len(places), table.shape[1]))
        has_level = places < len(table)
        vectors[has_level] = table[places[has_level]]
        free.append(vectors)
        dependent.append(np.where((places < size_above)[:, None], 0, vectors))
    return np.concatenate(free if levels.submodels == 1 else [*free, *dependent], axis=1)


def _rounded(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")
