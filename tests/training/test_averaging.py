"""Averaging over epochs: by its formula, in validation, and at the end that a user asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest

from feat2vec.evaluation.prediction import predict
from feat2vec.run import train
from feat2vec.training.averaging import EpochAveraging, WeightsInFile
from tests import short_trainings
from tests.training.callbacks import WeightsOfEpochs
from tests.training.tables import AVERAGED, LABELLED, SCHEMA, small_model, table


class Halt(keras.callbacks.Callback):
    """Asks for the end of training after so many executions, or at the end of an epoch."""

    def __init__(self, executions: int = 0, epoch: int | None = None) -> None:
        super().__init__()
        self.left, self.epoch = executions, epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self.left -= 1
        self.model.stop_training |= self.left == 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        self.model.stop_training |= epoch == self.epoch


@pytest.mark.slow
@pytest.mark.parametrize(("halt", "validation_rows"), [(Halt(executions=3), None), (Halt(epoch=1), table(90, 1))])
def test_a_users_callback_ends_training_with_the_average(halt: Halt, validation_rows: pa.Table | None) -> None:
    seen = WeightsOfEpochs()
    settings = ["training.batch_size=16", "training.patience=0"]  # 32 steps, two executions an epoch
    run = train(AVERAGED, table(500), None, validation_rows, quiet=True, callbacks=[halt, seen], settings=settings)
    assert run.metrics["epochs"] == len(run.history) == 2
    for variable, mean in zip(run.model.trainable_variables, seen.epochs[-1], strict=True):
        np.testing.assert_array_equal(variable.numpy(), mean)


@pytest.mark.slow
def test_averaging_keeps_the_mean_of_epochs_that_fade() -> None:
    rows, validation_rows = table(300), table(90, 1)
    seen, means = WeightsOfEpochs(), WeightsOfEpochs()
    plain = ["training.epochs=4", "training.patience=0"]
    train(SCHEMA, rows, validation=validation_rows, quiet=True, callbacks=[seen], settings=plain)
    run = train(AVERAGED, rows, validation=validation_rows, quiet=True, callbacks=[means], settings=plain)
    for epoch, averages in enumerate(means.epochs):
        fading = 0.6 ** np.arange(epoch, -1, -1)
        # For each variable its values at the ends of these epochs.
        values_by_variable = zip(*seen.epochs[: epoch + 1], strict=True)
        for values, average in zip(values_by_variable, averages, strict=True):
            np.testing.assert_allclose(average, np.average(values, axis=0, weights=fading), atol=1e-6)
    for variable, mean in zip(run.model.trainable_variables, means.epochs[-1], strict=True):
        np.testing.assert_array_equal(variable.numpy(), mean)
    assert not np.allclose(means.epochs[-1][0], seen.epochs[-1][0])


def test_what_is_validated_is_the_average(tmp_path: Path) -> None:
    validation_rows = table(45, 1)  # too few to calibrate the answers by
    run = short_trainings.train(
        {**LABELLED, "training": {**LABELLED["training"], "averaging": 0.8, "batch_size": 100}},
        table(300),
        tmp_path / "run",
        validation_rows,
        quiet=True,
    )
    metrics = predict(run, validation_rows)
    assert metrics["log_loss"] == pytest.approx(run.history[run.metrics["kept_epoch"] - 1]["val_loss"], rel=1e-5)


def filled(model: Any, value: float) -> None:
    for weight in model.weights:
        weight.assign(np.full(weight.shape, value, weight.dtype))


def value_of(model: Any) -> float:
    """The number that all weights hold."""
    (value,) = {float(number) for weight in model.weights for number in np.unique(weight.numpy())}
    return value


@pytest.mark.parametrize("is_validated", [False, True])
def test_the_average_follows_its_formula_and_training_goes_on_from_its_own_weights(
    is_validated: bool, tmp_path: Path
) -> None:
    model = small_model()
    averaging, ends_of_epochs = EpochAveraging(model, 0.5, WeightsInFile(tmp_path / "aside")), [1.0, 3.0, -2.0]
    for epoch, trained in enumerate(ends_of_epochs):
        averaging.on_epoch_begin(epoch)
        if epoch:
            assert value_of(model) == ends_of_epochs[epoch - 1]  # not the average
        filled(model, trained)
        if is_validated:
            averaging.on_test_begin()
        averaging.on_epoch_end(epoch)
        factors = 0.5 ** np.arange(epoch, -1, -1)
        assert value_of(model) == pytest.approx(np.average(ends_of_epochs[: epoch + 1], weights=factors), abs=1e-6)
