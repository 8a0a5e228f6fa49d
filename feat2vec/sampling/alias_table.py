"""Draws from a fixed distribution in constant time: the probabilities of values, and Walker's alias table (1977)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from feat2vec.sampling.joint_values import Ints

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.integer[Any]]


def log_probabilities(counts: Counts, alpha: float) -> Floats:
    """Exact log Q2 of a unit's values, [V]: Q2(v) is proportional to counts[v]^alpha.

    A value without a count is never drawn and has -inf.
    """
    scaled = np.full(len(counts), -np.inf)
    is_counted = counts > 0
    scaled[is_counted] = alpha * np.log(counts[is_counted])
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


def _running_sum(numbers: Floats, bits: int) -> Ints:
    """The running sum, as fixed-point numbers with `bits` binary places."""
    scaled = np.ldexp(numbers, bits)
    whole = np.floor(scaled)
    fraction = np.ldexp(scaled - whole, 31).astype(np.int64)  # summed separately, then rounded into the last bit
    total: Ints = np.cumsum(whole.astype(np.int64)) + ((np.cumsum(fraction) + (1 << 30)) >> 31)
    return total


def pack(keep: Floats, alias: Ints) -> Ints:
    """One int64 word a bucket, [V]: the alias in the low bits, keep in the others, so that a draw is one gather.

    With b = bits of V - 1, Q2 is off by less than 2^-(62 - b) in total variation, 2^-39 for V = 5M.
    """
    alias_bits = (len(keep) - 1).bit_length()
    most = 1 << (63 - alias_bits)
    threshold = np.minimum(np.rint(keep * most).astype(np.int64), most - 1)  # a bucket with keep = 1 is its own alias
    return threshold << alias_bits | alias
