"""What a run answers with is made once, and does not keep the run."""

from __future__ import annotations

import gc
import weakref

import pytest

from feat2vec.run import Run, kept_parts
from tests.training.tables import small_model, table

pytestmark = pytest.mark.usefixtures("trainings_without_graphs")


def test_the_oldest_completer_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_parts, "MOST_COMPLETERS", 2)
    run = Run.of_model(small_model())
    first, second = run.completer("who"), run.completer("place")
    assert run.completer("who") is first
    run.completer("who", ["place"])
    assert run.completer("place") is second
    assert run.completer("who") is not first


def test_parts_do_not_keep_a_run() -> None:
    """Else a run in a temporary folder would stay there until the garbage is collected."""
    run = Run.of_model(small_model())
    run.embed(table(5))
    run.predict(table(5))
    run.complete(table(5), "place")
    reference = weakref.ref(run)
    gc.disable()
    try:
        del run
        assert reference() is None
    finally:
        gc.enable()
