"""What a baseline is: a name, the task that it is measured by, and a function that measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from feat2vec.errors import UserError
from feat2vec.writing.files import JsonObject

if TYPE_CHECKING:
    from feat2vec.evaluation.task_names import TaskName
    from feat2vec.table.table import Table
    from feat2vec.training.run_folder import TrainedRun

Metrics = JsonObject  # numbers by their names, as `evaluate` returns them
ROWS_LEARNT_FROM = 100_000  # training rows that `tfidf` and `linear` hold; more are sampled
DEFAULT_NEGATIVES = 5  # where the noise of the run is shared by a batch, and so has no number for a pair


class Sentences(Protocol):
    """A corpus, such as that of a recipe."""

    def sentences(self) -> Iterator[list[str]]:
        """Each sentence as its words."""


@dataclass(frozen=True)
class BaselineRequest:
    """What a baseline may learn from, and the rows that it is measured on.

    Attributes:
        run: The run that the baseline is compared with; it has the schema.
        train: The rows that the run has learnt from, or None if they are not known.
        test: The rows to measure on.
        target: The group to rank, or None.
        given: The groups to rank it by; None means all others.
        matrix: The groups of the rows and columns of a matrix that is completed; None means the first two that can be.
        corpus: The sentences that `train` was made from, or None if there are none.
        window: How far apart two words of a pair may be.
        subsample: The threshold of frequent words, as in `Corpus.pairs`.
        has_fixed_windows: Whether each word reaches `window` words, and not a random number of them.
        fake_centres: The rows with the label 0 for each with the label 1, where a corpus has them.

    """

    run: TrainedRun
    train: Table | None
    test: Table
    target: str | None = None
    given: Sequence[str] | None = None
    matrix: Sequence[str] | None = None
    corpus: Sentences | None = None
    window: int = 5
    subsample: float = 0.0
    has_fixed_windows: bool = False
    fake_centres: int | None = None

    @property
    def negatives(self) -> int:
        """How many negatives a pair of the run has."""
        noise = self.run.schema.noise
        return self.fake_centres or (noise.negatives if noise.sharing == "record" else DEFAULT_NEGATIVES)

    @property
    def training_rows(self) -> Table:
        """The rows that the run has learnt from; `UserError` if they are not known."""
        if self.train is None:
            raise UserError("--train: a run keeps no rows; name those that it was trained on, which the others learn")
        return self.train


@dataclass(frozen=True)
class Baseline:
    """A method that users would try instead of feat2vec.

    Attributes:
        name: What recipes and `--beside` call it.
        task: The only task of `evaluate` that it is for.
        measure: Learns from the request's rows and returns the metrics of the task.
        needs_corpus: Whether it learns from sentences.
        needs_rows: Whether it learns from the training rows, and not only from what the run knows of them.
        completes_matrix: Whether it takes two groups for the rows and columns of a matrix.

    """

    name: str
    task: TaskName
    measure: Callable[[BaselineRequest], Metrics]
    needs_corpus: bool = False
    needs_rows: bool = True
    completes_matrix: bool = False


def missing_package(baseline: str, package: str) -> UserError:
    """The error of a baseline whose library is not installed."""
    return UserError(f"beside {baseline}: needs {package}: pip install 'feat2vec[recipes]'")
