"""The noise of a schema: what the negatives of its target units are drawn from, and how often."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from feat2vec.arrays import Float32s, Integers
from feat2vec.errors import UserError
from feat2vec.sampling.joint_values import Joint
from feat2vec.sampling.noise import Noise
from feat2vec.schema.options import Schema

Counts: TypeAlias = Integers  # [values], how often each occurs


def make_noise(
    schema: Schema,
    groups: Sequence[str],
    params: Sequence[int],
    counts: Sequence[Counts],
    joints: Sequence[Joint],
    implicit: int | None = None,
    new_noise: Callable[..., Noise] = Noise,
) -> Noise:
    """The noise of a schema.

    Args:
        schema: The schema, whose `noise` says how negatives are drawn.
        groups: The names of the groups.
        params: The number of weights of each group.
        counts: How often each value of a group occurs, of each group.
        joints: The tuples of values of each joint set.
        implicit: The group of which rows with a target have negatives; it is the only unit then.
        new_noise: A class derived from `Noise`, or a function with its arguments.

    Raises:
        UserError: If each unit has one value, so that nothing can be told from it.

    """
    options = schema.noise
    target_names = list(options.targets or groups) if implicit is None else [groups[implicit]]
    _refuse_one_value(groups, counts, joints, target_names)
    shares = None
    if options.targets and isinstance(options.targets, dict):
        shares = [options.targets.get(name, 0.0) for name in groups]
    return new_noise(
        counts,
        params,
        options.alpha_groups,
        options.alpha_values,
        options.negatives,
        options.sharing,
        [(joint.groups, joint.values(), joint.counts) for joint in joints],
        [groups.index(name) for name in target_names],
        shares,
    )


def _refuse_one_value(
    groups: Sequence[str], counts: Sequence[Counts], joints: Sequence[Joint], target_names: Sequence[str]
) -> None:
    """Raise if no target group, and no joint set, has two values to draw from."""
    values = {name: np.count_nonzero(count) for name, count in zip(groups, counts, strict=True) if name in target_names}
    for joint in joints:
        values[" with ".join(groups[g] for g in joint.groups)] = np.count_nonzero(joint.counts)
    if max(values.values()) < 2:
        have = "has one value" if len(values) == 1 else "have one value each"
        raise UserError(
            f"noise: {', '.join(values)} {have}, and to tell rows from noise takes two or more; "
            "give rows that differ, or another group to draw from"
        )


def start_of_offsets(noise: Noise, groups: int) -> Float32s:
    """The mean of log(k Q2) in each target unit, at its first group: [groups].

    Noise-contrastive estimation subtracts log(k Q2) from scores plus offsets, so its logits begin near 0.
    """
    offsets = np.zeros(groups, np.float32)
    for unit in noise.units:
        offsets[unit.groups[0]] = unit.mean_log_q + math.log(noise.negatives)
    return offsets
