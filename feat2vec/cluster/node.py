"""A worker or a parameter server: TensorFlow's server, which does what the chief tells it."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

import tensorflow as tf

from feat2vec.cluster.addresses import Addresses
from feat2vec.cluster.loopback import listen_on_loopback_alone
from feat2vec.errors import FailedError, in_a_line

PROTOCOL = "grpc"
LEAST_THREADS = 16  # for operations that wait for other nodes: with few, two nodes may wait for each other for ever


def run_node(
    addresses: Addresses, say: Callable[[str], None], *, any_host: bool = False, attached: bool = False
) -> None:
    """Serve until a signal comes, or the end of standard input.

    A node keeps nothing that is not in a checkpoint, so it ends at once, in the middle of a step. A chief that is not
    there yet, or not any more, is waited for.

    Args:
        addresses: The cluster, and which of its nodes this one is.
        say: Prints a line.
        any_host: Whether other machines may connect.
        attached: Whether the end of standard input ends the node.

    Raises:
        FailedError: The server cannot listen at its address.
        UserError: The system cannot keep the server on loopback.

    """
    task = addresses.task
    threads = max(LEAST_THREADS, os.cpu_count() or 1)
    try:
        server = tf.distribute.Server(
            addresses.jobs,
            job_name=task.kind,
            task_index=task.index,
            protocol=PROTOCOL,
            config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads),
            start=False,
        )
    except tf.errors.OpError as error:
        raise FailedError(
            f"{task}: cannot listen at {addresses.address} ({in_a_line(error)}); end what listens there"
        ) from None
    if not any_host:
        listen_on_loopback_alone()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    server.start()
    say(f"{task}: listens at {addresses.address} and waits for what the chief asks; Ctrl-C or SIGTERM ends it")
    if attached:
        wait_for_end_of_input()
        os._exit(0)
    threading.Event().wait()


def _end(number: int, frame: FrameType | None) -> None:
    """End at once: a server of TensorFlow has no end, and the interpreter's own would wait for what it computes."""
    del frame
    os._exit(128 + number)


def wait_for_end_of_input() -> None:
    """Wait until nothing more can come on standard input; what comes is dropped."""
    while True:
        select.select([sys.stdin], [], [])
        if not os.read(sys.stdin.fileno(), 1 << 16):
            return
