"""The fit of one group's numbers to held-out values, and what it says of values that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from feat2vec.arrays import Array, Bools, Float32s, Floats, Int64s
from feat2vec.schema.levels import Levels
from feat2vec.space.calibration import GroupCalibration, Reliability, is_list
from feat2vec.space.completer import Completer, add_sparse, log_softmax
from feat2vec.space.completion import has_parts, in_list, shares_of_parts, top_places
from feat2vec.space.completion_fit import (
    CandidateSample,
    Observations,
    fitted_list_numbers,
    fitted_numbers,
    log_shares_of_rows,
    sizes_of_fit,
)
from feat2vec.space.geometry import Candidates, Queries, blocks
from feat2vec.space.held_out_values import LEAST_ROWS, HeldOut, Truth
from feat2vec.space.hidden_group import has_quantiles
from feat2vec.space.neighbour_fit import fitted_powers
from feat2vec.space.neighbours import EXPECTED, FEATURES, Neighbours, Sparse, side_by_side, unit_rows
from feat2vec.space.reliability import reliability_of_answers, reliability_of_ranks
from feat2vec.space.sureness import Unseen

MOST_ROWS_OF_NEIGHBOURS = 1000  # that the nearest rows' numbers are fitted to
SCORES_CHECKED = 1 << 22  # of the rows whose probabilities are compared with what is true
SCORES_IN_MEMORY = 1 << 19
MOST_LISTS = 500  # that the probability of being in a list is fitted to
FEATURES_IN_MEMORY = 1 << 24  # numbers that say how much the nearest rows know
MOST_FITTED_CANDIDATES = 200_000  # of more, the nearest rows are not asked
ANSWERS_OF_LIST = 5  # of each row that are compared
DIGITS = 6  # that are stored of a number


class GroupFit:
    """Fits the numbers of a group to some of its held-out values."""

    def __init__(
        self, completer: Completer, held_out: HeldOut, counts: Int64s, truth: Truth, sample: CandidateSample
    ) -> None:
        self.completer, self.held_out, self.counts, self.truth, self.sample = completer, held_out, counts, truth, sample
        self.neighbours = _neighbours(completer)
        self.literal: Evidence | None = None  # of the held-out rows, which no number of a fit changes
        self.by_vectors: tuple[dict[str, float], Evidence] | None = None  # of the weights that were asked for last
        self.weights_of_nearest: dict[str, float] | None = None
        self.last_powers: tuple[float, ...] = EXPECTED  # with which the next fit of them begins
        if self.neighbours is not None:
            items = self.neighbours.row_items.vectors(held_out.entries)  # [rows, items]
            neighbours = self.neighbours
            self.literal = Evidence(items.shape[0], lambda rows: neighbours.literal_evidence(items[rows]))
        levels = completer.encoder.schema.model.levels
        vectors = [side_by_side(held_out.vectors.of_group(name), levels) * completer.scale for name in completer.given]
        _, rows_per_value = np.unique(truth.rows, return_inverse=True)
        prior = completer.scale * completer.hidden.linear.astype(np.float64)
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

    def numbers(self, chosen: Bools, start: Floats | None = None) -> Floats:
        """The groups' weights and the power of popularity [groups + 1], fitted to some of the observations."""
        of_fit = np.flatnonzero(chosen)
        most, _ = sizes_of_fit(len(self.completer.given))
        of_fit = of_fit[np.unique(np.linspace(0, len(of_fit) - 1, most).astype(np.int64))]
        return fitted_numbers(self.observations.take(of_fit), self.completer.calibration.popularity, start)

    def calibration(self, chosen: Bools, numbers: Floats) -> GroupCalibration:
        """What is stored of numbers that are fitted to some of the observations, with powers fitted to the same."""
        default, weights = self.completer.calibration, self._weights(numbers)
        pairs = self.held_out.originals[self.truth.rows[chosen]] * len(self.counts) + self.truth.places[chosen]
        values = len(np.unique(pairs))  # each of which may stand there twice
        calibration = replace(default, popularity=rounded(numbers[-1]), weights=weights, values=values)
        if self.neighbours is not None:
            powers = self._powers(calibration, np.unique(self.truth.rows[chosen]))
            calibration = replace(calibration, neighbours=powers)
        return calibration

    def find_nearest_by(self, numbers: Floats) -> None:
        """Let these weights find the nearest rows, whatever those of a calibration are: once for several fits."""
        self.weights_of_nearest = self._weights(numbers)

    def _weights(self, numbers: Floats) -> dict[str, float]:
        return dict(zip(self.completer.given, map(rounded, numbers[:-1]), strict=True))

    def with_list_numbers(self, calibration: GroupCalibration, chosen: Bools) -> GroupCalibration:
        """The numbers with those of lists, fitted to some of the observations; without lists as they are."""
        if not is_list(self.completer.encoder, self.completer.group):
            return calibration
        rows = np.unique(self.truth.rows[chosen])[:MOST_LISTS]
        if calibration.neighbours:
            rows = rows[: self._most_rows()]
            seen = self.counts > 0
            log_shares: Array = np.compress(seen, self.log_probabilities(calibration, rows), axis=1)
            weights, is_member = np.ones(log_shares.shape[1]), np.compress(seen, self.is_true(rows), axis=1)
        else:
            weights = np.exp(self.sample.log_weights)
            numbers = np.array([*(calibration.weight(name) for name in self.completer.given), calibration.popularity])
            log_shares = log_shares_of_rows(self.observations, rows, numbers) - self.sample.log_weights
            is_member = self._is_true(rows, self.observations.true_places, len(self.sample.places))
        default = self.completer.calibration
        size, slope = fitted_list_numbers(log_shares, weights, is_member, default.list_size)
        return replace(calibration, list_size=rounded(size), list_slope=rounded(slope))

    def _most_rows(self) -> int:
        """How many rows the nearest rows' numbers are fitted to, at most."""
        few = max(FEATURES_IN_MEMORY // ((1 + FEATURES) * len(self.counts)), LEAST_ROWS)
        return min(few, MOST_ROWS_OF_NEIGHBOURS)

    def _powers(self, calibration: GroupCalibration, rows: Int64s) -> tuple[float, ...]:
        """The powers of what the space and the nearest rows say, fitted to rows."""
        from scipy import sparse

        rows = rows[np.unique(np.linspace(0, len(rows) - 1, self._most_rows()).astype(np.int64))]
        of_space = self.log_probabilities(calibration, rows)
        is_true = sparse.csr_matrix(self.is_true(rows))
        truth = sparse.diags(1 / is_true.sum(axis=1).A1) @ is_true
        evidence = self._evidence(calibration, rows)
        self.last_powers = tuple(map(rounded, fitted_powers(of_space, evidence, truth.tocsr(), start=self.last_powers)))
        return self.last_powers

    def _evidence(self, calibration: GroupCalibration, rows: Int64s) -> list[Sparse]:
        """What the rows nearest to some rows say, [rows, candidates] in each way to weigh them."""
        assert self.literal is not None
        weights = self.weights_of_nearest or dict(calibration.weights)
        if self.by_vectors is None or self.by_vectors[0] != weights:
            self.by_vectors = weights, self._evidence_by_vectors(weights)
        return [*self.literal.of_rows(rows), *self.by_vectors[1].of_rows(rows)]

    def vectors_of_whole_rows(self, rows: Int64s) -> dict[str, Queries] | None:
        """The vectors of held-out rows as they are, by group; None if there are more rows than were encoded."""
        originals, vectors = self.held_out.originals, self.held_out.vectors
        if rows.max(initial=-1) > originals[-1]:
            return None
        places = np.searchsorted(originals, rows)  # the first of two is as it is
        return {name: vectors.of_group(name).take(places) for name in self.completer.given}

    def evidence_of_whole_rows(self, calibration: GroupCalibration, rows: Int64s) -> list[Sparse] | None:
        """What the nearest rows say of held-out rows as they are, [rows, candidates] in each way to weigh them.

        Args:
            calibration: The fitted numbers.
            rows: The numbers of the held-out rows.

        Returns:
            The same as a `Completer` of these numbers finds; None where it would have to look for more.

        """
        originals = self.held_out.originals
        if not calibration.neighbours or calibration.later is not None or rows.max(initial=-1) > originals[-1]:
            return None
        return self._evidence(calibration, np.searchsorted(originals, rows))

    def _evidence_by_vectors(self, weights: Mapping[str, float]) -> Evidence:
        """What the rows say whose vectors, with these weights, are nearest to those of held-out rows."""
        calibration, neighbours = replace(self.completer.calibration, weights=weights), self.neighbours
        completer = self.completer.with_numbers(calibration)
        assert neighbours is not None
        kept_vectors = completer.vectors_of_kept(neighbours)
        levels = completer.encoder.schema.model.levels

        def of_rows(rows: Int64s) -> list[Sparse]:
            sums = self.held_out.vectors.weighted(completer.weights, rows)
            return neighbours.vector_evidence(unit_rows(side_by_side(sums, levels)), kept_vectors)

        return Evidence(len(self.held_out.originals), of_rows)

    def unseen(self, calibration: GroupCalibration, unseen: Bools) -> list[Unseen]:
        """What a fit says of observations that it has not seen, a block of rows at a time."""
        rows = np.unique(self.truth.rows[unseen])
        rows = rows[: max(SCORES_CHECKED // len(self.counts), LEAST_ROWS)]
        if calibration.neighbours:
            self._evidence(calibration, rows)  # of all blocks at once
        says = []
        for block in blocks(len(rows), max(SCORES_IN_MEMORY // len(self.counts), 1)):
            log_p = self.log_probabilities(calibration, rows[block])
            says.append(Unseen(log_p, self.is_true(rows[block]), np.log(self.counts + 1).astype(np.float32)))
        return says

    def log_probabilities(self, calibration: GroupCalibration, rows: Int64s) -> Float32s:
        """Log p of rows and all candidates that training has seen; -inf for others: [rows, candidates]."""
        completer = self.completer.with_numbers(calibration)
        total = self.held_out.vectors.weighted(completer.weights, rows)
        with np.errstate(divide="ignore"):
            prior = completer.scale * completer.hidden.linear.astype(np.float64) + np.where(self.counts > 0, 0, -np.inf)
        prior = prior + calibration.popularity * np.log(self.counts + 1.0)
        scores = completer.products(total)
        scores += prior.astype(np.float32)
        if calibration.neighbours:
            scores *= np.float32(calibration.neighbours[0])
            for power, matrix in zip(calibration.neighbours[1:], self._evidence(calibration, rows), strict=True):
                add_sparse(scores, matrix, power)
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


class Evidence:
    """What the nearest rows say of held-out rows, computed when it is first asked for.

    Args:
        total_rows: How many held-out rows there are.
        new_rows: Computes it for some of them, [rows, candidates] in each way to weigh the nearest rows.

    """

    def __init__(self, total_rows: int, new_rows: Callable[[Int64s], list[Sparse]]) -> None:
        self.new_rows = new_rows
        self.places = np.full(total_rows, -1, np.int64)  # in `known`, of each row
        self.known: list[Sparse] = []  # of each way to weigh them

    def of_rows(self, rows: Int64s) -> list[Sparse]:
        """What is said of some rows, [rows, candidates] in each way to weigh them."""
        from scipy import sparse

        new = rows[self.places[rows] < 0]
        if len(new):
            of_new = self.new_rows(new)
            self.places[new] = np.count_nonzero(self.places >= 0) + np.arange(len(new))
            known = self.known or [matrix[:0] for matrix in of_new]
            self.known = [sparse.vstack(parts, format="csr") for parts in zip(known, of_new, strict=True)]
        return [matrix[self.places[rows]] for matrix in self.known]


def _neighbours(completer: Completer) -> Neighbours | None:
    """The kept rows that have the group, if it is one of keys; None for too few."""
    hidden, kept_rows = completer.hidden, completer.kept_rows
    if kept_rows is None or hidden.entries is not None or len(hidden) > MOST_FITTED_CANDIDATES:
        return None
    neighbours = Neighbours(kept_rows, completer.group, completer.given)
    return neighbours if len(neighbours.places) else None


class Check:
    """What a fit says of rows that it has not seen, against what is true.

    Args:
        fit: The fit.
        calibration: Its numbers, with the sureness.
        unseen: What it says of the rows with a sureness of 1.
        factor: The sureness that it is checked with.

    """

    def __init__(self, fit: GroupFit, calibration: GroupCalibration, unseen: Sequence[Unseen], factor: float) -> None:
        completer = fit.completer
        self.is_list = is_list(completer.encoder, completer.group)
        self.has_ranks = has_quantiles(completer.encoder, completer.group)
        log_shares = np.log(np.maximum(fit.counts, 1e-12) / fit.counts.sum())
        losses, popularity_losses, said, true, ranks = [], [], [], [], []
        for part in unseen:
            log_p, is_true = part.log_p(factor), part.is_true  # [rows, candidates]
            rows, true_places = np.nonzero(is_true)
            values = np.bincount(rows)
            losses.append(-np.bincount(rows, log_p[rows, true_places]) / values)
            popularity_losses.append(-np.bincount(rows, log_shares[true_places]) / values)
            of_parts = shares_of_parts(completer, np.exp(log_p)) if has_parts(completer) else None
            n = ANSWERS_OF_LIST if self.is_list else 1
            if of_parts is None:
                places = top_places(log_p, n)
                answers = np.exp(np.take_along_axis(log_p, places, axis=1))
                said.append((in_list(answers, calibration) if self.is_list else answers).ravel())
            else:
                places = top_places(of_parts, n)
                said.append(np.take_along_axis(of_parts, places, axis=1).ravel())
            true.append(np.take_along_axis(is_true, places, axis=1).ravel())
            if self.has_ranks:
                ranks.append(_ranks_of_numbers(completer, np.exp(log_p), is_true.argmax(axis=1)))
        self.losses, self.popularity_losses = np.concatenate(losses), np.concatenate(popularity_losses)
        self.said, self.true = np.concatenate(said), np.concatenate(true)
        self.ranks = np.concatenate(ranks or [np.zeros(0)])


def with_checks(calibration: GroupCalibration, checks: Sequence[Check]) -> GroupCalibration:
    """The numbers with what their checks have measured."""
    reliability: Reliability
    if checks[0].has_ranks:
        reliability = reliability_of_ranks(np.concatenate([check.ranks for check in checks]))
    else:
        said, true = (np.concatenate(parts) for parts in zip(*((c.said, c.true) for c in checks), strict=True))
        reliability = reliability_of_answers(said, true)
    return replace(
        calibration,
        log_loss=rounded(np.concatenate([check.losses for check in checks]).mean()),
        popularity_log_loss=rounded(np.concatenate([check.popularity_losses for check in checks]).mean()),
        reliability=reliability,
    )


def _ranks_of_numbers(completer: Completer, probabilities: Floats, true_places: Int64s) -> Floats:
    """The probability of smaller numbers than the true one, and half of its own: [rows]."""
    numbers = completer.hidden.columns[0].mean  # of the first column
    order = np.argsort(np.where(np.isnan(numbers), np.inf, numbers), kind="stable")
    place_in_order = np.empty(len(order), np.int64)
    place_in_order[order] = np.arange(len(order))
    ordered = probabilities[:, order]
    rows, places = np.arange(len(ordered)), place_in_order[true_places]
    return np.cumsum(ordered, axis=1)[rows, places] - ordered[rows, places] / 2


def surer(calibration: GroupCalibration, factor: float) -> GroupCalibration:
    """Numbers with which what log p says beyond popularity is multiplied by a factor."""
    if calibration.neighbours:
        powers = tuple(rounded(power * factor) for power in calibration.neighbours)
        popularity = calibration.popularity + (1 - factor) / powers[0]
        return replace(calibration, neighbours=powers, popularity=rounded(popularity))
    weights = {name: rounded(weight * factor) for name, weight in calibration.weights.items()}
    popularity = calibration.popularity * factor + 1 - factor
    return replace(calibration, weights=weights, popularity=rounded(popularity))


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


def rounded(number: float) -> float:
    """A number as it is stored."""
    return float(f"{number:.{DIGITS}g}")
