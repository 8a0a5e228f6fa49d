"""Where the rows of a step come from: from the chief, batch by batch, or from files that the worker reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.cluster.row_feed import WORK_SIGNATURE, EpochWorks, RowFeed, Work
from feat2vec.cluster.work_size import MOST_STEPS
from feat2vec.encode.encoder import Encoded
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.sampling.batches import Batches
from feat2vec.shards.encoded_folder import EncodedTable

Step = Callable[[tuple[object, ...]], object]  # takes a batch as `Feat2Vec.train_step` does
NUMBER = tf.TensorSpec([], tf.int64)  # that of a step, by which its random draws go on


class Piece(NamedTuple):
    """What a worker gets at once.

    Args:
        done: How many steps of the epoch are done after it.
        arguments: The number of its first step, and rows or where they are.

    """

    done: int
    arguments: Sequence[Array | np.int64]


class EpochSource(Protocol):
    """The batches of an epoch, in their order."""

    def piece(self, steps: int) -> Piece:
        """The next steps as a piece of work, which has at most so many of them."""


class BatchSource(Protocol):
    """The batches of a training, as workers take them; `most_steps` is how many a piece of work may have."""

    most_steps: int

    def epoch(self, epoch: int, first_step: int) -> EpochSource:
        """The batches of an epoch from a step on."""

    def function(self, model: Feat2Vec, step: Step) -> Callable[..., object]:
        """The `tf.function` that a worker calls with a piece's arguments, for the steps of the model."""


class ChiefEpoch:
    """Batches that the chief reads, each of which is a piece of work.

    Args:
        batches: The batches.
        epoch: The number of the epoch.
        first_step: The step that it begins with.

    """

    def __init__(self, batches: Batches, epoch: int, first_step: int) -> None:
        self.number, self.done = epoch * batches.steps + first_step, first_step
        batches.start_at(epoch, first_step)
        self._arrays = batches.arrays()

    def piece(self, steps: int) -> Piece:
        """The next batch."""
        del steps
        arguments = (np.array(self.number, np.int64), *next(self._arrays))
        self.number, self.done = self.number + 1, self.done + 1
        return Piece(self.done, arguments)


class ChiefBatches:
    """Batches that the chief reads and shuffles, in the order of a training in one process.

    Args:
        batches: The batches.

    """

    most_steps = 1

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def epoch(self, epoch: int, first_step: int) -> ChiefEpoch:
        """The batches of an epoch from a step on."""
        return ChiefEpoch(self.batches, epoch, first_step)

    def function(self, model: Feat2Vec, step: Step) -> Callable[..., object]:
        """A step of value ids, target and weight, as far as there are any."""

        def of_arrays(number: tf.Tensor, *arrays: tf.Tensor) -> None:
            with numbered(model, number):
                step(self.batches.with_entries(*arrays))

        function: Callable[..., object] = tf.function(of_arrays, [NUMBER, *self.batches.signature()], autograph=False)
        return function


class FolderEpoch:
    """Batches that workers read from a folder.

    Args:
        works: The pieces of work of the epoch.
        first_step: The step that it begins with.

    """

    def __init__(self, works: EpochWorks, first_step: int) -> None:
        self.works, self.done = works, first_step

    def piece(self, steps: int) -> Piece:
        """The next steps."""
        first, last = self.done, self.works.feed.steps
        self.done = min(first + steps, last)
        work = self.works.work(first, self.done - first)
        return Piece(self.done, (np.array(self.works.epoch * last + first, np.int64), *work))


class FolderBatches:
    """Batches that workers read from a folder of encoded rows.

    Args:
        feed: The rows.
        batches: The same rows in this process, of which only the entries and the columns are used.

    """

    most_steps = MOST_STEPS

    def __init__(self, feed: RowFeed, batches: Batches) -> None:
        self.feed, self.batches = feed, batches

    def epoch(self, epoch: int, first_step: int) -> FolderEpoch:
        """The batches of an epoch from a step on."""
        return FolderEpoch(self.feed.epoch(epoch), first_step)

    def function(self, model: Feat2Vec, step: Step) -> Callable[..., object]:
        """The steps of a piece of work, one after the other, on its worker alone."""
        columns = self.batches.signature()[0].shape[1]

        def of_work(number: tf.Tensor, *parts: tf.Tensor) -> None:
            work = Work(*parts)
            rows = self.feed.read(work)

            def of_step(place: tf.Tensor) -> list[tf.Tensor]:
                batch = rows.batch(place, work.steps)
                labels = [numbers for numbers in (batch.target, batch.weight) if numbers is not None]
                with numbered(model, number + tf.cast(place, tf.int64)):
                    step(self.batches.with_entries(batch.ids[:, :columns], *labels))
                return [place + 1]

            tf.while_loop(lambda place: place < work.steps, of_step, [tf.constant(0)], parallel_iterations=1)

        function: Callable[..., object] = tf.function(of_work, [NUMBER, *WORK_SIGNATURE], autograph=False)
        return function


@contextmanager
def numbered(model: Feat2Vec, number: tf.Tensor) -> Iterator[None]:
    """Within it the random draws of the model's steps go by a number, not by how many steps were done."""
    model.step_number = number
    try:
        yield
    finally:
        model.step_number = None


def batch_source(model: Feat2Vec, rows: Encoded, batches: Batches, table: EncodedTable | None) -> BatchSource:
    """What gives workers their rows: the folder, where its records are what a step takes, and the chief elsewhere.

    Args:
        model: The model, which has learnt from the rows.
        rows: The training rows.
        batches: Their batches.
        table: The folder that they come from; None for none, or where the order of the rows is to be the chief's.

    """
    if table is None or not _has_records_of_steps(model, rows, table):
        return ChiefBatches(batches)
    seed, groups = model.schema.training.seed, list(rows.encoder.codecs)
    feed = RowFeed(table, batches.steps, rows.left_out, groups=groups, seed=seed)
    return FolderBatches(feed, batches)


def _has_records_of_steps(model: Feat2Vec, rows: Encoded, table: EncodedTable) -> bool:
    """Whether the folder's records hold what a step takes of a row: no class weights, and the same joint tuples."""
    if model.schema.target is not None:
        return model.class_weights is None and rows.target is not None
    if not model.joints:
        return True
    names = [[model.groups[g] for g in joint.groups] for joint in model.joints]
    is_same = [joint["groups"] for joint in table.manifest["joint"]] == names
    # Tuples are numbered by the rows that are learnt from.
    return is_same and len(rows.left_out) == table.manifest["left_out"]
