"""What a baseline is: a name, the task that it is measured by, and a function that measures it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from feat2vec.writing.files import JsonObject

if TYPE_CHECKING:
    from feat2vec.recipes.corpus import Corpus
    from feat2vec.table.table import Table
    from feat2vec.training.run_folder import TrainedRun

Metrics = JsonObject  # numbers by their names, as `evaluate` returns them


@dataclass(frozen=True)
class BaselineRequest:
    """What a baseline may learn from, and the rows that it is measured on.

    Attributes:
        run: The run that the baseline is compared with; it has the schema.
        train: The rows that the run has learnt from.
        test: The rows to measure on.
        target: The group to rank, or None.
        given: The groups to rank it by; None means all others.
        corpus: The sentences that `train` was made from, or None if the recipe has no corpus.
        window: How far apart two words of a pair may be.
        subsample: The threshold of frequent words, as in `Corpus.pairs`.

    """

    run: TrainedRun
    train: Table
    test: Table
    target: str | None = None
    given: Sequence[str] | None = None
    corpus: Corpus | None = None
    window: int = 5
    subsample: float = 0.0


@dataclass(frozen=True)
class Baseline:
    """A method that users would try instead of feat2vec.

    Attributes:
        name: What recipes call it.
        task: The only task of `evaluate` that it is for.
        measure: Learns from the request's rows and returns the metrics of the task.
        needs_corpus: Whether it learns from sentences.

    """

    name: str
    task: str
    measure: Callable[[BaselineRequest], Metrics]
    needs_corpus: bool = False
