"""When a training writes a whole checkpoint, and when what has changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feat2vec.arrays import Array
from feat2vec.training import checkpoint_writer
from feat2vec.training.checkpoint_file import read_checkpoint
from feat2vec.training.checkpoint_writer import CheckpointWriter

ROWS, DIM = 4000, 16


class Table:
    """A table of which each step changes as many rows, and the steps that were made."""

    def __init__(self, rows_per_step: int) -> None:
        self.numbers, self.rows_per_step, self.steps = np.zeros((ROWS, DIM), np.float32), rows_per_step, 0

    def learn(self, steps: int) -> None:
        first = self.steps * self.rows_per_step
        self.numbers[first % ROWS : first % ROWS + steps * self.rows_per_step] += 1
        self.steps += steps


def bytes_written(writer: CheckpointWriter, table: Table, steps: int) -> int:
    """Learn, save, and compare what is read; return the size of what was written."""
    table.learn(steps)
    commit = writer.fill({"steps": table.steps}, lambda: {"a": table.numbers}, table.steps)
    written = sum(path.stat().st_size for path in writer.path.parent.glob("*.new"))
    commit()
    facts, arrays = read_checkpoint(writer.path)
    assert facts == {"steps": table.steps}
    np.testing.assert_array_equal(arrays["a"], table.numbers)
    return written


@pytest.fixture
def are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small checkpoints be compared with those before."""
    monkeypatch.setattr(checkpoint_writer, "LEAST_WHOLE_BYTES", 1)


@pytest.mark.usefixtures("are_compared")
def test_what_changed_is_written_while_it_is_little(tmp_path: Path) -> None:
    table, writer = Table(rows_per_step=10), CheckpointWriter(tmp_path / "c.npz")
    whole = ROWS * DIM * 4
    written = [bytes_written(writer, table, 100) for _ in range(6)]  # a quarter of the rows each
    # A quarter and a half of the rows since the whole one; three quarters are too many, and so are they from then on.
    assert [round(size / whole, 1) for size in written] == [1, 0.3, 0.5, 1, 0.3, 0.5]


@pytest.mark.usefixtures("are_compared")
def test_what_was_too_much_once_is_not_tried_again(tmp_path: Path) -> None:
    table, writer = Table(rows_per_step=10), CheckpointWriter(tmp_path / "c.npz")
    asked = []

    def arrays() -> dict[str, Array]:
        asked.append(table.steps)
        return {"a": table.numbers}

    for _ in range(4):
        table.learn(400)
        writer.fill({}, arrays, table.steps)()
    assert asked == [400, 800, 800, 1200, 1600]


def test_a_small_checkpoint_is_written_whole(tmp_path: Path) -> None:
    table, writer = Table(rows_per_step=1), CheckpointWriter(tmp_path / "c.npz")
    assert bytes_written(writer, table, 1) == bytes_written(writer, table, 1) > ROWS * DIM * 4
