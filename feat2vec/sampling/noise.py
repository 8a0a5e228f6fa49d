"""Two-step noise: which unit a row's negatives replace (Q1), and by which of its values (Q2).

A *unit* is a group, or a joint set of groups whose values are replaced together. Q1(unit) is proportional to
params^alpha_groups, Q2(value) to count^alpha_values over the values with a count. `rows` holds a value id for each
group, -1 where the group is missing, and after them one more column for each joint set: `Joint.ids`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Tuples = tuple[Sequence[int], npt.NDArray[np.int32], Ints]  # groups, their value ids [tuples, members], counts [tuples]
Target = tuple[tuple[int, ...], int, npt.NDArray[np.integer[Any]]]  # groups, column, counts


def log_probabilities(counts: npt.NDArray[np.integer[Any]], alpha: float) -> Floats:
    """Exact log Q2 of a unit's values, [V]; a value without a count is never drawn and has -inf."""
    scaled = np.full(len(counts), -np.inf)
    seen = counts > 0
    scaled[seen] = alpha * np.log(counts[seen])
    scaled -= scaled.max()
    return scaled - math.log(np.exp(scaled).sum())


def alias_table(probability: Floats) -> tuple[Floats, Ints]:
    """Walker's table: bucket i keeps value i with probability keep[i] and gives alias[i] otherwise, both [V].

    The sweep that fills light buckets (V p < 1) from heavy ones is read off two running sums: light i is filled by the
    first heavy value whose excess is not used up by the lights before i, and a heavy value that falls below 1 is filled
    by the next. Running sums are fixed-point int64, as float64 sums over millions of values lose up to 1e-6.
    """
    size = len(probability)
    mass = probability * (size / probability.sum())
    keep, alias = np.ones(size), np.arange(size)
    light, heavy = np.flatnonzero(mass < 1), np.flatnonzero(mass >= 1)
    if not len(light) or not len(heavy):
        return keep, alias  # equal, but for rounding
    keep[light] = mass[light]
    bits = math.floor(62.9 - math.log2(max((mass[heavy] - 1).sum(), 1)))
    need, spare = _running_sum(1 - mass[light], bits), _running_sum(mass[heavy] - 1, bits)
    # Both end at the same sum but for the rounding of `mass` (about V 2^-53), which the heavy values share.
    spare -= np.rint(spare * ((spare[-1] - need[-1]) / max(spare[-1], 1))).astype(np.int64)
    spare[-1] = need[-1]
    before = np.concatenate([[0], need[:-1]])
    alias[light] = heavy[np.searchsorted(spare, before, side="left")]
    spent = np.searchsorted(need, spare, side="right")  # the light value that takes the heavy one below 1
    falls = np.flatnonzero(spent < len(need))
    keep[heavy[falls]] = 1 - np.ldexp((need[spent[falls]] - spare[falls]).astype(np.float64), -bits)
    alias[heavy[falls]] = heavy[falls + 1]
    return keep, alias


def _running_sum(parts: Floats, bits: int) -> Ints:
    scaled = np.ldexp(parts, bits)
    whole = np.floor(scaled)
    rest = np.ldexp(scaled - whole, 31).astype(np.int64)  # summed apart, then rounded into the last bit
    total: Ints = np.cumsum(whole.astype(np.int64)) + ((np.cumsum(rest) + (1 << 30)) >> 31)
    return total


def pack(keep: Floats, alias: Ints) -> Ints:
    """One int64 word a bucket, [V]: the alias in the low bits, keep in the others, so that a draw is one gather.

    With b = bits of V - 1, Q2 is off by less than 2^-(62 - b) in total variation, 2^-39 for V = 5M.
    """
    low = (len(keep) - 1).bit_length()
    top = 1 << (63 - low)
    threshold = np.minimum(np.rint(keep * top).astype(np.int64), top - 1)  # a bucket with keep = 1 is its own alias
    return threshold << low | alias


class Unit(NamedTuple):
    """A target of the noise: its groups, the column of `rows` with its positive, and its share of the rows."""

    groups: tuple[int, ...]
    column: int
    size: int  # its values, counted or not
    probability: float  # Q1
    mean_log_q: float  # the mean of log Q2 under Q2


class Draw(NamedTuple):
    """The rows of a batch that target one unit, and their negatives; n may be 0.

    Where `present` is False the row has no value of the unit: give it weight 0.
    """

    rows: tf.Tensor  # int32 [n, columns]
    present: tf.Tensor  # bool [n]
    log_q_positive: tf.Tensor  # float32 [n]
    values: tuple[tf.Tensor, ...]  # for each of the unit's groups int32 [n, negatives], or [negatives] if shared
    log_q: tf.Tensor  # float32, as values
    hits: tf.Tensor  # bool [n, negatives]: the negative is the row's own value


