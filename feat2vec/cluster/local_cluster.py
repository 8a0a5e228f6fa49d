"""Workers and parameter servers as children of this process, at loopback: a cluster for a try."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from feat2vec.cluster.addresses import CHIEF, SERVER, VARIABLE, WORKER, Addresses, Task, free_addresses
from feat2vec.errors import UserError

PROGRAM = (sys.executable, "-m", "feat2vec", "node", "--attached", "--quiet")
MOST_NODES = 64  # of a kind
SECONDS_TO_END = 5.0  # that a child has before it is killed


class ClusterSize(NamedTuple):
    """How many processes of each kind a cluster has.

    Args:
        workers: The processes that compute.
        servers: The processes that hold the tables.

    """

    workers: int
    servers: int


def cluster_size(text: str) -> ClusterSize:
    """The size that is written as WORKERSxSERVERS.

    Args:
        text: Such as `2x2`.

    Raises:
        UserError: It is written in another way, or a number is out of its range.

    Example:
        >>> cluster_size("2x1")
        ClusterSize(workers=2, servers=1)

    """
    parts = re.fullmatch(r"([0-9]{1,3})x([0-9]{1,3})", text)
    if parts is None or not all(1 <= int(part) <= MOST_NODES for part in parts.groups()):
        raise UserError(
            f"--local-cluster: expected workers x servers, each 1 to {MOST_NODES}, such as 2x2; received {text[:40]!r}"
        )
    return ClusterSize(int(parts[1]), int(parts[2]))


@contextmanager
def local_cluster(size: ClusterSize, program: Sequence[str] = PROGRAM) -> Iterator[Addresses]:
    """Start the workers and servers of a cluster on this machine, and end them whatever happens within.

    The end of this process, however it comes, ends the standard input of its children, and so the children.

    Args:
        size: How many of each kind.
        program: The command that is a node.

    Yields:
        The addresses, as the chief sees them.

    """
    at_loopback = list(free_addresses(size.workers + size.servers + 1))
    workers, servers = tuple(at_loopback[: size.workers]), tuple(at_loopback[size.workers : -1])
    addresses = Addresses(servers, workers, at_loopback[-1], Task(CHIEF, 0))
    tasks = [Task(SERVER, i) for i in range(size.servers)] + [Task(WORKER, i) for i in range(size.workers)]
    children: list[subprocess.Popen[bytes]] = []
    try:
        for task in tasks:
            children.append(_start(addresses.of_task(task), program))
        yield addresses
    finally:
        end_children(children)


def _start(addresses: Addresses, program: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a node in a session of its own: Ctrl-C at the terminal is for the chief, which ends its children."""
    environment = {**os.environ, VARIABLE: addresses.as_text()}
    return subprocess.Popen(program, stdin=subprocess.PIPE, env=environment, start_new_session=True)


def end_children(children: Sequence[subprocess.Popen[bytes]], seconds: float = SECONDS_TO_END) -> None:
    """End processes that this one has started: by the end of their input and SIGTERM, then by SIGKILL.

    Args:
        children: The processes.
        seconds: How long they have before SIGKILL.

    """
    try:
        for child in children:
            if child.stdin is not None:
                with suppress(OSError):
                    child.stdin.close()
            child.terminate()  # does nothing to one that has ended
        end = time.monotonic() + seconds
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(end - time.monotonic(), 0.0))
    finally:
        for child in children:  # also if a second signal comes meanwhile
            child.kill()
            child.wait()
