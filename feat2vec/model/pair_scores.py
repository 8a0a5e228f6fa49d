"""Scores from vectors: factorization machines (FM), rank-aware ones (RaFM) and truncated ones (DiFacto).

A row's score is a linear part plus the dot products of all pairs of its groups, a missing group being the zero vector.
In RaFM, level p has rank D_p; F_p are the values whose own top level is p or higher, and a pair of values meets at the
lower of its two top levels. With A_{p,q} = the pairs of F_q at level p, the submodels are (Theorem 3)

    B_{1,1} = linear + A_{1,1}        B_{1,p+1} = B_{1,p} - A_{p,p+1} + A_{p+1,p+1}

A level's vectors are the sum of a free part f (values that end here) and a dependent part d (values that go higher), so
A_{p,p} - A_{p,p+1}, the pairs *settled* at level p, are those with a free member, and the model B_{1,m} is their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias

from keras import ops

from feat2vec.model.custom_gradients import custom_gradient

Tensor: TypeAlias = Any  # Keras ships no types
Reduce: TypeAlias = Callable[[Tensor], Tensor]
Dependents: TypeAlias = Literal["joint", "strict"]

_sum_groups = partial(ops.sum, axis=-2)  # [..., groups, rank] -> [..., rank]
_sum_all = partial(ops.sum, axis=(-2, -1))  # [..., groups, rank] -> [...]
_to_groups = partial(ops.expand_dims, axis=-2)  # and back, [..., 1, rank]


class Level(NamedTuple):
    """The groups' vectors at one level: [..., groups, rank]."""

    free: Tensor  # from values whose top level this is
    dependent: Tensor | None = None  # from values of higher levels, same shape; None = there are none


class Submodels(NamedTuple):
    """The model is scores[-1]; level p < m also learns from loss(scores[p], targets[p]), or sigmoid(targets[p])."""

    scores: list[Tensor]  # B_{1,1} .. B_{1,m}, each [...]
    targets: list[Tensor]  # B_{1,2} .. B_{1,m} without gradients


def interaction(vectors: Tensor) -> Tensor:
    """The sum of v_i * v_j over pairs of groups i < j, by coordinate: [..., groups, rank] -> [..., rank].

    >>> interaction(ops.convert_to_tensor([[[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]])).numpy()
    array([[ 3., 14.]], dtype=float32)
    """
    return _settled(vectors, _Sums(_sum_groups, _to_groups))[0]


def pairwise(vectors: Tensor) -> Tensor:
    """The sum of v_i . v_j over pairs of groups i < j: [..., groups, rank] -> [...].

    >>> pairwise(ops.convert_to_tensor([[[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]])).numpy()  # 11 + 2 + 4
    array([17.], dtype=float32)
    """
    return _settled(vectors, _sums(None))[0]


def submodels(
    levels: Sequence[Level],
    linear: Tensor,  # [...], bias included
    dependents: Dependents = "joint",
    masks: Sequence[Tensor] | None = None,  # a level: [..., rank], factors of the interaction vector's coordinates
) -> Submodels:
    """RaFM's scores, with gradients such that the sum of the top loss and the low losses trains it.

    `strict` is Algorithm 1 to the letter: the low loss of level p reaches d^(p) only, the top loss all but the d's.
    In `joint`, as in the authors' code, the top loss also reaches d^(p) through its pairs with f^(p), and the low
    losses also reach the linear part. What a level learns from is without masks.
    """
    low = linear if is_joint(dependents) else ops.stop_gradient(linear)
    each = zip(levels, masks or [None] * len(levels), strict=True)
    parts = [_level_scores(level, mask, dependents) for level, mask in each]
    return chain(parts, [low] * len(parts), linear)


