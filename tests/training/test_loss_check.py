"""A loss that is not finite ends a training with a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from feat2vec.errors import FailedError
from feat2vec.run import train
from tests.training.tables import LABELLED, table


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    schema = {**LABELLED, "objective": {"type": "regression", "target": "good"}}
    settings = ["training.optimizer.learning_rate=1e30", "training.checkpoint_minutes=1e-9"]
    with pytest.raises(
        FailedError, match=r"the loss is (nan|inf) at step \d+ \(epoch \d\); the largest weight, .* group '\w+'"
    ):
        train(schema, table(300), tmp_path / "run", settings=settings, quiet=True)
    assert not (tmp_path / "run").exists()