class Draws(NamedTuple):
    """The rows of a batch, each with its target unit, and the negatives of all units."""

    unit: tf.Tensor  # int32 [batch], ascending
    sizes: tf.Tensor  # int32 [units], the rows of each
    positive: tf.Tensor  # int32 [batch], each row's own value, -1 for none
    log_q_positive: tf.Tensor  # float32 [batch]
    values: tf.Tensor  # int32 [batch or units, negatives]
    log_q: tf.Tensor  # float32, as values


class Noise:
    """Draws negatives for batches of rows; the same seed gives the same draws.

    Units with fewer than two counted values are no targets: `units` has those that are. A row whose target is missing
    in it stays in the slice, masked, so that (the sum of the loss over a batch) / batch has the expectation
    sum_i Q1(i) mean_x [present_i(x) loss_i(x)]. Handing it to another of its units would raise those above their Q1.
    """

    def __init__(
        self,
        counts: Sequence[npt.NDArray[np.integer[Any]]],  # for each group [V_g]
        params: Sequence[int],  # for each group the number of its extractor's weights
        alpha_groups: float = 0.25,
        alpha_values: float = 0.75,
        negatives: int = 5,
        sharing: str = "record",
        joint: Sequence[Tuples] = (),
        targets: Sequence[int] | None = None,  # the groups to replace, None for all; a joint set counts if it is whole
        shares: Sequence[float] | None = None,  # for each group what Q1 is proportional to, instead of params^alpha
    ) -> None:
        _check(counts, params, alpha_groups, alpha_values, negatives, sharing, joint)
        self.negatives = negatives
        self.sharing = sharing
        self.columns = len(counts) + len(joint)
        joined = {group for groups, _, _ in joint for group in groups}
        found: list[Target] = [((g,), g, count) for g, count in enumerate(counts) if g not in joined]
        found += [(tuple(groups), len(counts) + j, count) for j, (groups, _, count) in enumerate(joint)]
        if targets is not None:
            found = [target for target in found if set(target[0]) <= set(targets)]
        drawable = [int(np.count_nonzero(count)) for _, _, count in found]
        drawn = [target for target, values in zip(found, drawable, strict=True) if values > 1]
        if not drawn:
            raise ValueError(f"noise needs a unit with two or more counted values. Received: {drawable} values")
        if shares is None:
            weights = np.array([sum(int(params[g]) for g in groups) for groups, _, _ in drawn])
            q1 = np.exp(log_probabilities(weights, alpha_groups))
        else:
            given = np.array([sum(shares[g] for g in groups) for groups, _, _ in drawn])
            q1 = given / given.sum()
        self._build(drawn, q1, alpha_values)
        self._members = {  # by column
            len(counts) + j: tf.Variable(values.astype(np.int32), trainable=False)  # [tuples, members]
            for j, (_, values, _) in enumerate(joint)
        }

    def _build(self, targets: list[Target], q1: Floats, alpha: float) -> None:
        # One flat table serves all units: unit u has size[u] + 1 entries from start[u], the last for unknown values.
        self._size = np.array([len(count) for _, _, count in targets], np.int64)
        self._start = np.cumsum(self._size + 1) - self._size - 1
        self._low = np.array([(1 << (int(size) - 1).bit_length()) - 1 for size in self._size], np.int64)
        self._bounds = np.minimum(np.cumsum(q1) / np.cumsum(q1)[-1], 1)
        words = np.zeros(self._start[-1] + self._size[-1] + 1, np.int64)
        log_q = np.zeros(len(words), np.float32)
        units: list[Unit] = []
        for (groups, column, count), start, probability in zip(targets, self._start, q1, strict=True):
            exact = log_probabilities(count, alpha)
            drawn, seen, end = np.exp(exact), exact[np.isfinite(exact)], start + len(count)
            words[start:end] = pack(*alias_table(drawn))
            log_q[start:end] = np.maximum(exact, seen.min())  # new values have that of the rarest
            log_q[end] = seen.min()
            units.append(Unit(groups, column, len(count), float(probability), float(np.exp(seen) @ seen)))
        self.units = tuple(units)
        self._words = tf.Variable(words, trainable=False)
        self._log_q = tf.Variable(log_q, trainable=False)

    def allocate(self, batch: int | tf.Tensor, seed: Any) -> tf.Tensor:
        """How many rows of a batch each unit gets, int32 [units], by systematic rounding.

        With C_i = Q1_1 + .. + Q1_i and u uniform in [0, 1), size_i = floor(batch C_i + u) - floor(batch C_{i-1} + u).
        E floor(x + u) = x, so E size_i = batch Q1_i; floor(x + d) - floor(x) is floor(d) or ceil(d); the sizes sum to
        floor(batch + u) = batch.
        """
        rows = tf.cast(batch, tf.float64)
        u = tf.random.stateless_uniform([], _seed(seed), dtype=tf.float64, alg="philox")
        ends = tf.minimum(tf.floor(rows * self._bounds + u), rows)  # batch + u may round up to batch + 1
        ends = tf.cast(ends, tf.int32)
        return ends - tf.concat([[0], ends[:-1]], 0)

    def sample(self, rows: tf.Tensor, seed: Any) -> list[Draw]:
        """The slice and the negatives of each of `units`, for int32 rows [batch, columns] in random order.

        `seed` is two integers or an integer tensor [2], such as (seed, step).
        """
        rows = tf.convert_to_tensor(rows)
        if rows.dtype != tf.int32 or rows.shape.rank != 2 or rows.shape[1] != self.columns:
            raise ValueError(
                f"rows must be int32 [batch, {self.columns}], a column for each group, then one for each joint set. "
                f"Received: {rows.dtype.name} {rows.shape}"
            )
        draws = self.sample_all(rows, seed)
        record = self.sharing == "record"  # values: [batch or units, negatives]
        split = [tf.split(x, draws.sizes) for x in (rows, draws.positive, draws.log_q_positive)]
        split += [tf.split(x, draws.sizes) if record else tf.unstack(x) for x in (draws.values, draws.log_q)]
        return [self._unit_draw(*parts) for parts in zip(self.units, *split, strict=True)]

    def sample_all(self, rows: tf.Tensor, seed: Any) -> Draws:
        """`sample`, with the slices of all units in one."""
        seeds = tf.random.split(_seed(seed), 2, alg="philox")
        batch = tf.shape(rows)[0]
        sizes = self.allocate(batch, seeds[0])
        unit = tf.searchsorted(tf.cumsum(sizes), tf.range(batch), side="right")  # [batch]
        index, log_q = self._draw(unit if self.sharing == "record" else tf.range(len(self.units)), seeds[1])
        positive = tf.gather(rows, tf.gather([one.column for one in self.units], unit), batch_dims=1)  # [batch]
        known = tf.cast(tf.bitcast(positive, tf.uint32), tf.int64)  # -1 is beyond every size as well
        place = tf.gather(self._start, unit) + tf.minimum(known, tf.gather(self._size, unit))
        return Draws(unit, sizes, positive, tf.gather(self._log_q, place), index, log_q)

    def _draw(self, unit: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # One number < 2^63 serves a draw: of the numbers below any threshold each bucket has a size-th, to within 1.
        shape = (tf.size(unit), self.negatives)
        bits = tf.random.stateless_uniform(shape, seed, None, None, dtype=tf.int64, alg="philox")
        bits = tf.bitwise.bitwise_and(bits, np.int64(2**63 - 1))
        start, size, low = (tf.gather(x, unit)[:, None] for x in (self._start, self._size, self._low))
        bucket = bits % size
        word = tf.gather(self._words, start + bucket)
        alias = tf.bitwise.bitwise_and(word, low)
        index = tf.where(bits < word - alias, bucket, alias)
        return tf.cast(index, tf.int32), tf.gather(self._log_q, start + index)

    def _unit_draw(self, unit: Unit, *parts: tf.Tensor) -> Draw:
        rows, own, log_q_own, index, log_q = parts
        values: tuple[tf.Tensor, ...] = (index,)
        if unit.column in self._members:
            values = tuple(tf.unstack(tf.gather(self._members[unit.column], index), len(unit.groups), axis=-1))
        return Draw(rows, own >= 0, log_q_own, values, log_q, own[:, None] == index)


def _seed(seed: Any) -> tf.Tensor:
    return tf.stack([tf.cast(seed[0], tf.int64), tf.cast(seed[1], tf.int64)])


def _check(
    counts: Sequence[npt.NDArray[np.integer[Any]]],
    params: Sequence[int],
    alpha_groups: float,
    alpha_values: float,
    negatives: int,
    sharing: str,
    joint: Sequence[Tuples],
) -> None:
    members = [group for groups, _, _ in joint for group in groups]
    sets = all(len(groups) > 1 for groups, _, _ in joint) and set(members) <= set(range(len(counts)))
    fits = all(v.shape == (len(c), len(g)) for g, v, c in joint)
    low = min((int(np.min(c, initial=0)) for c in [*counts, *(c for _, _, c in joint)]), default=0)
    shapes = [(tuple(g), v.shape, c.shape) for g, v, c in joint]
    problems = [
        (len(params) == len(counts), f"params for each of {len(counts)} groups", list(params)),
        (all(p > 0 for p in params), "params of one or more", list(params)),
        (low >= 0, "counts of zero or more", low),
        (0 <= alpha_groups < math.inf, "a finite alpha_groups of zero or more", alpha_groups),
        (0 <= alpha_values < math.inf, "a finite alpha_values of zero or more", alpha_values),
        (negatives > 0, "one or more negatives", negatives),
        (sharing in ("record", "batch"), "sharing 'record' or 'batch'", sharing),
        (sets, f"joint sets of two or more of the groups 0..{len(counts) - 1}", members),
        (len(set(members)) == len(members), "a group in one joint set at most", members),
        (fits, "for a joint set values [tuples, members] and counts [tuples]", shapes),
    ]
    for fine, needed, received in problems:
        if not fine:
            raise ValueError(f"noise needs {needed}. Received: {received!r}")
