"""Predictions of two models: of a run that `finetune` wrote, and of the same head from scratch, which it keeps beside.

Few labels do not tell which of the two is better, and their errors differ: the mean of both is seldom worse than the
better one. The share of each follows from held-out rows as far as these are many.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from feat2vec.arrays import Array, Float32s, Floats
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.targets import targets_of
from feat2vec.schema.objectives.base import ObjectiveSpec
from feat2vec.space.predict import Predictor, ScoresOfRows
from feat2vec.training.chosen_model import Additions, ChosenModel
from feat2vec.training.run_folder import TrainedRun

HELD_OUT_SCORES = "held_out_scores.npy"  # a file of a run: float64 [rows, 2 + outputs]; first the row, then its target
SHARE_FROM_SCRATCH, LOSS_OF_BOTH = "share_from_scratch", "loss_of_both"  # in metrics.json
EVEN, ALL_FROM_SCRATCH = 0.5, 1.0
PRIOR = 3.0  # how sure it is before held-out rows are seen that both count about as much
SHARES = [round(0.02 * i, 2) for i in range(1, 50)]
SMALLEST = 1e-30
LEAST_PROBABILITY = 1e-12


def predictor_of(run: TrainedRun, level: int | None = None) -> Predictor:
    """What predicts by a run: its model, or the mean of that and of the model that it keeps beside.

    Args:
        run: The run.
        level: The submodel, of a model with `ranks`, which predicts alone.

    Returns:
        The predictor.

    Raises:
        UserError: There is no such level.

    Example:
        >>> predictor_of(run).predict(films)["score"].shape
        (60,)

    """
    if run.from_scratch is None or level is not None:
        return Predictor(run.fitted, run.model_for_scores(), level)
    share = float(run.metrics.get(SHARE_FROM_SCRATCH, EVEN))
    return Mixture(run, run.from_scratch, share)


class Mixture(Predictor):
    """The mean of the answers of two models, which read the same rows by encoders of their own.

    Args:
        first: A run.
        second: Another run with the same target and objective.
        share: What the second one counts.

    Example:
        >>> Mixture(run, run, 0.5).predict(films)["score"].shape
        (60,)

    """

    def __init__(self, first: TrainedRun, second: TrainedRun, share: float) -> None:
        super().__init__(first.fitted, first.model_for_scores())
        self.second, self.share = Predictor(second.fitted, second.model_for_scores()), share
        names_of_groups = {name: f"{name} from scratch" for name in second.fitted.codecs}
        while set(names_of_groups.values()) & set(first.fitted.codecs):
            names_of_groups = {name: f"{longer} " for name, longer in names_of_groups.items()}
        self.names_in_second = {in_both: name for name, in_both in names_of_groups.items()}
        self.row_encoder = _joined(first.fitted, second.fitted, names_of_groups)

    @contextmanager
    def _scores_of_inputs(self) -> Iterator[Callable[[Mapping[str, Array]], ScoresOfRows]]:
        with super()._scores_of_inputs() as first, self.second._scores_of_inputs() as second:

            def scores_of_inputs(inputs: Mapping[str, Array]) -> ScoresOfRows:
                own_inputs = {name: inputs[name] for name in self.encoder.codecs}
                by_first = first(own_inputs)
                by_second = second({name: inputs[in_both] for in_both, name in self.names_in_second.items()})
                return lambda rows: mixed(self.objective, by_first(rows), by_second(rows), self.share)

            yield scores_of_inputs


def _joined(first: Encoder, second: Encoder, names: Mapping[str, str]) -> Encoder:
    """An encoder of the groups of both; those of the second one have other names."""
    groups = {}
    for name, group in second.schema.groups.items():
        share = None if group.share is None else names[group.share]
        groups[names[name]] = group.model_copy(update={"share": share})
    schema = first.schema.model_copy(update={"groups": {**first.schema.groups, **groups}})
    codecs = {names[name]: codec for name, codec in second.codecs.items()}
    values = {names[name]: of_group for name, of_group in second.values.items()}
    return replace(first, schema=schema, codecs={**first.codecs, **codecs}, values={**first.values, **values})


def mixed(objective: ObjectiveSpec, first: Floats | Float32s, second: Floats | Float32s, share: float) -> Float32s:
    """The scores whose answers are the mean of those of two models.

    Args:
        objective: What the models have learnt: numbers are averaged, of other objectives the probabilities.
        first: The scores of one, [rows] or [rows, classes].
        second: The scores of the other.
        share: What the other counts.

    Returns:
        Scores of the same shape.

    """
    a, b = first.astype(np.float64), second.astype(np.float64)
    if objective.standardizes:
        return ((1 - share) * a + share * b).astype(np.float32)
    if objective.has_classes:
        mean = (1 - share) * _class_probabilities(a) + share * _class_probabilities(b)
        return np.log(np.maximum(mean, LEAST_PROBABILITY)).astype(np.float32)
    ones = (1 - share) * np.exp(-np.logaddexp(0, -a)) + share * np.exp(-np.logaddexp(0, -b))
    zeros = (1 - share) * np.exp(-np.logaddexp(0, a)) + share * np.exp(-np.logaddexp(0, b))
    log_odds = np.log(np.maximum(ones, LEAST_PROBABILITY)) - np.log(np.maximum(zeros, LEAST_PROBABILITY))
    return log_odds.astype(np.float32)


def _class_probabilities(scores: Floats) -> Floats:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


# --- what each counts ------------------------------------------------------------------------------------------------


def held_out_scores(chosen: ChosenModel) -> Additions:
    """Keep what a model that held-out rows chose says of them, for `weigh`.

    Args:
        chosen: The model and its rows.

    Returns:
        A file of its run.

    """
    run = chosen.run
    score_parts, target_parts = [], []
    for part in Predictor(run.fitted, run.model_for_scores()).batches(chosen.held_out, (str(run.schema.target),)):
        score_parts.append(part.scores)
        if part.rows.start == 0:  # a stage begins
            target_parts.append(targets_of(run.schema, part.stage, run.fitted.classes)[0])
    scores, targets = np.concatenate(score_parts), np.concatenate(target_parts)
    file = io.BytesIO()
    np.save(file, np.column_stack([chosen.places, targets, scores]).astype(np.float64))
    return Additions(files={HELD_OUT_SCORES: file.getvalue()})


def weigh(objective: ObjectiveSpec, first: bytes | None, second: bytes | None) -> Additions:
    """Decide what each of two models counts, by the rows that neither was trained on.

    These may be fewer than each has held out: their last rows by `training.time` may differ.

    Their share w is the most probable after n held-out rows, where it was expected to be near a half before:

        n L(w) - PRIOR (log w + log (1 - w))  is least,

    with the mean log loss L of the mixture; of numbers it is half of the logarithm of their mean squared error.

    Args:
        objective: What both have learnt.
        first: What `held_out_scores` kept of the model that begins with the run's vectors; None if nothing.
        second: The same of the one from scratch.

    Returns:
        Metrics and a line that says them.

    """
    even = Additions({SHARE_FROM_SCRATCH: EVEN}, lines=["predictions are the mean of both"])
    if first is None or second is None:
        return even
    a, b = (np.load(io.BytesIO(scores), allow_pickle=False) for scores in (first, second))
    _, in_a, in_b = np.intersect1d(a[:, 0], b[:, 0], assume_unique=True, return_indices=True)
    a, b = a[in_a, 1:], b[in_b, 1:]
    if a.shape != b.shape or not np.array_equal(a[:, 0], b[:, 0]):
        return even
    is_known = a[:, 0] >= 0 if objective.has_classes else np.ones(len(a), np.bool_)
    a, b = a[is_known], b[is_known]
    if not len(a):
        return even

    def loss(share: float) -> float:
        return _loss(objective, mixed(objective, _scores(a), _scores(b), share), a[:, 0])

    share = min(SHARES, key=lambda share: _surprise(objective, loss(share), len(a)) - PRIOR * _log_expectation(share))
    facts = {"loss_from_run": loss(0), "loss_from_scratch": loss(1), LOSS_OF_BOTH: loss(share)}
    line = (
        f"loss on {len(a):,} held-out rows: {facts['loss_from_run']:.4g} from the run's vectors, "
        f"{facts['loss_from_scratch']:.4g} from scratch, {facts[LOSS_OF_BOTH]:.4g} of both, "
        f"of which {share:.0%} from scratch"
    )
    return Additions({SHARE_FROM_SCRATCH: share, **facts}, lines=[line])


def scratch_alone(target: str, first: bytes | None, second: bytes | None) -> Additions:
    """Let the model from scratch count alone, as the run has learnt the target of the labelled rows with the others.

    Its vectors of rare values know these rows' labels, those of held-out rows too, and nothing of the labels of new
    rows with the same values: held-out losses would choose the worse model.

    Args:
        target: The column.
        first: What `held_out_scores` kept of the model that begins with the run's vectors.
        second: The same of the one from scratch.

    Returns:
        Metrics and a line that says why.

    """
    del first, second
    return Additions(
        {SHARE_FROM_SCRATCH: ALL_FROM_SCRATCH}, lines=[f"{known_target(target)}; predictions are those from scratch"]
    )


def known_target(target: str) -> str:
    """The words for a run whose vectors know the labels of the rows that it is tuned on."""
    return f"the run was trained on these rows with {target!r}, which its vectors of rare values give away"


def _surprise(objective: ObjectiveSpec, loss: float, rows: int) -> float:
    """Minus the log likelihood of rows with this mean loss, but for a constant."""
    return rows / 2 * math.log(loss + SMALLEST) if objective.standardizes else rows * loss


def _log_expectation(share: float) -> float:
    return math.log(share) + math.log(1 - share)


def _scores(kept: Floats) -> Floats:
    return kept[:, 1] if kept.shape[1] == 2 else kept[:, 1:]


def _loss(objective: ObjectiveSpec, scores: Float32s, targets: Floats) -> float:
    """The mean loss of answers, in the targets' own unit."""
    exact = scores.astype(np.float64)
    if objective.standardizes:
        return float(np.mean(np.square(exact - targets)))
    from feat2vec.training.calibration import binary_loss, class_loss

    return class_loss(exact, targets) if objective.has_classes else binary_loss(exact, targets)


__all__ = ["Mixture", "held_out_scores", "known_target", "mixed", "predictor_of", "scratch_alone", "weigh"]
