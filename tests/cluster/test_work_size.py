"""How many steps the chief hands out at once."""

from __future__ import annotations

import pytest

from feat2vec.cluster.work_size import CHIEF_SHARE, MOST_SECONDS, WorkSize


@pytest.mark.parametrize(
    ("workers", "step_seconds", "piece_seconds", "steps"),
    [
        (1, 0.1, 0.002, 1),  # the chief's time is a fiftieth of a step
        (1, 0.02, 0.002, 5),
        (4, 0.02, 0.002, 20),
        (16, 0.02, 0.002, 25),  # half a second
        (64, 0.005, 0.002, 64),
        (2, 2.0, 0.5, 1),
    ],
)
def test_the_chief_has_little_to_do_and_a_piece_takes_no_longer_than_its_limit(
    workers: int, step_seconds: float, piece_seconds: float, steps: int
) -> None:
    size = WorkSize(workers, 16)
    size.learn(100, 10, 100 * step_seconds / workers, 10 * piece_seconds)
    assert size.steps == steps
    assert steps == 1 or steps * step_seconds <= MOST_SECONDS
    if 1 < steps < 64 and steps * step_seconds < MOST_SECONDS:
        assert workers * piece_seconds <= steps * step_seconds * CHIEF_SHARE * (1 + 1e-9)


def test_pieces_of_one_step_stay_so() -> None:
    size = WorkSize(8, 16, most_steps=1)
    size.learn(100, 100, 0.1, 0.1)
    assert size.steps == 1


@pytest.mark.parametrize("workers", [1, 3])
def test_a_window_has_whole_executions_and_its_pieces_become_small(workers: int) -> None:
    size = WorkSize(workers, 10)
    for steps in (10, 10):
        assert size.window == steps  # what is measured first is short
        with size.measured(steps) as pieces:
            pieces.extend(range(steps))
    size.learn(100, 10, 100 * 0.01 / workers, 10 * 0.0064 / workers)
    assert size.steps == 32
    assert size.window == {1: 260, 3: 770}[workers]
    left, pieces_of_window = size.window, []
    while left:
        pieces_of_window.append(size.next_steps(left))
        left -= pieces_of_window[-1]
    assert sum(pieces_of_window) == size.window
    assert max(pieces_of_window) == 32
    last = pieces_of_window[-1]
    assert last == (260 % 32 if workers == 1 else 1)
