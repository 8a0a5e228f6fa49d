"""The processes of a cluster and which of them this one is, from the standard variable TF_CONFIG.

{"cluster": {"chief": ["10.0.0.1:7000"], "ps": ["10.0.0.2:7000"], "worker": ["10.0.0.3:7000", "10.0.0.4:7000"]},
 "task": {"type": "worker", "index": 1}}
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Literal, TypeGuard

from feat2vec.errors import UserError, listed
from feat2vec.terminal import shortened

VARIABLE = "TF_CONFIG"
EXAMPLE = '{"cluster": {"chief": [...], "worker": [...], "ps": [...]}, "task": {"type": "worker", "index": 0}}'
LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]")
ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(?P<port>\d{1,5})")
ANSWER_SECONDS = 120.0  # how long a server may take to answer when a training starts
SECONDS_BETWEEN_TRIES = 0.2

TaskKind = Literal["chief", "ps", "worker"]  # the kinds of tasks, as TensorFlow names them
CHIEF: Literal["chief"] = "chief"
SERVER: Literal["ps"] = "ps"
WORKER: Literal["worker"] = "worker"
NODES: tuple[TaskKind, ...] = (WORKER, SERVER)


@dataclass(frozen=True)
class Task:
    """One process of a cluster.

    Args:
        kind: `chief`, `ps` or `worker`.
        index: Its number among those of its kind.

    """

    kind: TaskKind
    index: int

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


@dataclass(frozen=True)
class Addresses:
    """Where the processes of a cluster listen, and which of them this one is.

    Args:
        servers: The parameter servers, `host:port` each.
        workers: The workers.
        chief: The chief; None where TF_CONFIG names none, which nodes can do without.
        task: This process.

    Example:
        >>> Addresses(("127.0.0.1:7001",), ("127.0.0.1:7002",), None, Task("worker", 0)).address
        '127.0.0.1:7002'

    """

    servers: tuple[str, ...]
    workers: tuple[str, ...]
    chief: str | None
    task: Task

    @property
    def jobs(self) -> dict[str, list[str]]:
        """The addresses of each kind of task, as `tf.train.ClusterSpec` takes them."""
        jobs: dict[str, list[str]] = {WORKER: list(self.workers), SERVER: list(self.servers)}
        return jobs if self.chief is None else {CHIEF: [self.chief], **jobs}

    @property
    def address(self) -> str:
        """Where this process listens."""
        return self.jobs[self.task.kind][self.task.index]

    def of_task(self, task: Task) -> Addresses:
        """The same cluster, as another of its processes sees it."""
        return Addresses(self.servers, self.workers, self.chief, task)

    def as_text(self) -> str:
        """The content of TF_CONFIG."""
        return json.dumps({"cluster": self.jobs, "task": {"type": self.task.kind, "index": self.task.index}})


def is_loopback(address: str) -> bool:
    """Whether an address `host:port` can be reached from this machine alone.

    >>> is_loopback("127.0.0.1:7000"), is_loopback("10.0.0.2:7000")
    (True, False)
    """
    return LOOPBACK.fullmatch(address.rpartition(":")[0]) is not None


def are_loopback(jobs: Mapping[str, Sequence[str]]) -> bool:
    """Whether all processes are on this machine, and reach each other by loopback.

    Args:
        jobs: The addresses of the tasks of each kind.

    """
    return all(is_loopback(address) for addresses in jobs.values() for address in addresses)


def read_addresses(text: str | None, expected: Sequence[TaskKind], *, any_host: bool = False) -> Addresses:
    """The addresses that TF_CONFIG has, once it is known that they are usable.

    Args:
        text: The content of TF_CONFIG; None where it is not set.
        expected: The kinds of tasks that the command can be.
        any_host: Whether addresses may be others than those of loopback.

    Returns:
        The addresses.

    Raises:
        UserError: TF_CONFIG is not set, is no JSON, names no server or no worker, an address twice, a task that is not
            there or that the command is not, or addresses of other machines without `any_host`.

    Example:
        >>> text = '{"cluster": {"worker": ["localhost:1"], "ps": ["localhost:2"]}, "task": {"type": "ps", "index": 0}}'
        >>> str(read_addresses(text, ("worker", "ps")).task)
        'ps 0'

    """
    if not text:
        raise UserError(f"{VARIABLE}: is not set; set it to {EXAMPLE}")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{VARIABLE}: is no JSON ({str(error)[:80]}); received {shortened(repr(text), 60)}") from None
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        raise UserError(f"{VARIABLE}: has no `cluster`; expected {EXAMPLE}")
    jobs: dict[str, list[str]] = {kind: _addresses_of(config["cluster"], kind) for kind in (CHIEF, WORKER, SERVER)}
    _refuse_missing_jobs(jobs, expected)
    task = _task(config.get("task"), jobs, expected)
    _refuse_unusable(jobs, any_host=any_host)
    chief = jobs[CHIEF][0] if jobs[CHIEF] else None
    return Addresses(tuple(jobs[SERVER]), tuple(jobs[WORKER]), chief, task)


def _addresses_of(cluster: dict[str, object], kind: str) -> list[str]:
    """The addresses of one kind of task; none where it is not named."""
    addresses = cluster.get(kind, [])
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        received = shortened(repr(addresses), 60)
        raise UserError(f"{VARIABLE}: cluster.{kind}: expected a list of addresses host:port; received {received}")
    for address in addresses:
        parts = ADDRESS.fullmatch(address)
        if parts is None or not 0 < int(parts["port"]) < 1 << 16:
            received = shortened(repr(address), 60)
            raise UserError(
                f"{VARIABLE}: cluster.{kind}: expected host:port, the port from 1 to 65535; received {received}"
            )
    return addresses


def _refuse_missing_jobs(jobs: dict[str, list[str]], expected: Sequence[TaskKind]) -> None:
    """Raise if a kind of task is missing that a training cannot do without, or there are several chiefs."""
    if not jobs[SERVER]:
        raise UserError(f"{VARIABLE}: names no parameter server; add one or more addresses as cluster.ps")
    if not jobs[WORKER]:
        raise UserError(f"{VARIABLE}: names no worker; add one or more addresses as cluster.worker")
    if CHIEF in expected and not jobs[CHIEF]:
        raise UserError(f"{VARIABLE}: names no chief; add the address of this process as cluster.chief")
    if len(jobs[CHIEF]) > 1:
        raise UserError(f"{VARIABLE}: names {len(jobs[CHIEF])} chiefs; a cluster has one, remove the others")


def _task(task: object, jobs: dict[str, list[str]], expected: Sequence[TaskKind]) -> Task:
    """The process that TF_CONFIG says this is."""
    if not isinstance(task, dict):
        raise UserError(f"{VARIABLE}: has no `task`; expected {EXAMPLE}")
    kind, index = task.get("type"), task.get("index")
    if not _is_kind(kind, expected):
        command = "`feat2vec train --cluster`" if CHIEF in expected else "`feat2vec node`"
        runs_it = {CHIEF: "`feat2vec train --cluster`", WORKER: "`feat2vec node`", SERVER: "`feat2vec node`"}
        remedy = f"; {runs_it[kind]} runs it" if isinstance(kind, str) and kind in runs_it else ""
        received = shortened(repr(kind), 40)
        raise UserError(f"{VARIABLE}: task.type: {command} is {' or '.join(expected)}; received {received}{remedy}")
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(jobs[kind]):
        received = shortened(repr(index), 40)
        raise UserError(
            f"{VARIABLE}: task.index: expected 0 to {len(jobs[kind]) - 1}, as cluster.{kind} has {len(jobs[kind])} "
            f"addresses; received {received}"
        )
    return Task(kind, index)


def _is_kind(kind: object, expected: Sequence[TaskKind]) -> TypeGuard[TaskKind]:
    return kind in expected


def _refuse_unusable(jobs: dict[str, list[str]], *, any_host: bool) -> None:
    """Raise for an address that two processes have, and for one of another machine where that was not allowed."""
    addresses = [address for kind in jobs for address in jobs[kind]]
    repeated = sorted({address for address in addresses if addresses.count(address) > 1})
    if repeated:
        raise UserError(f"{VARIABLE}: {listed(repeated)}: two processes cannot listen there; give each an address")
    far = [address for address in addresses if not is_loopback(address)]
    if far and not any_host:
        raise UserError(
            f"{VARIABLE}: {listed(far)}: not on this machine's loopback",
            "  TensorFlow's servers trust whoever reaches them; in a private network add --host 0.0.0.0",
        )


def refuse_silent_servers(jobs: Mapping[str, Sequence[str]], seconds: float = ANSWER_SECONDS) -> None:
    """Wait until all servers and one worker or more take connections.

    A worker that comes later is used as soon as it is there; without all servers there is no table to train.

    Args:
        jobs: The addresses of the tasks of each kind.
        seconds: How long to wait.

    Raises:
        UserError: A server, or every worker, has not answered in that time.

    """
    end = time.monotonic() + seconds
    silent = [address for address in jobs[SERVER] if not answers(address, end)]
    if silent:
        raise UserError(
            f"{listed(silent)}: no parameter server answered in {seconds:g} s; start it with `feat2vec node`"
        )
    while not any(answers(address, 0) for address in jobs[WORKER]):
        if time.monotonic() >= end:
            raise UserError(
                f"{listed(jobs[WORKER])}: no worker answered in {seconds:g} s; start one with `feat2vec node`"
            )
        time.sleep(SECONDS_BETWEEN_TRIES)


def answers(address: str, end: float) -> bool:
    """Whether a process takes connections at an address, now or before a time of `time.monotonic`.

    >>> answers("127.0.0.1:1", 0)
    False
    """
    host, _, port = address.rpartition(":")
    while True:
        seconds = min(max(end - time.monotonic(), 1.0), 5.0)
        with suppress(OSError), closing(socket.create_connection((host.strip("[]"), int(port)), timeout=seconds)):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(SECONDS_BETWEEN_TRIES)


def free_addresses(count: int) -> Iterator[str]:
    """Addresses on loopback, at ports that no process listens at.

    Args:
        count: How many.

    """
    sockets = []
    try:
        for _ in range(count):
            probe = socket.socket()
            sockets.append(probe)  # all stay open until the last one has its port, so that none has it twice
            probe.bind(("127.0.0.1", 0))
        yield from [f"127.0.0.1:{probe.getsockname()[1]}" for probe in sockets]
    finally:
        for probe in sockets:
            probe.close()
