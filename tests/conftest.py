"""Fixtures that modules of several rooms use."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

# Cases of parametrized tests that take more than half a second, where a quicker case of the same test is left.
SLOWER_CASES = frozenset((Path(__file__).parent / "slower_cases.txt").read_text(encoding="utf-8").splitlines())


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave slower cases to the slow tier, and those that `thinned` leaves out: each test keeps others."""
    cases_before: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        thinned = item.get_closest_marker("thinned")
        if thinned is not None and (cases_before[test] + len(test)) % thinned.args[0]:
            item.add_marker(pytest.mark.slow)
        cases_before[test] += 1
        if item.nodeid in SLOWER_CASES:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Leave the modules and the tests out of what is searched for garbage: each training searches, as it ends."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let go of them: libraries tell of what is left over when a process ends."""
    gc.unfreeze()


@pytest.fixture(scope="module")
def trainings_without_graphs() -> Iterator[None]:
    """Short trainings without a graph in a whole module, also those of commands."""
    from tests.short_trainings import without_graphs  # imports TensorFlow, which not every room needs

    with without_graphs():
        yield


@pytest.fixture
def no_graphs() -> Iterator[None]:
    """A function that is called a few times takes less time as Python than its graph takes to be made."""
    from tests.short_trainings import functions_without_graphs

    with functions_without_graphs():
        yield
