"""`feat2vec node` as a process: it waits, and ends at once without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from feat2vec.cluster.addresses import Addresses, Task, answers, free_addresses

ROOT = Path(__file__).parents[2]


def node(addresses: Addresses, *options: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TF_CONFIG": addresses.as_text(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "feat2vec", "node", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.slow
def test_a_node_waits_for_a_chief_that_never_comes_and_ends_with_a_signal_or_its_input() -> None:
    worker, server = free_addresses(2)
    workers, servers = (
        Addresses((server,), (worker,), None, Task("worker", 0)),
        Addresses((server,), (worker,), None, Task("ps", 0)),
    )
    nodes = [node(workers), node(servers, "--attached")]
    try:
        lines = [str(child.stdout.readline()) for child in nodes if child.stdout]
        assert (
            lines[0] == f"worker 0: listens at {worker} and waits for what the chief asks; Ctrl-C or SIGTERM ends it\n"
        )
        assert lines[1].startswith(f"ps 0: listens at {server} and waits")
        assert answers(worker, 0)
        assert all(child.poll() is None for child in nodes)
        second = node(servers)
        assert second.communicate(timeout=50)[1].startswith(f"ps 0: cannot listen at {server} (")
        assert second.returncode == 1
        nodes[0].send_signal(signal.SIGTERM)
        assert nodes[0].communicate(timeout=10) == ("", "")
        assert nodes[0].returncode == 143
        assert nodes[1].communicate("", timeout=10) == ("", "")
        assert nodes[1].returncode == 0
    finally:
        for child in nodes:
            child.kill()
            child.communicate()
