"""TF_CONFIG: what a command takes from it, and what is wrong with it in words."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from feat2vec.cluster.addresses import (
    NODES,
    Addresses,
    Task,
    are_loopback,
    free_addresses,
    is_loopback,
    read_addresses,
    refuse_silent_servers,
)
from feat2vec.errors import UserError

CLUSTER: dict[str, Any] = {
    "chief": ["localhost:7000"],
    "worker": ["127.0.0.1:7001", "[::1]:7002"],
    "ps": ["127.0.0.1:7003"],
}


def config(cluster: Any = CLUSTER, kind: Any = "worker", index: Any = 0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def test_addresses_are_those_of_tf_config() -> None:
    addresses = read_addresses(config(index=1), NODES)
    assert addresses == Addresses(
        ("127.0.0.1:7003",), ("127.0.0.1:7001", "[::1]:7002"), "localhost:7000", Task("worker", 1)
    )
    assert addresses.address == "[::1]:7002"
    assert are_loopback(addresses.jobs)
    assert read_addresses(addresses.as_text(), NODES) == addresses
    server = addresses.of_task(Task("ps", 0))
    assert (str(server.task), server.address) == ("ps 0", "127.0.0.1:7003")
    without_chief = read_addresses(config({**CLUSTER, "chief": [], "evaluator": ["x"]}), NODES)
    assert without_chief.chief is None
    assert "chief" not in without_chief.jobs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"TF_CONFIG: is not set; set it to {\"cluster\""),
        ("", "is not set"),
        ("{'cluster'", r"is no JSON \(Expecting property name.*received"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "has no `cluster`; expected"),
        (json.dumps({"cluster": CLUSTER}), "has no `task`"),
        (config({**CLUSTER, "ps": []}), "names no parameter server; add .* cluster.ps"),
        (config({"ps": ["localhost:1"]}), "names no worker; add .* cluster.worker"),
        (config({**CLUSTER, "chief": ["localhost:1", "localhost:2"]}), "names 2 chiefs"),
        (config({**CLUSTER, "worker": "localhost:1"}), "cluster.worker: expected a list of addresses"),
        (config({**CLUSTER, "worker": [1]}), "cluster.worker: expected a list of addresses"),
        (config({**CLUSTER, "ps": ["localhost"]}), "cluster.ps: expected host:port.*'localhost'"),
        (config({**CLUSTER, "ps": ["localhost:0"]}), "the port from 1 to 65535"),
        (config({**CLUSTER, "ps": ["localhost:65536"]}), "the port from 1 to 65535"),
        (config({**CLUSTER, "ps": ["http://localhost:1"]}), "cluster.ps: expected host:port"),
        (config(kind="chief"), "`feat2vec node` is worker or ps; received 'chief'; `feat2vec train --cluster` runs it"),
        (config(kind="evaluator"), "`feat2vec node` is worker or ps; received 'evaluator'$"),
        (config(kind=["worker"]), "task.type"),
        (config(index=2), "task.index: expected 0 to 1, as cluster.worker has 2 addresses; received 2"),
        (config(index=-1), "task.index"),
        (config(index="0"), "task.index.*received '0'"),
        (config(index=True), "task.index"),
        (config({**CLUSTER, "ps": ["127.0.0.1:7001"]}), "127.0.0.1:7001: two processes cannot listen there"),
        (config({**CLUSTER, "ps": ["10.0.0.3:1"]}), "10.0.0.3:1: not on this machine's loopback"),
        (config({**CLUSTER, "ps": ["127.0.0.1.example.org:1"]}), "not on this machine's loopback"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_few_lines(text: str | None, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        read_addresses(text, NODES)
    assert 1 <= len(str(raised.value).splitlines()) <= 5
    assert max(map(len, raised.value.problems)) <= 250


def test_a_chief_is_told_what_it_lacks() -> None:
    with pytest.raises(UserError, match=r"`feat2vec train --cluster` is chief; received 'ps'; `feat2vec node` runs it"):
        read_addresses(config(kind="ps"), ("chief",))
    with pytest.raises(UserError, match=r"names no chief; add the address of this process as cluster.chief"):
        read_addresses(config({**CLUSTER, "chief": []}, "chief"), ("chief",))
    assert read_addresses(config(kind="chief"), ("chief",)).address == "localhost:7000"


def test_other_machines_are_named_if_that_is_asked_for() -> None:
    text = config({**CLUSTER, "ps": ["ps-0.feat2vec:7000"]})
    assert not are_loopback(read_addresses(text, NODES, any_host=True).jobs)
    assert not is_loopback("127.0.0.1.example.org:7000")


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there, (silent, nobody) = f"127.0.0.1:{listening.getsockname()[1]}", list(free_addresses(2))
        refuse_silent_servers({"ps": [there], "worker": [nobody, there]}, 0.0)
        with pytest.raises(UserError, match=f"^{silent}: no parameter server answered in 0 s; start it with"):
            refuse_silent_servers({"ps": [there, silent], "worker": [there]}, 0.0)
        with pytest.raises(UserError, match=f"^{silent}, {nobody}: no worker answered in 0.1 s; start one with"):
            refuse_silent_servers({"ps": [there], "worker": [silent, nobody]}, 0.1)


def test_free_addresses_are_free_and_different() -> None:
    addresses = list(free_addresses(20))
    assert len(set(addresses)) == 20
    assert all(map(is_loopback, addresses))
    with socket.create_server(("127.0.0.1", int(addresses[7].rpartition(":")[2]))):
        pass
