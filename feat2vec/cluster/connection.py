"""`Connection`: the chief's side of a cluster: its devices, and work that its workers take.

It is the one module that knows of `tf.distribute`.
"""

from __future__ import annotations

import ctypes
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import tensorflow as tf

from feat2vec.cluster.addresses import answers, are_loopback, refuse_silent_servers
from feat2vec.cluster.loopback import listen_on_loopback_alone
from feat2vec.errors import RestartError, UserError, listed

LOST = (  # what TensorFlow raises where a server does not answer, or is another process than before
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.DataLossError,
)
TASK = re.compile(r"/job:(ps|worker)/replica:\d+/task:(\d+)")
MISSING = re.compile(r"(\S+); No such file or directory")
SECONDS_BETWEEN_LOOKS = 5.0  # at whether workers are there
RESTART = "start the chief and the servers again, with --resume: training goes on from the last checkpoint"


class Connection:
    """A cluster, as its chief sees it. A process has one.

    `is_made` says whether the process has one: TensorFlow does not end in a process whose cluster is gone.

    Args:
        jobs: The addresses `host:port` of the tasks of each kind: `ps`, `worker` and, if it has one, `chief`.

    Raises:
        UserError: A server, or every worker, does not answer.
        RestartError: A server was lost.

    """

    is_made: ClassVar[bool] = False
    alone_seconds = 120.0  # that all workers may be lost before the chief gives up

    def __init__(self, jobs: Mapping[str, Sequence[str]]) -> None:
        refuse_silent_servers(jobs)
        Connection.is_made = True
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(dict(jobs)), rpc_layer="grpc"
        )
        tf.get_logger().setLevel(logging.CRITICAL)  # a process that is lost is told once, by what is raised
        with lost_as_restart():
            strategy = tf.distribute.ParameterServerStrategy(resolver)
            self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        # Its `__del__` waits for its threads, and for ever if the interpreter has stopped these: it is never called.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._coordinator))
        if are_loopback(jobs):
            listen_on_loopback_alone()
        self._addresses = list(jobs["worker"])
        self.workers = len(self._addresses)
        self.server_devices = [f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(len(jobs["ps"]))]

    def schedule(self, function: Callable[..., object], arguments: Sequence[object]) -> None:
        """Let a worker call a `tf.function`, at some time before `wait` returns.

        A worker that is lost is no reason to fail: its work is another's then. So it is done once or more often.

        Args:
            function: The function.
            arguments: Tensors or arrays.

        Raises:
            RestartError: A server was lost.

        """
        with lost_as_restart():
            self._coordinator.schedule(function, args=tuple(arguments))

    def wait(self) -> None:
        """Wait until the workers have done all work.

        Raises:
            RestartError: A server was lost, or all workers for longer than `alone_seconds`.

        """
        with lost_as_restart():
            wait_beside_workers(self._coordinator.join, self._addresses, self.alone_seconds)


def wait_beside_workers(join: Callable[[], object], addresses: Sequence[str], seconds: float) -> None:
    """Call what waits for workers, as long as one of them is there.

    TensorFlow waits for a lost worker for ever.

    Args:
        join: Returns once all work is done, and raises what went wrong.
        addresses: The workers.
        seconds: How long none of them may take connections.

    Raises:
        RestartError: None has for so long.

    """
    ended, errors = threading.Event(), list[BaseException]()

    def wait() -> None:
        try:
            join()
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    threading.Thread(target=wait, daemon=True).start()  # which is left behind if it does not end
    last_seen = time.monotonic()
    while not ended.wait(min(SECONDS_BETWEEN_LOOKS, seconds)):
        if any(answers(address, 0) for address in addresses):
            last_seen = time.monotonic()
        elif time.monotonic() - last_seen >= seconds:
            remedy = "start workers with `feat2vec node`, then the servers and the chief again, with --resume"
            raise RestartError(f"{listed(addresses)}: no worker has answered for {seconds:g} s", remedy)
    if errors:
        raise errors[0]


@contextmanager
def lost_as_restart() -> Iterator[None]:
    """Raise a `RestartError` in place of what TensorFlow raises where a server is lost."""
    try:
        yield
    except LOST as error:
        raise RestartError(f"{lost_task(str(error))} of the cluster was lost", RESTART) from None
    except tf.errors.NotFoundError as error:
        missing = MISSING.search(str(error))
        if missing is None:
            raise
        raise UserError(
            f"{missing[1]}: a worker does not find it; let all machines see the encoded folder at the same path"
        ) from None


def lost_task(message: str) -> str:
    """The task that a message of TensorFlow names, the last one if it names several.

    >>> lost_task("from remote target /job:worker/replica:0/task:0 ... target /job:ps/replica:0/task:1/device:CPU:0")
    'parameter server 1'
    """
    tasks = TASK.findall(message)
    if not tasks:
        return "a process"
    kind, number = tasks[-1]
    return f"{'parameter server' if kind == 'ps' else kind} {number}"
