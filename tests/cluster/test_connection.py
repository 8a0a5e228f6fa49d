"""What TensorFlow raises of a cluster, in words."""

from __future__ import annotations

import socket
from threading import Event, Timer

import pytest
import tensorflow as tf

from feat2vec.cluster.addresses import free_addresses
from feat2vec.cluster.connection import lost_as_restart, wait_beside_workers
from feat2vec.errors import FailedError, RestartError, UserError


def raise_within(error: Exception) -> None:
    with lost_as_restart():
        raise error


def test_a_lost_server_asks_for_a_restart() -> None:
    target = "Additional GRPC error information from remote target /job:ps/replica:0/task:1/device:CPU:0"
    with pytest.raises(
        RestartError, match=r"parameter server 1 of the cluster was lost\nstart the chief and the servers"
    ):
        raise_within(tf.errors.UnavailableError(None, None, f"Socket closed\n{target}"))
    assert issubclass(RestartError, FailedError)


def test_a_shard_that_a_worker_does_not_see_is_the_users_mistake() -> None:
    message = "{{function_node f}} /shared/e/rows-00001.bin; No such file or directory\n\t [[{{node ImmutableConst}}]]"
    with pytest.raises(UserError, match=r"^/shared/e/rows-00001.bin: a worker does not find it; let all machines see"):
        raise_within(tf.errors.NotFoundError(None, None, message))
    with pytest.raises(tf.errors.NotFoundError):
        raise_within(tf.errors.NotFoundError(None, None, "Resource localhost/group_0/table was not found"))


def test_a_chief_gives_up_when_all_workers_have_been_lost_for_long() -> None:
    (lost,) = free_addresses(1)
    with pytest.raises(RestartError, match=f"{lost}: no worker has answered for 0.05 s\nstart workers .* --resume"):
        wait_beside_workers(lambda: Event().wait(60), [lost], 0.05)


def test_a_chief_waits_as_long_as_a_worker_is_there() -> None:
    done = Event()
    Timer(0.3, done.set).start()
    with socket.create_server(("127.0.0.1", 0)) as worker:
        host, port = worker.getsockname()
        wait_beside_workers(lambda: done.wait(60), [f"{host}:{port}"], 0.05)
    assert done.is_set()


def test_what_goes_wrong_on_a_worker_is_raised() -> None:
    def fail() -> None:
        raise tf.errors.UnavailableError(None, None, "Socket closed")

    with pytest.raises(tf.errors.UnavailableError):
        wait_beside_workers(fail, [], 60)
