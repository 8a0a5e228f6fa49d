"""A cluster of real processes on loopback, each of which a test may kill: they are this process's children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from feat2vec.cluster.addresses import Addresses, Task, TaskKind, free_addresses
from feat2vec.cluster.local_cluster import end_children
from feat2vec.errors import RESTART_STATUS

FEAT2VEC = (sys.executable, "-m", "feat2vec")
ROOT = Path(__file__).parents[2]
THREADS = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


class Processes:
    """A chief, workers and servers; at the end of the context none of them is left.

    Args:
        folder: Where they run, and where the chief's messages are written.
        workers: How many workers.
        servers: How many parameter servers.
        seconds: After which whoever waits for something gives up.

    """

    def __init__(self, folder: Path, workers: int, servers: int, seconds: float) -> None:
        self.folder = folder
        addresses = list(free_addresses(workers + servers + 1))
        self.addresses = Addresses(
            tuple(addresses[workers:-1]), tuple(addresses[:workers]), addresses[-1], Task("chief", 0)
        )
        self.children: dict[Task, subprocess.Popen[bytes]] = {}
        self.chief_ends: list[int] = []  # the exit codes of chiefs
        self.end = time.monotonic() + seconds

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end_children(list(self.children.values()), 0.2)

    @property
    def messages(self) -> str:
        """What the chiefs have said."""
        path = self.folder / "chief.txt"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def tasks(self, kind: TaskKind) -> list[Task]:
        """All tasks of a kind."""
        return [Task(kind, i) for i in range(len(self.addresses.jobs[kind]))]

    def start(self, task: Task, *words: str) -> None:
        """Start a process; words are those of the chief's command after `train`."""
        environment = {
            **{**os.environ, **THREADS, "PYTHONPATH": str(ROOT)},
            "TF_CONFIG": self.addresses.of_task(task).as_text(),
        }
        command = ["train", *words, "--cluster"] if task.kind == "chief" else ["node", "--attached", "--quiet"]
        former = self.children.get(task)
        if former is not None and former.stdin is not None:
            former.stdin.close()
        with (self.folder / f"{task.kind}.txt").open("ab") as messages:
            self.children[task] = subprocess.Popen(
                [*FEAT2VEC, *command],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=messages,
                stderr=messages,
                start_new_session=True,
            )

    def start_nodes(self) -> None:
        """Start the workers and servers that do not run."""
        for task in [*self.tasks("ps"), *self.tasks("worker")]:
            if task not in self.children or self.children[task].poll() is not None:
                self.start(task)

    def kill(self, task: Task) -> None:
        """Kill a process with SIGKILL."""
        self.children[task].send_signal(signal.SIGKILL)
        self.children[task].wait()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, the chief has ended or the time is over."""
        chief = self.children[self.tasks("chief")[0]]
        while not condition() and chief.poll() is None:
            assert time.monotonic() < self.end, self.messages[-3000:]
            time.sleep(0.1)

    def wait_for_chief(self) -> int:
        """Wait until the chief has ended, and return its exit code."""
        chief = self.children[self.tasks("chief")[0]]
        try:
            self.chief_ends.append(chief.wait(max(self.end - time.monotonic(), 0.1)))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the chief has not ended: {self.messages[-3000:]}") from None
        return self.chief_ends[-1]

    def train(self, *words: str) -> int:
        """Be a launcher: wait for the chief, and start it and the servers anew as long as it asks for that."""
        while (code := self.wait_for_chief()) in (RESTART_STATUS, -signal.SIGKILL):
            for task in self.tasks("ps"):  # all of them, as their tables are those of a training that has ended
                self.kill(task)
            self.start_nodes()
            self.start(Task("chief", 0), *words, "--resume")
        return code
