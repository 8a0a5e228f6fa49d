"""Early stopping: when it stops, and which weights it keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feat2vec.errors import UserError
from feat2vec.run import train
from feat2vec.training.checkpoint_file import open_checkpoint, write_checkpoint
from feat2vec.training.patience import Patience
from tests.training.tables import LABELLED, small_model, table


@pytest.mark.slow
def test_early_stopping_restores_the_best_weights(tmp_path: Path) -> None:
    settings = ["training.epochs=60", "training.patience=2", "training.optimizer.learning_rate=0.2"]
    schema = {
        **LABELLED,
        "model": {"dim": 8, "bias": True},
        "groups": {"who": {"column": "who"}, "title": {"column": "title"}},
    }
    run = train(schema, table(150), tmp_path / "run", table(100, 1), settings=settings, quiet=True)
    losses = [row["val_loss"] for row in run.history]
    best = int(np.argmin(losses))
    assert len(losses) == best + 3 < 60
    assert run.metrics["kept_epoch"] == best + 1
    validation_rows = run.fitted.encode(table(100, 1))
    run.model.compile()
    assert run.model.evaluate(run.model.dataset(validation_rows, shuffle=False), verbose=0) == pytest.approx(
        losses[best], abs=1e-5
    )
    patient = train(
        schema,
        table(150),
        None,
        table(100, 1),
        settings=[*settings, "training.patience=0", "training.epochs=12"],
        quiet=True,
    )
    assert patient.metrics["kept_epoch"] == 12


def test_it_stops_after_epochs_that_are_no_better_also_where_some_were_in_a_session_before(tmp_path: Path) -> None:
    model = small_model()
    lines: list[str] = []
    patience = Patience(model, 2, tmp_path / "best", lines.append)
    best_weights = [weight.numpy() for weight in model.weights]
    patience.on_epoch_end(0, {"loss": 9.0})  # nothing was validated
    assert patience.kept_epoch(1) == 1
    for epoch, loss in ((1, 0.5), (2, 0.6)):
        patience.on_epoch_end(epoch, {"val_loss": loss})
        for weight in model.weights:
            weight.assign(weight.numpy() + 1)
    assert not patience.has_stopped
    facts = {**patience.facts(), "history": [{"loss": 9.0}, {"val_loss": 0.5}, {"val_loss": 0.6}]}
    for change in ({"best": 0.4}, {"waited": 0}, {"stopped": True}):
        write_checkpoint(tmp_path / "c.npz", {**facts, **change}, patience.arrays())
        with open_checkpoint(tmp_path / "c.npz") as checkpoint, pytest.raises(UserError, match="not what its history"):
            Patience(model, 2, tmp_path / "none", lines.append).restore(checkpoint)
    write_checkpoint(tmp_path / "c.npz", facts, patience.arrays())

    resumed = Patience(model, 2, tmp_path / "best of the next session", lines.append)
    with open_checkpoint(tmp_path / "c.npz") as checkpoint:
        resumed.restore(checkpoint)
    resumed.on_epoch_end(3, {"val_loss": float("nan")})
    assert resumed.has_stopped
    assert resumed.model.stop_training
    assert resumed.kept_epoch(4) == 2
    assert lines == ["no better for 2 epochs: back to epoch 2"]
    resumed.restore_best_weights()
    for weight, expected in zip(model.weights, best_weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected)


def test_without_patience_nothing_is_kept(tmp_path: Path) -> None:
    patience = Patience(small_model(), 0, tmp_path / "best", print)
    for epoch, loss in enumerate((0.5, 0.6, 0.7)):
        patience.on_epoch_end(epoch, {"val_loss": loss})
    assert not patience.has_stopped
    assert patience.kept_epoch(3) == 3
    assert patience.arrays() == {}
    assert not list(tmp_path.iterdir())
