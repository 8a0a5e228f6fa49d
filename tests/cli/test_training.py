"""What `train` and `finetune` print of a new run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from feat2vec.cli.training import loss_of_predictions

HELD_OUT = {"loss": 0.9, "held_out": 26, "held_out_loss": 0.25, "kept_epoch": 3}
SCRATCH = {"loss": 0.8, "held_out": 26, "held_out_loss": 0.5, "kept_epoch": 7}


def run(metrics: dict[str, Any], scratch: dict[str, Any] | None = None) -> Any:
    """A run with metrics, and one beside it that `finetune` learnt from scratch."""
    schema = SimpleNamespace(training=SimpleNamespace(epochs=9))
    return SimpleNamespace(metrics=metrics, schema=schema, from_scratch=None if scratch is None else run(scratch))


@pytest.mark.parametrize(
    ("metrics", "scratch", "text"),
    [
        ({"loss": 0.9}, None, "loss 0.9000"),
        (HELD_OUT, None, "epoch 3 of 9, loss 0.2500 on 26 held-out rows"),
        (
            {**HELD_OUT, "share_from_scratch": 0.4, "loss_of_both": 0.125},
            SCRATCH,
            "loss 0.1250 of the mean of both on held-out rows",
        ),
        (
            {**HELD_OUT, "share_from_scratch": 1.0},
            SCRATCH,
            "predictions from scratch alone: epoch 7 of 9, loss 0.5000 on 26 held-out rows",
        ),
        (
            {"loss": 0.9, "share_from_scratch": 0.5},
            {"loss": 0.8},
            "the mean of two models: from the run's vectors loss 0.9000; from scratch loss 0.8000",
        ),
    ],
)
def test_the_loss_is_that_of_what_predicts(metrics: dict[str, Any], scratch: dict[str, Any] | None, text: str) -> None:
    assert loss_of_predictions(run(metrics, scratch)) == text
