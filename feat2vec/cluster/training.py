"""`train_on_cluster`: the training of `training.train`, with its steps and its variables on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from feat2vec.cluster.cluster_fitting import ClusterFitting
from feat2vec.cluster.connection import Connection
from feat2vec.cluster.local_copy import MOST_BYTES, bytes_of
from feat2vec.errors import UserError
from feat2vec.model.sizes import BYTES_OF_WEIGHT
from feat2vec.shards.encoded_folder import EncodedTable
from feat2vec.training.learning import TrainingRequest
from feat2vec.training.memory_estimate import spelled
from feat2vec.training.train import train_into
from feat2vec.training.warm_start import WarmStart


def train_on_cluster(
    out: Path, request: TrainingRequest, data: object, jobs: Mapping[str, Sequence[str]], *, sync: bool = False
) -> None:
    """Train on a cluster, as its chief, and write a run into the folder `out`.

    The run, and the checkpoints, are those of a training in one process: each goes on with the other's.

    Args:
        out: Where the run will be.
        request: What is trained.
        data: The source of the training rows. Workers read those of a folder of encoded rows themselves, which they
            see at the same path; the chief sends them the rows of other sources, and all rows with `sync`.
        jobs: The addresses of the cluster's tasks of each kind; see `Connection`.
        sync: Whether steps are computed one after the other, in their order.

    Raises:
        UserError: Something is wrong with the request, the place or the table, or cannot be done on a cluster.
        RestartError: A server was lost; the training can be resumed.
        FailedError: The loss is not finite, or the run could not be written.

    """
    if request.start is not None:
        _refuse_large_start(request.start)
    connection = Connection(jobs)
    if request.start is not None:
        bytes_of(request.start.run.model)  # read here: variables that are made while a model is fitted are on servers
    table = data if isinstance(data, EncodedTable) else None
    fitting = partial(ClusterFitting, connection=connection, sync=sync, table=table)
    scratch = request.from_scratch
    if scratch is not None:
        scratch = replace(scratch, request=replace(scratch.request, fitting=fitting))
    train_into(out, replace(request, fitting=fitting, from_scratch=scratch), data)


def _refuse_large_start(start: WarmStart) -> None:
    """Raise if the run to begin with is too large for the chief, which reads it as a whole."""
    size = BYTES_OF_WEIGHT * int(start.run.metrics["parameters"])
    if size > MOST_BYTES:
        raise UserError(
            f"{start.run.folder}: holds {spelled(size)} of weights, which the chief of a cluster reads as a whole; "
            f"at most {spelled(MOST_BYTES)}; fine-tune it without a cluster"
        )
