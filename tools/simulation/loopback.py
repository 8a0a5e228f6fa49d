"""Servers of TensorFlow in processes of their own on this machine, and the processor time that they take."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PAGE = resource.getpagesize()
SERVE = """
import json, sys
import tensorflow as tf
cluster, job = json.loads(sys.argv[1]), sys.argv[2]
tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=int(sys.argv[3]), protocol="grpc").join()
"""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each_socket in sockets:
        each_socket.bind(("127.0.0.1", 0))
    ports = [int(each_socket.getsockname()[1]) for each_socket in sockets]
    for each_socket in sockets:
        each_socket.close()
    return ports


@contextmanager
def server_processes(workers: int, servers: int) -> Iterator[tuple[dict[str, list[str]], dict[str, int]]]:
    """Start workers and servers; the cluster's addresses, and the id of each process by `worker 0`, `ps 0`, ..."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers + servers)]
    cluster = {"worker": addresses[:workers], "ps": addresses[workers:]}
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for job, tasks in cluster.items():
            for number in range(len(tasks)):
                words = [sys.executable, "-c", SERVE, json.dumps(cluster), job, str(number)]
                environment = {key: value for key, value in os.environ.items() if key != "TF_NUM_INTEROP_THREADS"}
                quiet = subprocess.DEVNULL
                process = subprocess.Popen(words, stdout=quiet, stderr=quiet, env=environment)
                processes[f"{job} {number}"] = process
        yield cluster, {name: process.pid for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
        for process in processes.values():
            process.wait()


def processor_seconds(process: int) -> float:
    """Seconds of the processor that the threads of a process have had, those that have ended apart."""
    nanoseconds = 0
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that has just ended
            nanoseconds += int(path.read_text().split()[0])
    return nanoseconds / 1e9


def resident_bytes(process: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE


def loopback_bytes() -> int:
    """Bytes that have passed the machine's loopback, headers included."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[0])
    raise OSError("/proc/net/dev: there is no lo")
