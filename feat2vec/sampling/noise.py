"""Draws from a fixed distribution in constant time: the probabilities of values, and Walker's alias table (1977)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Floats, Int64s, Integers, Ints

Counts = Integers


def log_probabilities(counts: Counts, alpha: float) -> Floats:
    """Exact log Q2 of a unit's values, [V]: Q2(v) is proportional to counts[v]^alpha.

    A value without a count is never drawn and has -inf.
    """
    scaled = np.full(len(counts), -np.inf)
    is_counted = counts > 0
    scaled[is_counted] = alpha * np.log(counts[is_counted])
    scaled -= scaled.max()
    return scaled - math.log(np.exp(scaled).sum())


def alias_table(probability: Floats) -> tuple[Floats, Int64s]:
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
        return keep, alias  # all are equal, but for rounding
    keep[light] = mass[light]
    bits = math.floor(62.9 - math.log2(max((mass[heavy] - 1).sum(), 1)))
    need, spare = _running_sum(1 - mass[light], bits), _running_sum(mass[heavy] - 1, bits)
    # Both end at the same sum but for the rounding of `mass` (about V 2^-53), which the heavy values share.
    spare -= np.rint(spare * ((spare[-1] - need[-1]) / max(spare[-1], 1))).astype(np.int64)
    spare[-1] = need[-1]
    need_before = np.concatenate([[0], need[:-1]])
    alias[light] = heavy[np.searchsorted(spare, need_before, side="left")]
    last_light = np.searchsorted(need, spare, side="right")  # that takes the heavy value below 1
    falls_below = np.flatnonzero(last_light < len(need))
    excess = need[last_light[falls_below]] - spare[falls_below]
    keep[heavy[falls_below]] = 1 - np.ldexp(excess.astype(np.float64), -bits)
    alias[heavy[falls_below]] = heavy[falls_below + 1]
    return keep, alias


def _running_sum(numbers: Floats, bits: int) -> Int64s:
    """The running sum, as fixed-point numbers with `bits` binary places."""
    scaled = np.ldexp(numbers, bits)
    integer_parts = np.floor(scaled)
    # The fractions are summed separately, then rounded into the last bit.
    fractions = np.ldexp(scaled - integer_parts, 31).astype(np.int64)
    total: Int64s = np.cumsum(integer_parts.astype(np.int64)) + ((np.cumsum(fractions) + (1 << 30)) >> 31)
    return total


def pack(keep: Floats, alias: Int64s) -> Int64s:
    """One int64 word a bucket, [V]: the alias in the low bits, keep in the others, so that a draw is one gather.

    With b = bits of V - 1, Q2 is off by less than 2^-(62 - b) in total variation, 2^-39 for V = 5M.
    """
    alias_bits = (len(keep) - 1).bit_length()
    most = 1 << (63 - alias_bits)
    threshold = np.minimum(np.rint(keep * most).astype(np.int64), most - 1)  # a bucket with keep = 1 is its own alias
    return threshold << alias_bits | alias


Tuples = tuple[Sequence[int], Ints, Int64s]  # groups, their value ids [tuples, members], counts [tuples]
Seed: TypeAlias = "tf.Tensor | tuple[int, int]"  # two integers, such as (seed, step)


class Target(NamedTuple):
    """A unit that negatives may replace."""

    groups: tuple[int, ...]
    column: int  # of `rows`, with the unit's own value
    counts: Counts  # [values]


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

    Args:
        counts: For each group how often each of its values occurs, [V_g].
        params: For each group the number of its extractor's weights.
        alpha_groups: The exponent of `params` in Q1.
        alpha_values: The exponent of `counts` in Q2.
        negatives: How many negatives a row, or a unit, gets.
        sharing: `record` for negatives of each row's own, `batch` for those that the rows of a unit share.
        joint: Joint sets of groups: groups, value ids and counts of their tuples.
        targets: The groups to replace, None for all; a joint set is replaced if all of its groups are named.
        shares: For each group what Q1 is proportional to, instead of params^alpha_groups.

    Raises:
        ValueError: If an argument is out of its range, or no unit has two counted values.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> noise = Noise([np.array([5, 2, 1]), np.array([4, 4])], params=[3, 2], negatives=2)
        >>> draws = noise.sample(tf.constant([[0, 1], [2, 0], [1, 1], [0, 0]]), seed=(0, 1))
        >>> [unit.groups for unit in noise.units]
        [(0,), (1,)]
        >>> sum(len(draw.rows) for draw in draws)
        4

    """

    def __init__(
        self,
        counts: Sequence[Counts],
        params: Sequence[int],
        alpha_groups: float = 0.25,
        alpha_values: float = 0.75,
        negatives: int = 5,
        sharing: str = "record",
        joint: Sequence[Tuples] = (),
        targets: Sequence[int] | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        _check(counts, params, alpha_groups, alpha_values, negatives, sharing, joint)
        self.negatives = negatives
        self.sharing = sharing
        self.columns = len(counts) + len(joint)
        drawn_targets = _drawn_targets(counts, joint, targets)
        if shares is None:
            params_of_target = np.array([sum(int(params[g]) for g in target.groups) for target in drawn_targets])
            q1 = np.exp(log_probabilities(params_of_target, alpha_groups))
        else:
            share_of_target = np.array([sum(shares[g] for g in target.groups) for target in drawn_targets])
            q1 = share_of_target / share_of_target.sum()
        self._build(drawn_targets, q1, alpha_values)
        self._keep_members({len(counts) + j: values.astype(np.int32) for j, (_, values, _) in enumerate(joint)})

    def _build(self, targets: Sequence[Target], q1: Floats, alpha: float) -> None:
        """Make the units and their tables.

        One flat table serves all units: unit u has size[u] + 1 entries from start[u], the last for unknown values.
        """
        self._size = np.array([len(target.counts) for target in targets], np.int64)
        self._start = np.cumsum(self._size + 1) - self._size - 1
        self._alias_mask = np.array([(1 << (int(size) - 1).bit_length()) - 1 for size in self._size], np.int64)
        self._bounds = np.minimum(np.cumsum(q1) / np.cumsum(q1)[-1], 1)
        words = np.zeros(self._start[-1] + self._size[-1] + 1, np.int64)
        log_q = np.zeros(len(words), np.float32)
        units: list[Unit] = []
        for target, start, share in zip(targets, self._start, q1, strict=True):
            log_q2 = log_probabilities(target.counts, alpha)
            log_q2_counted, end = log_q2[np.isfinite(log_q2)], start + len(target.counts)
            words[start:end] = pack(*alias_table(np.exp(log_q2)))
            log_q[start:end] = np.maximum(log_q2, log_q2_counted.min())  # new values have that of the rarest
            log_q[end] = log_q2_counted.min()
            mean_log_q = float(np.exp(log_q2_counted) @ log_q2_counted)
            units.append(Unit(target.groups, target.column, len(target.counts), float(share), mean_log_q))
        self.units = tuple(units)
        self._words = tf.Variable(words, trainable=False)
        self._log_q = tf.Variable(log_q, trainable=False)

    def _keep_members(self, members: Mapping[int, Ints]) -> None:
        """Keep the value ids of each tuple of the joint sets, by column: [tuples, members]."""
        self._members = {column: tf.Variable(values, trainable=False) for column, values in members.items()}

    def allocate(self, batch: int | tf.Tensor, seed: Seed) -> tf.Tensor:
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

    def sample(self, rows: tf.Tensor, seed: Seed) -> list[Draw]:
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
        unit_rows = tf.split(rows, draws.sizes)
        positives, log_q_positives = tf.split(draws.positive, draws.sizes), tf.split(draws.log_q_positive, draws.sizes)
        if self.sharing == "record":  # [rows of the unit, negatives]
            values, log_qs = tf.split(draws.values, draws.sizes), tf.split(draws.log_q, draws.sizes)
        else:  # [negatives]
            values, log_qs = tf.unstack(draws.values), tf.unstack(draws.log_q)
        unit_draws = []
        for u, unit in enumerate(self.units):
            is_present = positives[u] >= 0
            hits = positives[u][:, None] == values[u]
            members = self._member_values(unit, values[u])
            unit_draws.append(Draw(unit_rows[u], is_present, log_q_positives[u], members, log_qs[u], hits))
        return unit_draws

    def _member_values(self, unit: Unit, values: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The drawn values of each of a unit's groups; `values` are tuple ids if it is a joint set."""
        if unit.column not in self._members:
            return (values,)
        members = self._gather_members(unit.column, values)  # [..., members]
        return tuple(tf.unstack(members, len(unit.groups), axis=-1))

    def _gather_members(self, column: int, values: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._members[column], values)

    def sample_all(self, rows: tf.Tensor, seed: Seed) -> Draws:
        """`sample`, with the slices of all units in one."""
        seeds = tf.random.split(_seed(seed), 2, alg="philox")
        batch = tf.shape(rows)[0]
        sizes = self.allocate(batch, seeds[0])
        unit = tf.searchsorted(tf.cumsum(sizes), tf.range(batch), side="right")  # [batch]
        unit_of_draws = unit if self.sharing == "record" else tf.range(len(self.units))
        values, log_q = self._draw(unit_of_draws, seeds[1])
        columns = [target.column for target in self.units]
        column = tf.gather(columns, unit)  # [batch]
        positive = tf.gather(rows, column, batch_dims=1)  # [batch]
        return Draws(unit, sizes, positive, self._log_q_of(unit, positive), values, log_q)

    def _log_q_of(self, unit: tf.Tensor, positive: tf.Tensor) -> tf.Tensor:
        """The log Q2 of values of units; that of the rarest for unknown ones and where there is none: [batch]."""
        unsigned = tf.cast(tf.bitcast(positive, tf.uint32), tf.int64)  # -1 is beyond every size, as unknown values are
        place = tf.gather(self._start, unit) + tf.minimum(unsigned, tf.gather(self._size, unit))
        return tf.gather(self._log_q, place)

    def _draw(self, unit: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Negatives of the units, int32, and their log Q2: [units, negatives].

        One number below 2^63 serves a draw: it gives the bucket and is compared with the bucket's threshold. Of the
        numbers below any threshold each bucket has its share, to within 1.
        """
        shape = (tf.size(unit), self.negatives)
        bits = tf.random.stateless_uniform(shape, seed, None, None, dtype=tf.int64, alg="philox")
        bits = tf.bitwise.bitwise_and(bits, np.int64(2**63 - 1))
        start, size, alias_mask = (tf.gather(x, unit)[:, None] for x in (self._start, self._size, self._alias_mask))
        bucket = bits % size
        word = tf.gather(self._words, start + bucket)
        alias = tf.bitwise.bitwise_and(word, alias_mask)
        value = tf.where(bits < word - alias, bucket, alias)
        return tf.cast(value, tf.int32), tf.gather(self._log_q, start + value)


def _seed(seed: Seed) -> tf.Tensor:
    return tf.stack([tf.cast(seed[0], tf.int64), tf.cast(seed[1], tf.int64)])


def _drawn_targets(counts: Sequence[Counts], joint: Sequence[Tuples], targets: Sequence[int] | None) -> list[Target]:
    """The groups and joint sets to draw negatives for: those of two or more counted values."""
    joint_groups = {group for groups, _, _ in joint for group in groups}
    units = [Target((g,), g, count) for g, count in enumerate(counts) if g not in joint_groups]
    units += [Target(tuple(groups), len(counts) + j, count) for j, (groups, _, count) in enumerate(joint)]
    if targets is not None:
        units = [unit for unit in units if set(unit.groups) <= set(targets)]
    counted_values = [int(np.count_nonzero(unit.counts)) for unit in units]
    drawn = [unit for unit, values in zip(units, counted_values, strict=True) if values > 1]
    if not drawn:
        raise ValueError(f"noise needs a unit with two or more counted values. Received: {counted_values} values")
    return drawn


def _check(
    counts: Sequence[Counts],
    params: Sequence[int],
    alpha_groups: float,
    alpha_values: float,
    negatives: int,
    sharing: str,
    joint: Sequence[Tuples],
) -> None:
    """Raise a ValueError for the first argument that is out of its range."""
    joint_groups = [group for groups, _, _ in joint for group in groups]
    are_several = all(len(groups) > 1 for groups, _, _ in joint)
    are_groups = set(joint_groups) <= set(range(len(counts)))
    have_shapes = all(values.shape == (len(count), len(groups)) for groups, values, count in joint)
    joint_shapes = [(tuple(groups), values.shape, count.shape) for groups, values, count in joint]
    all_counts = [*counts, *(count for _, _, count in joint)]
    lowest_count = min((int(np.min(count, initial=0)) for count in all_counts), default=0)
    requirements = [
        (len(params) == len(counts), f"params for each of {len(counts)} groups", list(params)),
        (all(count > 0 for count in params), "params of one or more", list(params)),
        (lowest_count >= 0, "counts of zero or more", lowest_count),
        (0 <= alpha_groups < math.inf, "a finite alpha_groups of zero or more", alpha_groups),
        (0 <= alpha_values < math.inf, "a finite alpha_values of zero or more", alpha_values),
        (negatives > 0, "one or more negatives", negatives),
        (sharing in ("record", "batch"), "sharing 'record' or 'batch'", sharing),
        (are_several and are_groups, f"joint sets of two or more of the groups 0..{len(counts) - 1}", joint_groups),
        (len(set(joint_groups)) == len(joint_groups), "a group in one joint set at most", joint_groups),
        (have_shapes, "for a joint set values [tuples, members] and counts [tuples]", joint_shapes),
    ]
    for is_met, requirement, received in requirements:
        if not is_met:
            raise ValueError(f"noise needs {requirement}. Received: {received!r}")