def truncated(levels: Sequence[Level], linear: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
    """DiFacto's scores: level p's free part holds coordinates D_{p-1}..D_p of the values that have them."""
    return submodels([Level(level.free) for level in levels], linear, masks=masks).scores[-1]


def context(levels: Sequence[Level]) -> list[Level]:
    """The sum of the groups' vectors at each level: [..., groups, rank] -> [..., rank]."""
    return [Level(*(None if part is None else _sum_groups(part) for part in level)) for level in levels]


def cross(target: Sequence[Level], around: Sequence[Level], dependents: Dependents = "joint") -> Tensor:
    """What a candidate for one group adds to a row, `around` being the `context` [n, rank] of the row's other groups.

    Candidates of each row, [n, k, rank] -> [n, k]; or a pool that all rows share, [K, rank] -> [n, K]. One level gives
    the plain dot product. Gradients are those of the top loss.
    """
    hold = (lambda part: part) if is_joint(dependents) else ops.stop_gradient
    pieces: list[tuple[Tensor, Tensor]] = []
    for level, other in zip(target, around, strict=True):
        pieces.append((level.free, other.free if other.dependent is None else other.free + hold(other.dependent)))
        if level.dependent is not None:
            pieces.append((hold(level.dependent), other.free))
    return _dot(pieces)


def replaced(
    base: Submodels, target: Sequence[Level], around: Sequence[Level], linear: Tensor, dependents: Dependents = "joint"
) -> Submodels:
    """Submodels of rows with each candidate, as in `cross`; `base` is of the other groups, `linear` the candidates'."""
    low = linear if is_joint(dependents) else ops.stop_gradient(linear)
    pairs = [([level], [other]) for level, other in zip(target, around, strict=True)]
    parts = [Part(cross(*pair, dependents), _dot([(_low(pair[0][0]), _low(pair[1][0]))])) for pair in pairs]
    scores = [ops.expand_dims(score, 1) for score in base.scores]
    return chain(parts, [score + low for score in scores], scores[-1] + linear)


def is_joint(dependents: str) -> bool:
    """Whether dependents learn as in the authors' code."""
    if dependents not in ("joint", "strict"):
        raise ValueError(f"`dependents` must be 'joint' or 'strict'. Received: dependents={dependents!r}")
    return dependents == "joint"


def _low(level: Level) -> Tensor:
    """The vectors as the low loss sees them: free parts are constants."""
    free = ops.stop_gradient(level.free)
    return free if level.dependent is None else free + level.dependent


def _dot(pieces: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    if len(pieces[0][0].shape) == 2:  # one matrix product, [n, ranks] x [ranks, K]
        target, around = (ops.concatenate(parts, axis=-1) for parts in zip(*pieces, strict=True))
        return ops.matmul(around, ops.transpose(target, axes=(1, 0)))
    # Piece by piece: a batched product of [k, ranks] with one vector takes twice as long, and so does concatenating.
    products = [ops.sum(target * ops.expand_dims(around, 1), axis=-1) for target, around in pieces]
    return sum(products[1:], products[0])


class Part(NamedTuple):
    """What a level adds to a row's score."""

    settled: Tensor  # the pairs that meet here
    every: Tensor  # all of its pairs, as the low loss sees them
    unmasked: tuple[Tensor, Tensor] | None = None  # both without the mask, no gradients; None: there was none


class _Sums(NamedTuple):  # with or without a mask
    score: Reduce  # products of coordinates -> their sum for each row
    share: Reduce  # and back: a row's number for each coordinate, times the mask


def _sums(mask: Tensor | None) -> _Sums:
    if mask is None:
        return _Sums(_sum_all, partial(ops.expand_dims, axis=(-2, -1)))
    return _Sums(
        score=lambda products: ops.sum(_sum_groups(products) * mask, axis=-1),
        share=lambda scores: _to_groups(ops.expand_dims(scores, -1) * mask),
    )


def _settled(vectors: Tensor, sums: _Sums, also: Reduce | None = None) -> list[Tensor]:
    """1/2 (sum^2 - sum of squares) as 1/2 sum of v_i * (sum - v_i): 0 for one group, and no square can overflow.

    `also` is another way to add up the products, without gradients.
    """

    def meet(vectors: Tensor) -> tuple[list[Tensor], Callable[..., Tensor]]:
        rest = _to_groups(_sum_groups(vectors)) - vectors
        products = 0.5 * vectors * rest
        scores = [add_up(products) for add_up in (sums.score, also) if add_up is not None]
        return scores, lambda upstream, *_: sums.share(upstream) * rest

    scores: list[Tensor] = custom_gradient(meet)(vectors)
    return scores


def _level_scores(level: Level, mask: Tensor | None, dependents: Dependents) -> Part:
    """Two scores a row in one pass: of the pairs settled at this level, and of all its pairs as the low loss sees."""
    sums = _sums(mask)
    if level.dependent is None:
        settled, *others = _settled(level.free, sums, also=None if mask is None else _sum_all)
        unmasked = ops.stop_gradient(others[0]) if others else None
        return Part(settled, ops.stop_gradient(settled), (unmasked, unmasked) if others else None)

    def meet(free: Tensor, dependent: Tensor) -> tuple[tuple[Tensor, ...], Callable[..., tuple[Tensor, Tensor]]]:
        rest_free = _to_groups(_sum_groups(free)) - free
        rest_dependent = _to_groups(_sum_groups(dependent)) - dependent
        here, above = (0.5 * free + dependent) * rest_free, 0.5 * dependent * rest_dependent
        settled = sums.score(here)
        scores: tuple[Tensor, ...] = (settled, settled + sums.score(above))
        if mask is not None:
            settled = _sum_all(here)
            scores += (settled, settled + _sum_all(above))

        def gradient(top: Tensor, low: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
            rest, top = rest_free + rest_dependent, sums.share(top)
            to_dependent = sums.share(low) * rest
            return top * rest, to_dependent if dependents == "strict" else to_dependent + top * rest_free

        return scores, gradient

    settled, every, *unmasked = custom_gradient(meet)(level.free, level.dependent)
    return Part(settled, every, tuple(map(ops.stop_gradient, unmasked)) if unmasked else None)


def chain(parts: Sequence[Part], low: Sequence[Tensor], top: Tensor) -> Submodels:
    """B_{1,p} = low + settled below p (a constant) + all pairs at p; the last has every gradient: the model."""
    settled = list(accumulate(part.settled for part in parts))
    plain = [part.unmasked or (ops.stop_gradient(part.settled), ops.stop_gradient(part.every)) for part in parts]
    below = [None, *accumulate(pair[0] for pair in plain)]
    scores, targets = [], []
    for start, base, part, (_, every) in zip(low, below, parts, plain, strict=False):
        scores.append(start + part.every if base is None else start + (base + part.every))
        targets.append(ops.stop_gradient(start) + (every if base is None else base + every))
    scores[-1] = top + settled[-1]
    return Submodels(scores, targets[1:])
