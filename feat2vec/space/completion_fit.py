"""Fitting the numbers of `calibration` to held-out rows, by maximum likelihood with a ridge towards the defaults.

An observation is a held-out row with a true value of the target group. Its loss is -log p(value | row), as a function
of the weights of the groups and of the popularity's power. Of very many candidates a sample stands for all: the most
frequent ones, and others drawn by their counts with what each stands for as its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from feat2vec.arrays import Array, Bools, Floats, Int64s, Integers
from feat2vec.space.geometry import blocks

MOST_VALUES = 1000  # of a fit
MOST_CANDIDATES = 1000
MOST_SCORES = 1 << 25  # of its values with its candidates, by group: 128 MB
MOST_HESSIAN_WORK = 1 << 27  # products for the curvature where the fit begins
RIDGE_OF_WEIGHTS = 4.0  # one over the variance of a weight about their mean, before any row is seen
GROUPS_OF_RIDGE = 4  # of more, each weight is expected as much nearer to the mean
RIDGE_OF_MEAN = 4.0
RIDGE_OF_POPULARITY = 16.0
ROWS_PER_BLOCK = 256
MOST_STEPS = 50
TOLERANCE = 1e-4  # of the gradient, a nat per unit of a number
LEAST_GAIN = 1e-8  # of the loss: a step that gains less is the last one, and is not measured


def sizes_of_fit(groups: int) -> tuple[int, int]:
    """How many values and how many candidates the numbers of so many groups are fitted to, at most.

    >>> sizes_of_fit(6), sizes_of_fit(200)
    ((1000, 1000), (408, 408))

    """
    share = min(MOST_SCORES / (MOST_VALUES * MOST_CANDIDATES * (groups + 1)), 1.0) ** 0.5
    return int(MOST_VALUES * share), int(MOST_CANDIDATES * share)


@dataclass(frozen=True)
class CandidateSample:
    """Candidates of a fit.

    Args:
        places: Their places among all candidates, [sample].
        log_weights: Log of how many candidates each stands for, [sample].

    """

    places: Int64s
    log_weights: Floats


def sampled_candidates(counts: Int64s, rng: np.random.Generator, most: int = MOST_CANDIDATES) -> CandidateSample:
    """The candidates that training has seen, or a sample of them.

    Args:
        counts: How often each occurs in the training rows.
        rng: Draws them.
        most: How many are kept: half of them the most frequent ones, half drawn from the rest.

    Returns:
        The sample.

    """
    seen = np.flatnonzero(counts > 0)
    if len(seen) <= most:
        return CandidateSample(seen, np.zeros(len(seen)))
    by_count = seen[np.argsort(-counts[seen], kind="stable")]
    frequent, rest = by_count[: most // 2], by_count[most // 2 :]
    shares = counts[rest] / counts[rest].sum()
    draws = most - len(frequent)
    drawn, times = np.unique(rng.choice(len(rest), draws, p=shares), return_counts=True)
    log_weights = np.concatenate([np.zeros(len(frequent)), np.log(times / (draws * shares[drawn]))])
    return CandidateSample(np.concatenate([frequent, rest[drawn]]), log_weights)


@dataclass(frozen=True)
class Observations:
    """Held-out values of a group, and what they are found by.

    Args:
        vectors: The vectors of the groups that they are found by, divided by the temperature: [rows, groups, E].
        rows: The row of each observation.
        true_vectors: The vector of the true candidate of each, [observations, E].
        true_prior: What that candidate's score has beside products and popularity, [observations].
        true_log_counts: log(count + 1) of it, [observations].
        true_places: Its place in the sample, -1 where it is not there, [observations].
        shares: What the loss of each is multiplied by.
        candidates: The vectors of the sample, [sample, E].
        prior: What their scores have beside products and popularity, with their log weights: [sample].
        log_counts: log(count + 1) of them, [sample].

    """

    vectors: Array
    rows: Int64s
    true_vectors: Floats
    true_prior: Floats
    true_log_counts: Floats
    true_places: Int64s
    shares: Floats
    candidates: Floats
    prior: Floats
    log_counts: Floats

    def take(self, chosen: Bools | Integers) -> Observations:
        """Some of the observations."""
        return replace(
            self,
            rows=self.rows[chosen],
            true_vectors=self.true_vectors[chosen],
            true_prior=self.true_prior[chosen],
            true_log_counts=self.true_log_counts[chosen],
            true_places=self.true_places[chosen],
            shares=self.shares[chosen],
        )


@dataclass(frozen=True)
class ScoreBlock:
    """Some observations, with what the candidates of the sample score above their true value.

    A candidate's score less that of the true one is `offsets` and the sum of its `differences`, each multiplied by its
    number: the weights of the groups, then the popularity's power.

    Args:
        differences: Products of each group's vector with the candidate less those with the true value, and log counts
            less that of the true value: [block, groups + 1, sample].
        offsets: What the scores have beside these, [block, sample].
        of_outside: 1 where the true value is not in the sample, 0 where it is one of it: [block].
        shares: What the loss of each observation is multiplied by, [block].

    """

    differences: Array
    offsets: Floats
    of_outside: Floats
    shares: Floats

    def odds(self, numbers: Floats) -> tuple[Floats, Floats]:
        """The probabilities of the sample [block, sample], and -log p of the true values [block]."""
        logits = np.matmul(numbers.astype(self.differences.dtype), self.differences) + self.offsets
        top = np.maximum(logits.max(axis=1), 0)  # 0 is the true value's
        probabilities = np.exp(logits - top[:, None])
        totals = probabilities.sum(axis=1) + self.of_outside * np.exp(-top)
        probabilities /= totals[:, None]
        return probabilities, top + np.log(totals)

    def means(self, probabilities: Floats) -> Floats:
        """The mean differences of the candidates, [block, groups + 1]."""
        means = np.matmul(self.differences, probabilities.astype(self.differences.dtype)[:, :, None])[:, :, 0]
        return np.asarray(means, np.float64)


def score_blocks(observations: Observations) -> list[ScoreBlock]:
    """The observations in blocks. All products with vectors are made here, once for all steps of a fit."""
    dtype = observations.vectors.dtype
    candidates = observations.candidates.astype(dtype).T  # [E, sample]
    score_parts = []
    for block in blocks(len(observations.rows), ROWS_PER_BLOCK):
        part = observations.take(np.arange(block.start, block.stop))
        vectors = part.vectors[part.rows]  # [block, groups, E]
        true = np.einsum("oge,oe->og", vectors, part.true_vectors.astype(dtype))
        differences = np.empty((len(vectors), vectors.shape[1] + 1, candidates.shape[1]), dtype)
        np.matmul(vectors, candidates, out=differences[:, :-1])
        differences[:, :-1] -= true[:, :, None]
        differences[:, -1] = part.log_counts - part.true_log_counts[:, None]
        offsets = part.prior - part.true_prior[:, None]
        is_inside = np.flatnonzero(part.true_places >= 0)
        differences[is_inside, :, part.true_places[is_inside]] = 0  # but for rounding they are
        score_parts.append(ScoreBlock(differences, offsets, (part.true_places < 0).astype(np.float64), part.shares))
    return score_parts


def fitted_numbers(observations: Observations, popularity: float, start: Floats | None = None) -> Floats:
    """The weights of the groups, and then the popularity's power, that make held-out values most probable.

    Args:
        observations: The held-out values.
        popularity: The default of the power.
        start: Where to begin; the defaults by default.

    Returns:
        The numbers [groups + 1].

    """
    groups = observations.vectors.shape[1]
    default = np.append(np.ones(groups), popularity)
    ridge = ridge_of_numbers(groups, popularity)
    parts = score_blocks(observations)

    def penalised(numbers: Floats) -> tuple[float, Floats]:
        value, gradient = loss_of_blocks(parts, numbers)
        distance = numbers - default
        return value + float(distance @ ridge @ distance) / 2, gradient + ridge @ distance

    begin = default if start is None else start
    curvature = curvature_of_blocks(parts, begin) + ridge
    inverse: Floats = np.asarray(np.linalg.inv(curvature), np.float64)
    return minimum(penalised, begin, inverse)


def ridge_of_numbers(groups: int, popularity: float) -> Floats:
    """One over the variance of what is expected of the numbers, before any row is seen.

    The weights have a mean m in common, about 1: w_g = m + d_g. The less the groups say, the more popularity does: its
    power is m b + (1 - m) + e, b its default. m, d_g and e are normal and independent.

    Args:
        groups: How many weights there are.
        popularity: The default b of the power.

    Returns:
        The inverse of the covariance of the weights and the power, [groups + 1, groups + 1].

    >>> np.linalg.inv(ridge_of_numbers(2, 0.0)).round(4).tolist()
    [[0.5, 0.25, -0.25], [0.25, 0.5, -0.25], [-0.25, -0.25, 0.3125]]

    """
    of_each = np.append(np.full(groups, RIDGE_OF_WEIGHTS * max(groups / GROUPS_OF_RIDGE, 1)), RIDGE_OF_POPULARITY)
    by_mean = np.append(np.ones(groups), popularity - 1) * of_each  # [groups + 1]
    ridge: Floats = np.diag(of_each) - np.outer(by_mean, by_mean) / (RIDGE_OF_MEAN + by_mean @ (by_mean / of_each))
    return ridge


def loss_and_gradient(observations: Observations, numbers: Floats) -> tuple[float, Floats]:
    """The sum of -log p of the true values, and its gradient [groups + 1]."""
    return loss_of_blocks(score_blocks(observations), numbers)


def loss_of_blocks(parts: Sequence[ScoreBlock], numbers: Floats) -> tuple[float, Floats]:
    """The same as `loss_and_gradient` of observations in blocks."""
    value, gradient = 0.0, np.zeros(len(numbers))
    for part in parts:
        probabilities, losses = part.odds(numbers)
        gradient += part.shares @ part.means(probabilities)
        value += float(part.shares @ losses)
    return value, gradient


def curvature_of_blocks(parts: Sequence[ScoreBlock], numbers: Floats) -> Floats:
    """About the second derivatives of the loss, from a few of the observations: [groups + 1, groups + 1]."""
    size, sample = len(numbers), parts[0].offsets.shape[1]
    few = int(np.clip(MOST_HESSIAN_WORK // (sample * size**2), 10, 200))
    total = sum(len(part.shares) for part in parts)
    stride = max(total // few, 1)  # one of so many is looked at
    curvature, share_of_few = np.zeros((size, size)), 0.0
    for part in parts:
        sample_part = replace(
            part,
            differences=part.differences[::stride],
            offsets=part.offsets[::stride],
            of_outside=part.of_outside[::stride],
            shares=part.shares[::stride],
        )
        probabilities, _ = sample_part.odds(numbers)
        means = sample_part.means(probabilities)
        weighted = sample_part.differences * (probabilities * sample_part.shares[:, None])[:, None]
        curvature += np.tensordot(weighted, sample_part.differences, ((0, 2), (0, 2)))
        curvature -= (means * sample_part.shares[:, None]).T @ means
        share_of_few += float(sample_part.shares.sum())
    scaled: Floats = curvature * (sum(float(part.shares.sum()) for part in parts) / share_of_few)
    return scaled


def log_shares_of_rows(observations: Observations, rows: Int64s, numbers: Floats) -> Floats:
    """Log p of some rows and the sample, [rows, sample]."""
    queries = np.einsum("oge,g->oe", observations.vectors[rows].astype(np.float64), numbers[:-1])
    logits = queries @ observations.candidates.T + observations.prior + numbers[-1] * observations.log_counts
    top = logits.max(axis=1, keepdims=True)
    return np.asarray(logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True)))


ValueAndGradient: TypeAlias = Callable[[Floats], tuple[float, Floats]]


def minimum(value_and_gradient: ValueAndGradient, start: Floats, inverse_curvature: Floats) -> Floats:
    """Where a convex function is smallest, by the method of Broyden, Fletcher, Goldfarb and Shanno (1970).

    Args:
        value_and_gradient: The function and its gradient.
        start: Where to begin.
        inverse_curvature: About the inverse of the second derivatives there.

    Returns:
        The numbers.

    """
    with np.errstate(over="ignore", invalid="ignore"):  # a step too far is taken back
        return _minimum(value_and_gradient, start.copy(), inverse_curvature)


def _minimum(value_and_gradient: ValueAndGradient, numbers: Floats, inverse: Floats) -> Floats:
    value, gradient = value_and_gradient(numbers)
    for _ in range(MOST_STEPS):
        if np.abs(gradient).max() < TOLERANCE:
            break
        direction = -inverse @ gradient
        slope = float(gradient @ direction)
        if -slope / 2 < LEAST_GAIN * (1 + abs(value)):
            return numbers + direction
        length = 1.0
        new_value, new_gradient = value_and_gradient(numbers + direction)
        while not new_value <= value + 1e-4 * length * slope and length > 1e-6:
            length /= 2
            new_value, new_gradient = value_and_gradient(numbers + length * direction)
        if length <= 1e-6 or value - new_value < 1e-9 * (1 + abs(value)):
            break
        step, change = length * direction, new_gradient - gradient
        numbers, value, gradient = numbers + step, new_value, new_gradient
        along = float(step @ change)
        if along > 0:
            shrink = np.eye(len(numbers)) - np.outer(step, change) / along
            inverse = shrink @ inverse @ shrink.T + np.outer(step, step) / along
    return numbers


# --- lists ----------------------------------------------------------------------------------------------------------

RIDGE_OF_LISTS = 4.0
CLASSES_PER_NAT = 128  # of log p, by which sums over candidates are taken
LEAST_LOG_P = -1000.0  # below it all are one class, of no weight
SHARES_AT_ONCE = 1 << 17  # log p, which the caches of a core hold


def fitted_list_numbers(
    log_shares: Array, weights: Floats, is_member: Bools, default_size: float
) -> tuple[float, float]:
    """The size a and the slope s in the probability 1 - exp(-exp(a) p^s) that a list holds a candidate.

    Args:
        log_shares: log p of each row and candidate, [rows, sample].
        weights: How many candidates each stands for, [sample].
        is_member: Which are in the row's list, [rows, sample].
        default_size: The default of a; that of s is 1.

    Returns:
        The two numbers.

    """
    row_of_member, place_of_member = np.nonzero(is_member)
    log_p_of_members = log_shares[row_of_member, place_of_member].astype(np.float64)
    log_p_of_rest, rest = classes_of_rest(log_shares, weights, is_member)
    default = np.array([default_size, 1.0])

    def penalised(numbers: Floats) -> tuple[float, Floats]:
        expected = np.exp(numbers[0] + numbers[1] * log_p_of_rest) * rest
        of_members = np.maximum(np.exp(numbers[0] + numbers[1] * log_p_of_members), 1e-300)
        value = float(expected.sum()) - float(np.log(-np.expm1(-of_members)).sum())
        factor = of_members / np.expm1(np.minimum(of_members, 700.0))
        gradient = np.array([expected.sum(), expected @ log_p_of_rest])
        gradient -= [factor.sum(), factor @ log_p_of_members]
        distance = numbers - default
        return value + RIDGE_OF_LISTS / 2 * float(distance @ distance), gradient + RIDGE_OF_LISTS * distance

    scale = 1 / (RIDGE_OF_LISTS + max(len(row_of_member), 1))
    size, slope = minimum(penalised, default, np.diag([scale, scale / 10])).tolist()
    return size, max(slope, 0.05)


def classes_of_rest(log_shares: Array, weights: Floats, is_member: Bools) -> tuple[Floats, Floats]:
    """The candidates that are in no list, as classes of nearly the same log p.

    A sum of w p^s over a class is W exp(s m) (1 + (s d)^2 / 2) with the mean m and the deviation d of log p, and d is
    at most 1 / (2 CLASSES_PER_NAT).

    Args:
        log_shares: log p of each row and candidate, [rows, sample].
        weights: How many candidates each stands for, [sample].
        is_member: Which are in the row's list, [rows, sample].

    Returns:
        The mean log p of each class, and how many candidates it stands for: [classes] each.

    """
    lowest = max(float(log_shares.min(initial=0.0)), LEAST_LOG_P)
    size = int(-lowest * CLASSES_PER_NAT) + 1
    totals, sums = np.zeros(size), np.zeros(size)
    for block in blocks(len(log_shares), max(SHARES_AT_ONCE // max(log_shares.shape[1], 1), 1)):
        log_p = np.maximum(log_shares[block], lowest)  # [block, sample]
        classes = np.minimum(log_p * -CLASSES_PER_NAT, size - 1).astype(np.int64)
        of_block = weights * ~is_member[block]
        totals += np.bincount(classes.ravel(), of_block.ravel(), size)
        sums += np.bincount(classes.ravel(), (of_block * log_p).ravel(), size)
    is_there = totals > 0
    return sums[is_there] / totals[is_there], totals[is_there]
