"""What each level of a model with `ranks` costs and loses, and what theorem S1 of the RaFM paper bounds that by.

The submodels B_{1,1} .. B_{1,m} have one level more each; the last is the model. Theorem S1 adds up how far each is
from the next. For square losses with d the square root, by Minkowski:

    RMSE(B_{1,k}) <= RMSE(B_{1,m}) + sum over p = k .. m - 1 of sqrt(mean (B_{1,p} - B_{1,p+1})^2)

For log losses with d the identity, by proposition S3, with q_p the probability that B_{1,p} gives to what is true:

    loss(B_{1,k}) <= loss(B_{1,m}) + sum over p of (C_{theta,delta} mean KL(q_{p+1} || q_p) + log delta)
    C_{theta,delta} = log delta / (theta log delta + (1 - theta) log((1 - theta) / (1 - theta / delta)))

for any delta > 1 and theta = min q_{p+1}. (Equation S4 of the paper has the arguments of KL the other way round, and
theta delta for theta / delta; S6 and S7 have them as here.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feat2vec.arrays import Array, Floats
from feat2vec.encode.encoder import Encoder
from feat2vec.evaluation.noise_odds import noise_odds
from feat2vec.evaluation.norms_and_isotropy import counts_of, levels
from feat2vec.evaluation.prediction import scores_and_targets
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.objectives.base import ObjectiveSpec
from feat2vec.training.run_folder import TrainedRun

LOG_DELTAS = np.logspace(-4, 3, 71)  # of delta, of which the one with the least bound is taken


class LevelCost(NamedTuple):
    """What a level costs: by corollary 4 a row's score takes a multiple of the sum of D_k n(F_k) multiplications.

    Args:
        level: The level k, from 1.
        rank: D_k.
        values: |F_k|, the number of values that reach the level.
        occurrences: n(F_k), how many of them a row has, in the mean over the training rows.
        weights: How many numbers the level stores (proposition 1: about D_k |F_k|).
        multiplications: D_k n(F_k).

    Example:
        >>> (cost,) = feat2vec.diagnose.level_bounds(run).costs
        >>> cost.rank, cost.values, cost.occurrences, cost.multiplications
        (4, 35, 3.0, 12.0)

    """

    level: int
    rank: int
    values: int
    occurrences: float
    weights: int
    multiplications: float


class LevelLoss(NamedTuple):
    """The loss of a level's submodel on rows, and what follows from those above.

    Args:
        level: The level k, from 1.
        loss: That of B_{1,k}: the log loss, or the RMSE.
        bound: By theorem S1, with the smallest theta of all rows for log losses.
        row_by_row: By proposition S3 for each row by itself, which is tighter; the same as `bound` for the RMSE.

    Example:
        >>> rmse_bounds([np.zeros(2), np.ones(2)], np.ones(2))[0]
        LevelLoss(level=1, loss=1.0, bound=1.0, row_by_row=1.0)

    """

    level: int
    loss: float
    bound: float
    row_by_row: float


class LevelBounds(NamedTuple):
    """The levels of a model, and what each costs and loses.

    Args:
        costs: A record for each level.
        fm_multiplications: D_m n(F), what a factorization machine of the highest rank takes.
        measure: "log loss" or "RMSE", or that of an objective without a target; None without losses.
        rows: The number of rows that the losses are of.
        losses: A record for each level that is a model; none without rows, or if the levels are no models.

    Example:
        >>> levels = feat2vec.diagnose.level_bounds(run)
        >>> [(cost.rank, cost.values) for cost in levels.costs], levels.losses
        ([(4, 35)], ())

    """

    costs: tuple[LevelCost, ...]
    fm_multiplications: float
    measure: str | None
    rows: int
    losses: tuple[LevelLoss, ...]


# --- theorem S1 -----------------------------------------------------------------------------------------------------


def quasi_triangle_constant(theta: npt.ArrayLike, delta: npt.ArrayLike) -> Floats:
    """Return C_{theta,delta} of equation S7.

    Args:
        theta: Probabilities, above 0 and at most 1.
        delta: Numbers above 1, which are broadcast with them.

    Returns:
        The constants, of the shape of both. They fall with theta to 1 at theta = 1.

    Example:
        >>> quasi_triangle_constant([0.1, 0.5, 1.0], 2.0).round(3).tolist()
        [33.56, 4.819, 1.0]

    """
    return _constant(np.asarray(theta, np.float64), np.log(np.asarray(delta, np.float64)))


def _constant(thetas: Floats, log_delta: Floats | float) -> Floats:
    """C_{theta,delta} by the logarithm of delta."""
    below_one = np.minimum(thetas, 1 - 1e-16)
    of_others = (1 - below_one) * (np.log1p(-below_one) - np.log1p(-below_one * np.exp(-log_delta)))
    constant: Floats = log_delta / (thetas * log_delta + of_others)
    return constant


def binary_divergence(log_first: Floats, log_not_first: Floats, log_second: Floats, log_not_second: Floats) -> Floats:
    """Return KL(p || q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q)).

    Args:
        log_first: log p.
        log_not_first: log(1 - p).
        log_second: log q.
        log_not_second: log(1 - q).

    Returns:
        The divergence of each pair.

    Example:
        >>> half = np.log([0.5])
        >>> binary_divergence(half, half, np.log([0.25]), np.log([0.75])).round(4)
        array([0.1438])

    """
    with np.errstate(invalid="ignore"):  # 0 times an infinite logarithm
        of_first = np.where(log_first > -np.inf, np.exp(log_first) * (log_first - log_second), 0)
        of_others = np.where(log_not_first > -np.inf, np.exp(log_not_first) * (log_not_first - log_not_second), 0)
    divergences: Floats = np.maximum(of_first + of_others, 0)
    return divergences


class Truth(NamedTuple):
    """How probable a model finds what is true, decision by decision: [decisions] each.

    Args:
        log_true: log q.
        log_false: log(1 - q).

    """

    log_true: Floats
    log_false: Floats


def log_loss_bounds(truths: Sequence[Truth], decisions_per_row: float = 1.0) -> list[LevelLoss]:
    """Return the log loss of each level, and its bounds.

    Args:
        truths: What each level finds probable, of the same decisions.
        decisions_per_row: By how much the loss of a row is more than that of a decision.

    Returns:
        A record for each level.

    Example:
        >>> low, high = (Truth(np.log([p]), np.log([1 - p])) for p in (0.5, 0.8))
        >>> [(level.loss < level.row_by_row <= level.bound) for level in log_loss_bounds([low, high])]
        [True, False]

    """
    top = decisions_per_row * -float(truths[-1].log_true.mean())
    records = [LevelLoss(len(truths), top, top, top)]
    bound = row_by_row = top
    for level in range(len(truths) - 1, 0, -1):
        low, high = truths[level - 1], truths[level]
        divergence = binary_divergence(high.log_true, high.log_false, low.log_true, low.log_false)  # [decisions]
        bound += decisions_per_row * _least_step(float(divergence.mean()), float(np.exp(high.log_true.min())))
        row_by_row += decisions_per_row * float(_least_steps(divergence, np.exp(high.log_true)).mean())
        loss = decisions_per_row * -float(low.log_true.mean())
        records.append(LevelLoss(level, loss, bound, row_by_row))
    return records[::-1]


def _least_step(divergence: float, theta: float) -> float:
    """The least of C KL + log delta over values of delta; 0 if there is no divergence."""
    return float(_least_steps(np.array([divergence]), np.array([theta]))[0])


def _least_steps(divergences: Floats, thetas: Floats) -> Floats:
    """The same for each of many divergences with a theta of its own."""
    least = np.full(len(divergences), np.inf)
    for log_delta in LOG_DELTAS:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # theta may be 0, or nearly
            steps = _constant(thetas, float(log_delta)) * divergences + log_delta
        least = np.fmin(least, steps)
    return np.where(divergences > 0, least, 0)


def rmse_bounds(scores: Sequence[Floats], targets: Floats) -> list[LevelLoss]:
    """Return the RMSE of each level, and its bound.

    Args:
        scores: The scores of each level, [rows].
        targets: What they should be, [rows].

    Returns:
        A record for each level.

    Example:
        >>> [round(level.bound, 3) for level in rmse_bounds([np.array([0.0, 2.0]), np.ones(2)], np.ones(2))]
        [1.0, 0.0]

    """
    bound = _root_mean_square(scores[-1] - targets)
    records = [LevelLoss(len(scores), bound, bound, bound)]
    for level in range(len(scores) - 1, 0, -1):
        bound += _root_mean_square(scores[level - 1] - scores[level])
        records.append(LevelLoss(level, _root_mean_square(scores[level - 1] - targets), bound, bound))
    return records[::-1]


def _root_mean_square(numbers: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(numbers))))


# --- a run ----------------------------------------------------------------------------------------------------------


def level_bounds(run: TrainedRun, data: object = None) -> LevelBounds:
    """What each level of a run's model costs, and with rows what it loses and what theorem S1 bounds that by.

    Args:
        run: The run.
        data: Rows with the run's target; without a target in the schema any rows, which are told from drawn values.

    Returns:
        The levels.

    Raises:
        UserError: The rows have no target, or cannot be read.

    Example:
        >>> feat2vec.diagnose.level_bounds(run).costs[0].occurrences
        3.0

    """
    costs = tuple(level_costs(run.model, run.fitted, int(run.metrics["rows"])))
    fm_multiplications = run.schema.model.levels.ranks[-1] * costs[0].occurrences
    without_losses = LevelBounds(costs, fm_multiplications, None, 0, ())
    submodels, objective = run.schema.model.levels.submodels, run.schema.objective
    if data is None or submodels == 1:
        return without_losses
    if run.schema.target is None:
        odds = noise_odds(run, data)
        if odds is None:
            return without_losses
        truths = [truth_of_odds(level) for level in odds.levels]
        losses = log_loss_bounds(truths, len(odds.levels[0]) / odds.rows)
        return LevelBounds(costs, fm_multiplications, f"{objective.type} loss", odds.rows, tuple(losses))
    measured = [scores_and_targets(run, data, level) for level in range(1, submodels + 1)]
    targets, scores = measured[0].targets, [of_level.scores for of_level in measured]
    if objective.has_classes or objective.is_binary:
        measure, losses = "log loss", log_loss_bounds([truth_of_scores(objective, level, targets) for level in scores])
    else:
        measure, losses = "RMSE", rmse_bounds(scores, objective.link(targets))
    return LevelBounds(costs, fm_multiplications, measure, len(targets), tuple(losses))


def truth_of_scores(objective: ObjectiveSpec, scores: Floats, targets: Array) -> Truth:
    """Return how probable scores make the targets.

    Args:
        objective: Of labels that are 0 or 1, or of classes.
        scores: The scores, [rows] or [rows, classes].
        targets: The labels or numbers of classes, [rows].

    Returns:
        The logarithms, [rows] each.

    """
    if objective.has_classes:
        classes = targets.astype(np.int64)[:, None]  # [rows, 1]
        of_target = np.take_along_axis(scores, classes, axis=1)[:, 0]
        rivals = scores.copy()
        np.put_along_axis(rivals, classes, -np.inf, axis=1)
        odds = of_target - np.logaddexp.reduce(rivals, axis=1)
    else:
        odds = np.where(targets > 0, scores, -scores)
    return truth_of_odds(odds)


def truth_of_odds(odds: Floats) -> Truth:
    """Return the logarithms of sigmoid(odds) and sigmoid(-odds)."""
    return Truth(-np.logaddexp(0, -odds), -np.logaddexp(0, odds))


def level_costs(model: Feat2Vec, encoder: Encoder, rows: int) -> list[LevelCost]:
    """What each level of a model costs.

    Args:
        model: The model.
        encoder: Its encoder.
        rows: The number of training rows.

    Returns:
        A record for each level.

    Example:
        >>> [cost.multiplications for cost in level_costs(run.model, run.fitted, 60)]
        [12.0]

    """
    model_levels = model.schema.model.levels
    ranks, dims = model_levels.ranks, model_levels.dims  # D_k, and how many numbers level k stores for a value
    values, occurrences, weights = ([0] * len(ranks) for _ in range(3))
    for name in model.groups:
        counts = counts_of(model, encoder, name)  # of keys descending, and so are their levels
        sizes = [size for size in levels(model, name, len(counts)) if size.level > 0]
        for k, size in enumerate(sizes):
            reaching = sum(higher.values for higher in sizes[k:])
            values[k] += reaching
            occurrences[k] += int(counts[:reaching].sum())
            weights[k] += size.parameters
    costs = []
    for k, rank in enumerate(ranks):
        per_row = occurrences[k] / max(rows, 1)
        costs.append(LevelCost(k + 1, rank, values[k], per_row, weights[k], dims[k] * per_row))
    return costs
