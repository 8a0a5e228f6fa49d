"""Noise whose tables lie on the parameter servers: the same Q2, and no process has the table of all values.

A draw has two levels. The worker draws a server by the probability of all of its values together, and the server draws
among those by an alias table of its own: Q2(v) = P(server of v) P(v | server of v). A server gets a number of 63 random
bits and a unit for each draw, and sends back the value and its log Q2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Floats, Ints
from feat2vec.cluster.spread_arrays import SpreadArray, by_server, variable_of_pieces
from feat2vec.sampling.noise import Counts, Noise, Target, Unit, alias_table, pack

COUNTS_PER_PIECE = 1 << 20


class SpreadNoise(Noise):
    """Draws negatives as `Noise` does, by tables that lie on servers.

    Value v of a unit is the value v // S of server v % S, of S servers, so that each has as many frequent values.

    Args:
        *arguments: Those of `Noise`.
        devices: The servers.
        **options: Those of `Noise`.

    Raises:
        ValueError: If an argument is out of its range, or no unit has two counted values.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> counts = [np.array([5, 2, 1]), np.array([4, 4])]
        >>> noise = SpreadNoise(counts, params=[3, 2], negatives=2, devices=["CPU:0", "CPU:0"])
        >>> draws = noise.sample(tf.constant([[0, 1], [2, 0], [1, 1], [0, 0]]), seed=(0, 1))
        >>> sum(len(draw.rows) for draw in draws)
        4

    """

    def __init__(self, *arguments: Any, devices: Sequence[str], **options: Any) -> None:
        self.devices = tuple(devices)
        super().__init__(*arguments, **options)

    def _build(self, targets: Sequence[Target], q1: Floats, alpha: float) -> None:
        """Make the units, and the tables of each server.

        One flat table serves all units of a server: unit u has the entries from start[u], one for each of its values.
        """
        servers = len(self.devices)
        self._bounds = np.minimum(np.cumsum(q1) / np.cumsum(q1)[-1], 1)
        self._size = np.array([len(target.counts) for target in targets], np.int64)
        numbers = np.arange(servers)
        # sizes[s, u]: how many values of unit u server s has
        self._sizes = (self._size[None] - numbers[:, None] + servers - 1) // servers
        self._starts = np.cumsum(self._sizes, axis=1) - self._sizes
        self._alias_masks = np.array(
            [[_alias_mask(size) for size in sizes] for sizes in self._sizes.tolist()], np.int64
        )
        totals = [_log_total(target.counts, alpha) for target in targets]
        self._lowest_log_q = np.zeros(len(targets), np.float32)
        units: list[Unit] = []
        for u, (target, total, share) in enumerate(zip(targets, totals, q1, strict=True)):
            lowest, mean = _lowest_and_mean_log_q(target.counts, alpha, total)
            self._lowest_log_q[u] = lowest
            units.append(Unit(target.groups, target.column, len(target.counts), float(share), mean))
        self.units = tuple(units)
        masses = np.zeros((len(targets), servers))
        self._words_of, self._log_q_by_server = [], []
        for server, device in enumerate(self.devices):
            words = np.zeros(int(self._sizes[server].sum()), np.int64)
            log_q = np.zeros(len(words), np.float32)
            for u, (target, total) in enumerate(zip(targets, totals, strict=True)):
                log_q2 = _log_q(target.counts[server::servers], alpha, total)
                q2, start = np.exp(log_q2), self._starts[server, u]
                masses[u, server] = q2.sum()
                if masses[u, server] > 0 and len(q2) > 1:  # of a single value its number is 0
                    words[start : start + len(q2)] = pack(*alias_table(q2))
                log_q[start : start + len(q2)] = np.maximum(log_q2, self._lowest_log_q[u])
            self._words_of.append(variable_of_pieces(words, device))
            self._log_q_by_server.append(variable_of_pieces(log_q, device))
        # Unit u draws server s if its number is below u + the masses of the servers before and of s, in units of 1.
        cumulative = np.cumsum(masses, axis=1) / masses.sum(axis=1, keepdims=True)
        self._last_server = servers - 1 - np.argmax(masses[:, ::-1] > 0, axis=1)
        cumulative[np.arange(servers)[None] >= self._last_server[:, None]] = 1.0
        self._server_bounds = (cumulative + np.arange(len(targets))[:, None]).reshape(-1)  # ascending

    def _keep_members(self, members: Mapping[int, Ints]) -> None:
        self._members = {column: SpreadArray(values, self.devices) for column, values in members.items()}

    def _gather_members(self, column: int, values: tf.Tensor) -> tf.Tensor:
        members = self._members[column].gather(tf.reshape(values, [-1]))  # [n, members]
        return tf.reshape(members, tf.concat([tf.shape(values), tf.shape(members)[1:]], 0))

    def _log_q_of(self, unit: tf.Tensor, positive: tf.Tensor) -> tf.Tensor:
        """The log Q2 of values of units, [batch]; each distinct value is asked for once."""
        servers = len(self.devices)
        size = tf.gather(self._size, unit)
        value = tf.cast(positive, tf.int64)
        is_known = (value >= 0) & (value < size)
        unit_starts = np.cumsum(self._size) - self._size
        distinct, places = tf.unique(tf.boolean_mask(tf.gather(unit_starts, unit) + value, is_known))
        unit_of = tf.cast(tf.searchsorted(unit_starts, distinct, side="right") - 1, tf.int32)
        value_of = distinct - tf.gather(unit_starts, unit_of)

        def read(server: int, arrays: list[tf.Tensor]) -> list[tf.Tensor]:
            start = tf.gather(self._starts[server], arrays[0])
            return [tf.gather(self._log_q_by_server[server], start + arrays[1])]

        server_of = tf.cast(value_of % servers, tf.int32)
        (log_q,) = by_server(server_of, [unit_of, value_of // servers], self.devices, read)
        known_places = tf.where(is_known)  # [known, 1]
        return tf.tensor_scatter_nd_update(tf.gather(self._lowest_log_q, unit), known_places, tf.gather(log_q, places))

    def _draw(self, unit: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Negatives of the units, int32, and their log Q2: [units, negatives]."""
        servers = len(self.devices)
        shape = (tf.size(unit), self.negatives)
        seeds = tf.random.split(seed, 2, alg="philox")
        bits = tf.random.stateless_uniform(shape, seeds[0], None, None, dtype=tf.int64, alg="philox")
        bits = tf.reshape(tf.bitwise.bitwise_and(bits, np.int64(2**63 - 1)), [-1])
        units = tf.repeat(tf.cast(unit, tf.int32), self.negatives)  # [draws]
        number = tf.random.stateless_uniform(tf.shape(bits), seeds[1], dtype=tf.float64, alg="philox")
        place = tf.searchsorted(self._server_bounds, tf.cast(units, tf.float64) + number, side="right")
        server = tf.minimum(place - units * servers, tf.gather(self._last_server.astype(np.int32), units))

        def draw(server: int, arrays: list[tf.Tensor]) -> list[tf.Tensor]:
            start, size, alias_mask = (
                tf.gather(of_units[server], arrays[0]) for of_units in (self._starts, self._sizes, self._alias_masks)
            )
            bucket = arrays[1] % tf.maximum(size, 1)
            word = tf.gather(self._words_of[server], start + bucket)
            alias = tf.bitwise.bitwise_and(word, alias_mask)
            value = tf.where(arrays[1] < word - alias, bucket, alias)
            log_q = tf.gather(self._log_q_by_server[server], start + value)
            return [tf.cast(value * servers + server, tf.int32), log_q]

        values, log_q = by_server(server, [units, bits], self.devices, draw)
        return tf.reshape(values, shape), tf.reshape(log_q, shape)


