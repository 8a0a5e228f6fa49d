"""Children that are nodes: they are started with their part, and end with the context and with the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from feat2vec.cluster import local_cluster as module
from feat2vec.cluster.addresses import NODES, read_addresses
from feat2vec.cluster.local_cluster import ClusterSize, cluster_size, end_children, local_cluster
from feat2vec.errors import UserError

# Writes its part and its process into a folder, and ends as a node does, when its input ends.
NODE = (
    "import os, sys, pathlib; task = os.environ['TF_CONFIG']; path = pathlib.Path(sys.argv[1]) / str(os.getpid());"
    "path.with_suffix('.new').write_text(task); path.with_suffix('.new').rename(path); sys.stdin.read()"
)
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"


def started(folder: Path, count: int) -> list[int]:
    """The processes of the nodes, once so many have written their part."""
    end = time.monotonic() + 20
    while len(names := [path.name for path in folder.iterdir() if not path.suffix]) < count:
        assert time.monotonic() < end
        time.sleep(0.02)
    return [int(name) for name in names]


def lives(process: int) -> bool:
    """Whether a process runs, and is not just waiting to be asked for its exit code."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("text", ["", "2", "2x", "x2", "0x1", "1x0", "65x1", "2x2x2", "2 x 2", "-1x1", "٣x1", "1.5x1"])
def test_a_wrong_size_is_the_users_mistake(text: str) -> None:
    with pytest.raises(
        UserError, match="--local-cluster: expected workers x servers, each 1 to 64, such as 2x2; received"
    ):
        cluster_size(text)


def test_each_node_gets_its_part_and_none_is_left(tmp_path: Path) -> None:
    assert cluster_size("3x1") == ClusterSize(workers=3, servers=1)
    with local_cluster(ClusterSize(2, 1), [sys.executable, "-c", NODE, str(tmp_path)]) as addresses:
        processes = started(tmp_path, 3)
        assert all(map(lives, processes))
        texts = [path.read_text() for path in tmp_path.iterdir()]
        tasks = {str(read_addresses(text, NODES).task) for text in texts}
        assert tasks == {"worker 0", "worker 1", "ps 0"}
        assert all(json.loads(text)["cluster"] == addresses.jobs for text in texts)
        assert str(addresses.task) == "chief 0"
    assert not any(map(lives, processes))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_children_end_whatever_happens(tmp_path: Path, error: type[BaseException]) -> None:
    command = [sys.executable, "-c", NODE, str(tmp_path)]
    bystander = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "TF_CONFIG": ""})
    processes = []

    def fail_within() -> None:
        with local_cluster(ClusterSize(1, 1), command):
            processes.extend(started(tmp_path, 3))
            raise error

    try:
        with pytest.raises(error):
            fail_within()
        assert [process for process in processes if lives(process)] == [bystander.pid]
    finally:
        end_children([bystander])


def test_a_child_that_cannot_be_started_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, calls = module._start, []

    def start_two(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 3:
            started(tmp_path, 2)
            raise OSError("no more processes")
        return start(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_start", start_two)
    with pytest.raises(OSError, match="no more processes"):
        local_cluster(ClusterSize(2, 2), [sys.executable, "-c", NODE, str(tmp_path)]).__enter__()
    assert not any(map(lives, started(tmp_path, 2)))


def test_a_stubborn_child_is_killed() -> None:
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    end_children([child], 0.2)
    child.stdout.close()
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_a_killed_chief(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import sys, time; from feat2vec.cluster.local_cluster import *\n"
        f"with local_cluster(ClusterSize(1, 1), [sys.executable, '-c', {NODE!r}, {str(tmp_path)!r}]): time.sleep(60)"
    )
    chief = subprocess.Popen([sys.executable, "-c", code])
    processes = started(tmp_path, 2)
    chief.send_signal(number)
    chief.wait(10)
    end = time.monotonic() + 10
    while any(map(lives, processes)):
        assert time.monotonic() < end
        time.sleep(0.02)
