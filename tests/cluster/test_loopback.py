"""Sockets that listen are bound to the device of loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from feat2vec.cluster import loopback
from feat2vec.cluster.addresses import Addresses, Task, free_addresses
from feat2vec.cluster.loopback import listen_on_loopback_alone, listening_sockets
from feat2vec.errors import UserError


def device(listening: socket.socket) -> bytes:
    return listening.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)


def test_a_socket_that_listens_is_bound_to_the_device() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as silent:
        assert listening.fileno() in listening_sockets()
        assert silent.fileno() not in listening_sockets()
        assert device(listening) == b""
        assert listen_on_loopback_alone() >= 1
        assert device(listening) == b"lo\0"
        assert device(silent) == b""
        with socket.create_connection(listening.getsockname(), timeout=5):
            pass


def test_a_system_that_cannot_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "DEVICE", b"none0\0")
    with socket.create_server(("127.0.0.1", 0)):
        with pytest.raises(
            UserError, match=r"cannot be kept on loopback here .*No such device.*; in a private network add"
        ):
            listen_on_loopback_alone()
        monkeypatch.delattr(socket, "SO_BINDTODEVICE")
        with pytest.raises(UserError, match=r"cannot be kept on loopback here .it takes Linux"):
            listen_on_loopback_alone()


NODE = """
import json, os, socket, sys
from feat2vec.cluster import node
from feat2vec.cluster.addresses import NODES, read_addresses
from feat2vec.cluster.loopback import listening_sockets

def show():
    facts = []
    for number in listening_sockets():
        listening = socket.socket(fileno=os.dup(number))
        device = listening.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
        facts.append([listening.getsockname()[1], device.decode()])
    print(json.dumps(facts))
    sys.stdout.flush()

node.wait_for_end_of_input = show
node.run_node(read_addresses(os.environ["TF_CONFIG"], NODES), print, attached=True)
"""


@pytest.mark.slow
def test_the_server_of_a_node_is_bound_to_the_device() -> None:
    worker, server = free_addresses(2)
    text = Addresses((server,), (worker,), None, Task("ps", 0)).as_text()
    environment = {**os.environ, "TF_CONFIG": text, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", NODE], env=environment, capture_output=True, text=True, timeout=60)
    line, sockets = done.stdout.splitlines()
    assert line == f"ps 0: listens at {server} and waits for what the chief asks; Ctrl-C or SIGTERM ends it"
    assert json.loads(sockets) == [[int(server.rpartition(":")[2]), "lo\0"]]
