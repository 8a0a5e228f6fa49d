"""Variables come back from a checkpoint, tables in pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from feat2vec.training.checkpoint_file import open_checkpoint, write_checkpoint
from feat2vec.training.checkpoint_variables import restore_variable, streamed_variable
from tests.training.tables import small_model


def test_variables_are_restored_from_a_checkpoint(tmp_path: Path) -> None:
    model = small_model()
    model.compile()
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    before = [np.array(variable) for variable in variables]
    assert {array.ndim for array in before} >= {0, 2}
    arrays = {f"state {i}": streamed_variable(variable) for i, variable in enumerate(variables)}
    write_checkpoint(tmp_path / "c.npz", {}, arrays)
    for variable in variables:
        variable.assign(np.zeros(variable.shape, np.array(variable).dtype))
    with open_checkpoint(tmp_path / "c.npz", bytes_per_read=16) as checkpoint:
        for i, variable in enumerate(variables):
            restore_variable(checkpoint, f"state {i}", variable)
    for variable, expected in zip(variables, before, strict=True):
        np.testing.assert_array_equal(np.array(variable), expected)
