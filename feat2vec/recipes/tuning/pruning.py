"""A trial measured while it trains, and stopped if it is worse than most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import keras

from feat2vec.errors import FailedError, UserError
from feat2vec.evaluation.beside import TaskOptions, evaluate_beside
from feat2vec.evaluation.tasks import evaluate
from feat2vec.recipes.ranges import Measure
from feat2vec.table.table import Table
from feat2vec.training.run_folder import TrainedRun

if TYPE_CHECKING:
    import optuna

TENTHS = 10  # a trial is measured so many times while it trains


class PrunedError(Exception):
    """A trial that is worse than most were by then."""


class PruningCallback(keras.callbacks.Callback):
    """Measures a trial at each tenth of its epochs, and stops it where it is worse than the median of the others.

    It measures what the trial is judged by in the end, as the losses of trials need not be comparable.
    """

    def __init__(self, trial: optuna.Trial, measure: Measure | None, validation: Table, epochs: int) -> None:
        super().__init__()
        self.trial, self.measure, self.validation, self.epochs = trial, measure, validation, epochs
        self.last_tenth = 0

    @cached_property
    def run(self) -> TrainedRun:
        """The model that is trained, as a run: its weights are always the latest."""
        return TrainedRun.of_model(self.model)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        tenth = (epoch + 1) * TENTHS // self.epochs
        if tenth == self.last_tenth or epoch + 1 == self.epochs or self.model.stop_training:
            return
        self.last_tenth = tenth
        if self.measure is None:
            value = finite("validation loss", float((logs or {})["val_loss"]))
        else:
            value = measured(self.run, self.validation, self.measure)
        self.trial.report(value, tenth)
        if self.trial.should_prune():
            raise PrunedError(f"pruned after epoch {epoch + 1}, at {value:.4g}")


def measured(run: TrainedRun, data: Table, measure: Measure) -> float:
    """The number that a run is judged by; of a rank without a target, the mean over all lookup groups."""
    if measure.task == "rank" and measure.target is None:
        groups = evaluate_beside(run, data, "rank", options=TaskOptions(similarity=measure.similarity))["groups"]
        values = [facts[measure.metric] for facts in groups.values() if facts[measure.metric] is not None]
        return finite(measure.metric, sum(values) / len(values) if values else None)
    facts = evaluate(
        run,
        data,
        measure.task,
        target=measure.target,
        given=measure.given,
        similarity=measure.similarity,
        level=measure.level,
    )
    return finite(measure.metric, facts.get(measure.metric))


def finite(name: str, value: object) -> float:
    """A metric that is a finite number; anything else raises."""
    if isinstance(value, Mapping):
        raise UserError(f"tune.measure: {name} is a number for each of {', '.join(value)}; take one column")
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise FailedError(f"the {name} is {value}")
    return float(value)


__all__ = ["PrunedError", "PruningCallback", "finite", "measured"]
