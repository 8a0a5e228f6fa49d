"""Where the rows of a step come from: from the chief, batch by batch, or from files that the worker reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.cluster.row_feed import WORK_SIGNATURE, RowFeed, Work
from feat2vec.encode.encoder import Encoded
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.sampling.batches import Batches
from feat2vec.shards.encoded_folder import EncodedTable

Step = Callable[[tuple[object, ...]], object]  # takes a batch as `Feat2Vec.train_step` does
NUMBER = tf.TensorSpec([], tf.int64)  # that of a step, by which its random draws go on


class Piece(NamedTuple):
    """A step's work.

    Args:
        done: How many steps of the epoch are done after it.
        arguments: What a worker gets: the number of the step, and rows or where they are.

    """

    done: int
    arguments: Sequence[Array | np.int64]


class BatchSource(Protocol):
    """The batches of a training, as workers take them."""

    def pieces(self, epoch: int, first_step: int) -> Iterator[Piece]:
        """The work of an epoch from a step on, a step for each piece."""

    def function(self, model: Feat2Vec, step: Step) -> Callable[..., object]:
        """The `tf.function` that a worker calls with a piece's arguments, for a step of the model."""


class ChiefBatches:
    """Batches that the chief reads and shuffles, in the order of a training in one process.

    Args:
        batches: The batches.

    """

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def pieces(self, epoch: int, first_step: int) -> Iterator[Piece]:
        """The batches of an epoch from a step on."""
        self.batches.start_at(epoch, first_step)
        for place, arrays in enumerate(self.batches.arrays(), first_step):
            yield Piece(place + 1, (np.array(epoch * self.batches.steps + place, np.int64), *arrays))

    def function(self, model: Feat2Vec, step: Step) -> Callable[..., object]:
        """A step of value ids, target and weight, as far as there are any."""

        def of_arrays(number: tf.Tensor, *arrays: tf.Tensor) -> None:
            with numbered(model, number):
                step(self.batches.with_entries(*arrays))

        function: Callable[..., object] = tf.function(of_arrays, [NUMBER, *self.batches.signature()], autograph=False)
        return function


class FolderBatches:
    """Batches that workers read from a folder of encoded rows.

    Args:
        feed: The rows.
        batches: The same rows in this process, of which only the number of steps and the entries are used.

    """

    def __init__(self, feed: RowFeed, batches: Batches) -> None:
        self.feed, self.batches = feed, batches

    def pieces(self, epoch: int, first_step: int) -> Iterator[Piece]:
        """The pieces of work of an epoch; an epoch has as many steps as `Batches` says, or a few less."""
        steps, works = self.batches.steps, self.feed.works
        first = -(-first_step * works // steps)
        for work in self.feed.epoch(epoch, first):
            place = int(work.seed[1]) & 0xFFFFFFFF  # in its epoch
            yield Piece(steps * (place + 1) // works, (np.array(epoch * steps + place, np.int64), *work))

    def function(self, model: Feat2Vec, step: Step) -> Callable[..., object]:
        """A step of all rows of a piece of work."""
        columns = self.batches.signature()[0].shape[1]

        def of_work(number: tf.Tensor, *work: tf.Tensor) -> None:
            rows = self.feed.read(Work(*work))
            labels = [numbers for numbers in (rows.target, rows.weight) if numbers is not None]
            with numbered(model, number):
                step(self.batches.with_entries(rows.ids[:, :columns], *labels))

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
    training = model.schema.training
    seed, groups = training.seed, list(rows.encoder.codecs)
    feed = RowFeed(table, training.batch_size, rows.left_out, groups=groups, seed=seed, steps_of_work=1)
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
