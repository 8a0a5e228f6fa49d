"""Where the rows of a step come from: from the chief, batch by batch, or from files that the worker reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.cluster.row_feed import WORK_SIGNATURE, RowFeed, Work
from feat2vec.encode.encoder import Encoded
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.sampling.batches import Batches
from feat2vec.shards.encoded_folder import EncodedTable

Step = Callable[[tuple[object, ...]], object]  # takes a batch as `Feat2Vec.train_step` does
Piece = tuple[int, Sequence[Array]]  # how many steps of the epoch are done after it, and what a worker gets


class BatchSource(Protocol):
    """The batches of a training, as workers take them."""

    def pieces(self, epoch: int, first_step: int) -> Iterator[Piece]:
        """The work of an epoch from a step on, a step for each piece."""

    def function(self, step: Step) -> Callable[..., object]:
        """The `tf.function` that a worker calls with a piece."""


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
        yield from enumerate(self.batches.arrays(), first_step + 1)

    def function(self, step: Step) -> Callable[..., object]:
        """A step of value ids, target and weight, as far as there are any."""

        def of_arrays(*arrays: tf.Tensor) -> None:
            step(self.batches.with_entries(*arrays))

        function: Callable[..., object] = tf.function(of_arrays, self.batches.signature(), autograph=False)
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
            number = int(work.seed[1]) & 0xFFFFFFFF  # that of the piece in its epoch
            yield steps * (number + 1) // works, work

    def function(self, step: Step) -> Callable[..., object]:
        """A step of all rows of a piece of work."""
        columns = self.batches.signature()[0].shape[1]

        def of_work(*work: tf.Tensor) -> None:
            rows = self.feed.read(Work(*work))
            labels = [numbers for numbers in (rows.target, rows.weight) if numbers is not None]
            step(self.batches.with_entries(rows.ids[:, :columns], *labels))

        function: Callable[..., object] = tf.function(of_work, WORK_SIGNATURE, autograph=False)
        return function


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
    feed = RowFeed(table, training.batch_size, rows.left_out, seed=training.seed, steps_of_work=1)
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
