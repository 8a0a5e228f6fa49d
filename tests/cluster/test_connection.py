"""What TensorFlow raises of a cluster, in words."""

from __future__ import annotations

import pytest
import tensorflow as tf

from feat2vec.cluster.connection import lost_as_restart
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
