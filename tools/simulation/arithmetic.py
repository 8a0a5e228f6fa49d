"""What follows without events: distinct ids a step, bytes, memory, and what bounds the steps a second."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NUMBER_BYTES = 4  # float32
HEAD = 1 << 20  # ids that are added up one by one; the rest in blocks of nearly equal probability
BLOCKS = 4096


@dataclass(frozen=True)
class Group:
    """A group of the schema as the servers see it.

    Args:
        name: Its name.
        values: How many keys it has.
        rank: Numbers that a step reads of each, linear terms included.
        draws: Keys that a step draws: rows of the batch, and negatives.
        zipf: The exponent of Zipf's law that the draws follow; None where `distinct` is given.
        distinct: Distinct keys of a step, where they were measured.

    """

    name: str
    values: int
    rank: float
    draws: int = 0
    zipf: float | None = None
    distinct: float | None = None


@functools.lru_cache(maxsize=64)
def _zipf_blocks(values: int, exponent: float) -> tuple[npt.NDArray[np.float64], ...]:
    """Blocks of ids by descending probability: the first id of each, how many, and the probability of one of them."""
    head = np.arange(1, min(values, HEAD) + 1, dtype=np.float64)
    starts, sizes = head, np.ones_like(head)
    if values > HEAD:
        edges = np.unique(np.round(np.geomspace(HEAD + 1, values + 1, BLOCKS + 1)))
        starts, sizes = np.concatenate([head, edges[:-1]]), np.concatenate([sizes, np.diff(edges)])
    weights = (starts + (sizes - 1) / 2) ** -exponent
    return starts - 1, sizes, weights / (weights * sizes).sum()


def distinct_of_blocks(group: Group) -> tuple[npt.NDArray[np.float64], ...]:
    """The first id of each block of ids, how many it has, and how many of them a step is expected to draw."""
    starts, sizes, probability = _zipf_blocks(group.values, group.zipf or 0.0)
    return starts, sizes, sizes * -np.expm1(group.draws * np.log1p(-np.minimum(probability, 1 - 1e-15)))


def distinct_ids(group: Group) -> float:
    """The distinct keys that a step is expected to read: the sum of 1 - (1 - p)^draws over all keys."""
    if group.distinct is not None:
        return group.distinct
    return float(distinct_of_blocks(group)[2].sum())


def distinct_by_server(group: Group, servers: int, contiguous: bool) -> npt.NDArray[np.float64]:
    """The distinct keys that a step reads from each server: [servers].

    Ids are sorted by count. Contiguous shards give the frequent ones to the first server; spread ones go round.
    """
    total = distinct_ids(group)
    if group.distinct is not None and group.zipf is None:  # nothing is known of where they are
        return np.full(servers, total / servers)
    starts, sizes, expected = distinct_of_blocks(group)
    if contiguous:
        edges = np.concatenate([starts, [float(group.values)]])
        below = np.interp(np.linspace(0, group.values, servers + 1), edges, np.concatenate([[0], expected.cumsum()]))
        shares = np.diff(below)
    else:
        single = sizes == 1
        shares = np.bincount(starts[single].astype(np.int64) % servers, expected[single], minlength=servers)
        shares += expected[~single].sum() / servers
    return np.asarray(shares * total / shares.sum())


def step_bytes(group: Group, id_bytes: int) -> float:
    """Bytes of a step of one worker: the rows that it reads, their gradients, and the ids of both."""
    distinct = distinct_ids(group)
    return distinct * group.rank * 2 * NUMBER_BYTES + distinct * id_bytes


def memory(groups: list[Group], servers: int, slots: int) -> dict[str, float]:
    """Bytes of all tables, of their slots, and of a server's share of both."""
    tables = float(sum(group.values * group.rank for group in groups)) * NUMBER_BYTES
    return {"tables": tables, "slots": tables * slots, "a_server": tables * (1 + slots) / servers}
