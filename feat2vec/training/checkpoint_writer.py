"""How a training writes its checkpoints: whole, or as what has changed since the last whole one, where that is less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from feat2vec.training.checkpoint_file import (
    Arrays,
    commit_changes,
    commit_checkpoint,
    fill_changes,
    fill_checkpoint,
)

LEAST_WHOLE_BYTES = 64 << 20  # a smaller checkpoint is written whole: that takes no longer than to compare it
MOST_CHANGED = 2 / 3  # of the whole checkpoint


class CheckpointWriter:
    """Writes the checkpoints of a training.

    Rows of a large table that no step has touched since the last whole checkpoint are not written again. How many those
    are, only the comparison says. It falls as steps are made: so it is not tried again after as many steps as were
    too many once.

    Args:
        path: The file of whole checkpoints.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._steps_of_whole = 0  # how many had been made when the last whole checkpoint was written
        self._too_many_steps: int | None = None  # since then; after so many, most has changed

    def fill(self, facts: Mapping[str, object], arrays: Callable[[], Arrays], steps: int) -> Callable[[], None]:
        """Write a new checkpoint beside the one before, which stays until the new one is committed.

        Args:
            facts: Its facts.
            arrays: Makes its arrays; it is called again if they turn out to have changed too much.
            steps: How many steps the training has made.

        Returns:
            What commits the checkpoint, once the disk has it.

        """
        since_whole = steps - self._steps_of_whole
        if self._may_help(since_whole):
            if fill_changes(self.path, facts, arrays(), MOST_CHANGED * self.path.stat().st_size):
                return partial(commit_changes, self.path)
            self._too_many_steps = since_whole
        fill_checkpoint(self.path, facts, arrays())
        self._steps_of_whole = steps
        return partial(commit_checkpoint, self.path)

    def _may_help(self, since_whole: int) -> bool:
        if self._too_many_steps is not None and since_whole >= self._too_many_steps:
            return False
        return self.path.exists() and self.path.stat().st_size >= LEAST_WHOLE_BYTES
