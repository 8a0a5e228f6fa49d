"""Arrays that lie on the parameter servers in equal parts: row i is row i // S of server i % S, of S servers.

Ids are sorted by count, so that runs of neighbouring rows would give all of the load to the first server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array

PIECE_BYTES = 16 << 20  # that are sent at once

OnServer = Callable[[int, list[tf.Tensor]], list[tf.Tensor]]  # the server's number and its rows, to its answers


def variable_of_pieces(array: Array, device: str) -> tf.Variable:
    """A variable on a device, filled in pieces, so that there is no second copy of the array.

    Args:
        array: Its value, which may be memory-mapped.
        device: The device.

    """
    with tf.device(device):
        variable = tf.Variable(lambda: tf.zeros(array.shape, array.dtype), trainable=False)
        rows = max(PIECE_BYTES // max(array.nbytes // max(len(array), 1), 1), 1)
        for start in range(0, len(array), rows):
            variable[start : start + rows].assign(np.ascontiguousarray(array[start : start + rows]))
    return variable


def by_server(
    server: tf.Tensor, arrays: Sequence[tf.Tensor], devices: Sequence[str], call: OnServer
) -> list[tf.Tensor]:
    """What the servers answer, for numbers that are for one of them each: [n] each.

    The operations of `call` run on the server, so that only its arguments and its answers are sent.

    Args:
        server: The number of the server, int32 [n].
        arrays: What is sent to it, [n] each.
        devices: The servers.
        call: What a server does.

    """
    places = tf.dynamic_partition(tf.range(tf.size(server)), server, len(devices))
    parts = [tf.dynamic_partition(array, server, len(devices)) for array in arrays]
    answers = []
    for number, device in enumerate(devices):
        with tf.device(device):
            answers.append(call(number, [part[number] for part in parts]))
    return [tf.dynamic_stitch(places, list(answer)) for answer in zip(*answers, strict=True)]


class SpreadArray:
    """An array whose rows lie on the servers, and are read there by number.

    Args:
        array: The rows, [rows, ...]; it may be memory-mapped.
        devices: The servers.

    """

    def __init__(self, array: Array, devices: Sequence[str]) -> None:
        self.devices = tuple(devices)
        servers = len(self.devices)
        self.parts = [variable_of_pieces(array[server::servers], device) for server, device in enumerate(self.devices)]

    def gather(self, rows: tf.Tensor) -> tf.Tensor:
        """Some rows, each of which is read and sent once however often it is asked for: [n, ...].

        Args:
            rows: Their numbers, int32 or int64 [n].

        """
        distinct, places = tf.unique(tf.cast(rows, tf.int64))
        servers = len(self.devices)
        (answers,) = by_server(tf.cast(distinct % servers, tf.int32), [distinct // servers], self.devices, self._read)
        return tf.gather(answers, places)

    def _read(self, server: int, rows: list[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.gather(self.parts[server], rows[0])]