def _alias_mask(size: int) -> int:
    return (1 << max(size - 1, 0).bit_length()) - 1


def _log_q(counts: Counts, alpha: float, log_total: float) -> Floats:
    """Log Q2 of some values, [values]; -inf without a count."""
    log_q = np.full(len(counts), -np.inf)
    is_counted = counts > 0
    log_q[is_counted] = alpha * np.log(counts[is_counted]) - log_total
    return log_q


def _log_total(counts: Counts, alpha: float) -> float:
    """The log of the sum of counts^alpha, read in pieces."""
    highest = alpha * math.log(max(int(np.max(counts)), 1))
    total = 0.0
    for start in range(0, len(counts), COUNTS_PER_PIECE):
        total += float(np.exp(_log_q(counts[start : start + COUNTS_PER_PIECE], alpha, highest)).sum())
    return highest + math.log(total)


def _lowest_and_mean_log_q(counts: Counts, alpha: float, log_total: float) -> tuple[float, float]:
    """The lowest log Q2 of counted values, and the mean of log Q2 under Q2."""
    lowest, mean = math.inf, 0.0
    for start in range(0, len(counts), COUNTS_PER_PIECE):
        log_q = _log_q(counts[start : start + COUNTS_PER_PIECE], alpha, log_total)
        counted = log_q[np.isfinite(log_q)]
        lowest = min(lowest, float(counted.min(initial=math.inf)))
        mean += float(np.exp(counted) @ counted)
    return lowest, mean
