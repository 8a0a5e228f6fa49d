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
from typing import Literal, NamedTuple, TypeAlias

from keras import ops

from feat2vec.custom_gradients import Tensor as Tensor
from feat2vec.custom_gradients import custom_gradient

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
    members: Tensor | None = None  # of a head of several, in training: the model by each [rows, members, ...]


def interaction(vectors: Tensor) -> Tensor:
    """Return the sum of v_i * v_j over pairs of groups i < j, by coordinate: [..., groups, rank] -> [..., rank].

    >>> interaction(ops.convert_to_tensor([[[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]])).numpy()
    array([[ 3., 14.]], dtype=float32)
    """
    return _pairs(vectors, _Reduction(_sum_groups, _to_groups))[0]


def pairwise(vectors: Tensor) -> Tensor:
    """Return the sum of v_i . v_j over pairs of groups i < j: [..., groups, rank] -> [...].

    >>> pairwise(ops.convert_to_tensor([[[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]])).numpy()  # 11 + 2 + 4
    array([17.], dtype=float32)
    """
    return _pairs(vectors, _reduction(None))[0]


def submodels(
    levels: Sequence[Level], linear: Tensor, dependents: Dependents = "joint", masks: Sequence[Tensor] | None = None
) -> Submodels:
    """Return RaFM's scores, with gradients such that the sum of the top loss and the low losses trains it.

    `strict` is Algorithm 1 to the letter: the low loss of level p reaches d^(p) only, the top loss all but the d's.
    In `joint`, as in the authors' code, the top loss also reaches d^(p) through its pairs with f^(p), and the low
    losses also reach the linear part. What a level learns from is without masks.

    Args:
        levels: the groups' vectors at each level.
        linear: the linear part with the bias, [...].
        dependents: how dependent parts learn, `joint` or `strict`.
        masks: for each level [..., rank], factors of the interaction vector's coordinates.

    Raises:
        ValueError: if `dependents` is neither of the two.

    """
    low_linear = linear if is_joint(dependents) else ops.stop_gradient(linear)
    level_scores = [
        _level_scores(level, mask, dependents)
        for level, mask in zip(levels, masks or [None] * len(levels), strict=True)
    ]
    return add_levels(level_scores, [low_linear] * len(levels), linear)


def truncated(levels: Sequence[Level], linear: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
    """Return DiFacto's scores: level p's free part holds coordinates D_{p-1}..D_p of the values that have them."""
    return submodels([Level(level.free) for level in levels], linear, masks=masks).scores[-1]


def context(levels: Sequence[Level]) -> list[Level]:
    """Return the sum of the groups' vectors at each level: [..., groups, rank] -> [..., rank]."""
    sums = []
    for free, dependent in levels:
        sums.append(Level(_sum_groups(free), None if dependent is None else _sum_groups(dependent)))
    return sums


def cross(candidates: Sequence[Level], around: Sequence[Level], dependents: Dependents = "joint") -> Tensor:
    """Return what a candidate for one group adds to a row's score.

    One level gives the plain dot product. Gradients are those of the top loss.

    Args:
        candidates: for each level the vectors of candidates of each row, [n, k, rank], or of a pool that all rows
            share, [K, rank].
        around: the `context` [n, rank] of the row's other groups.
        dependents: how dependent parts learn.

    Returns:
        [n, k], or [n, K] for a pool.

    """
    hold = (lambda part: part) if is_joint(dependents) else ops.stop_gradient
    products: list[tuple[Tensor, Tensor]] = []
    for candidate, context in zip(candidates, around, strict=True):
        meets_free = context.free if context.dependent is None else context.free + hold(context.dependent)
        products.append((candidate.free, meets_free))
        if candidate.dependent is not None:
            products.append((hold(candidate.dependent), context.free))
    return _sum_of_dots(products)


def replaced(
    base: Submodels,
    candidates: Sequence[Level],
    around: Sequence[Level],
    linear: Tensor,
    dependents: Dependents = "joint",
) -> Submodels:
    """Return the submodels of rows with each candidate in place of one group.

    Args:
        base: the submodels of the other groups.
        candidates: as in `cross`.
        around: the `context` of the other groups.
        linear: the candidates' linear terms.
        dependents: how dependent parts learn.

    """
    low_linear = linear if is_joint(dependents) else ops.stop_gradient(linear)
    level_scores = []
    for candidate, context in zip(candidates, around, strict=True):
        settled = cross([candidate], [context], dependents)
        all_pairs = _sum_of_dots([(_seen_by_low_loss(candidate), _seen_by_low_loss(context))])
        level_scores.append(LevelScores(settled, all_pairs))
    scores = [ops.expand_dims(score, 1) for score in base.scores]  # [n, 1]
    return add_levels(level_scores, [score + low_linear for score in scores], scores[-1] + linear)


def is_joint(dependents: str) -> bool:
    """Return whether dependents learn as in the authors' code."""
    if dependents not in ("joint", "strict"):
        raise ValueError(f"`dependents` must be 'joint' or 'strict'. Received: dependents={dependents!r}")
    return dependents == "joint"


def _seen_by_low_loss(level: Level) -> Tensor:
    """The vectors as the low loss sees them: free parts are constants."""
    free = ops.stop_gradient(level.free)
    return free if level.dependent is None else free + level.dependent


def _sum_of_dots(products: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the sum of the dot products of (candidate, context), [n, k, rank] or [K, rank] with [n, rank]."""
    if len(products[0][0].shape) == 2:  # one matrix product, [n, ranks] x [ranks, K]
        candidates = ops.concatenate([candidate for candidate, _ in products], axis=-1)
        contexts = ops.concatenate([context for _, context in products], axis=-1)
        return ops.matmul(contexts, ops.transpose(candidates, axes=(1, 0)))
    # One by one: a batched product of [k, ranks] with one vector takes twice as long, and so does concatenating.
    dots = [ops.sum(candidate * ops.expand_dims(context, 1), axis=-1) for candidate, context in products]
    return sum(dots[1:], dots[0])


# --- pairs of one level ---------------------------------------------------------------------------------------------


class LevelScores(NamedTuple):
    """What a level adds to a row's score, each [...]."""

    settled: Tensor  # the pairs that meet at this level
    all_pairs: Tensor  # all pairs of its vectors, as the low loss sees them
    unmasked: tuple[Tensor, Tensor] | None = None  # both without the mask and without gradients; None: no mask


class _Reduction(NamedTuple):
    """How products of coordinates [..., groups, rank] become scores, with or without a mask."""

    add_up: Reduce  # products of coordinates -> a score
    spread: Reduce  # the gradient of a score -> that of each coordinate


def _reduction(mask: Tensor | None) -> _Reduction:
    if mask is None:
        return _Reduction(_sum_all, partial(ops.expand_dims, axis=(-2, -1)))
    return _Reduction(
        add_up=lambda products: ops.sum(_sum_groups(products) * mask, axis=-1),
        spread=lambda scores: _to_groups(ops.expand_dims(scores, -1) * mask),
    )


def level_gradients(
    top: Tensor, low: Tensor, free: Tensor, total: Tensor, dependents: Dependents
) -> tuple[Tensor, Tensor]:
    """Return the gradients of a level's scores by a free and by a dependent vector.

    With F and D the sums of a row's free and dependent vectors, the pairs *settled* at the level are those with a free
    member, 1/2 (F^2 - sum f^2) + F D - sum f d, and the pairs above it 1/2 (D^2 - sum d^2), both by coordinate. The top
    loss is of the settled pairs, the low loss of all pairs with free vectors as constants. So

        d top / d f = (F - f) + (D - d)    d top / d d = F - f, in `joint` alone    d low / d d = (F - f) + (D - d)

    Vectors [batch, groups, rank] give these at once, with `free` = F - f and `total` = F - f + D - d. Vectors that are
    read once a key add up F and F + D over the rows of a key first, and take off the key's own part afterwards.

    Args:
        top: the gradient of the top loss by the settled pairs, for each coordinate.
        low: the gradient of the low loss by all pairs.
        free: F, or F - f.
        total: F + D, or that without f and d.
        dependents: how dependent vectors learn.

    """
    to_dependent = low * total
    return top * total, to_dependent + top * free if is_joint(dependents) else to_dependent


def _pairs(vectors: Tensor, reduction: _Reduction, second_sum: Reduce | None = None) -> list[Tensor]:
    """Return 1/2 (sum^2 - sum of squares) as 1/2 sum of v_i * (sum - v_i): 0 for one group, no square can overflow.

    `second_sum` is another way to add up the products, without gradients.
    """

    def scores_and_gradient(vectors: Tensor) -> tuple[list[Tensor], Callable[..., Tensor]]:
        rest = _to_groups(_sum_groups(vectors)) - vectors  # [..., groups, rank]
        products = 0.5 * vectors * rest
        sums = [reduction.add_up] if second_sum is None else [reduction.add_up, second_sum]
        return [add_up(products) for add_up in sums], lambda upstream, *_: reduction.spread(upstream) * rest

    scores: list[Tensor] = custom_gradient(scores_and_gradient)(vectors)
    return scores


def _level_scores(level: Level, mask: Tensor | None, dependents: Dependents) -> LevelScores:
    """Return two scores a row in one pass: of the pairs settled at this level, and of all as the low loss sees them."""
    reduction = _reduction(mask)
    if level.dependent is None:
        if mask is None:
            (settled,) = _pairs(level.free, reduction)
            return LevelScores(settled, ops.stop_gradient(settled))
        settled, without_mask = _pairs(level.free, reduction, second_sum=_sum_all)
        unmasked = ops.stop_gradient(without_mask)
        return LevelScores(settled, ops.stop_gradient(settled), (unmasked, unmasked))

    def scores_and_gradient(
        free: Tensor, dependent: Tensor
    ) -> tuple[tuple[Tensor, ...], Callable[..., tuple[Tensor, Tensor]]]:
        rest_free = _to_groups(_sum_groups(free)) - free  # [..., groups, rank]
        rest_dependent = _to_groups(_sum_groups(dependent)) - dependent
        with_free, above = (0.5 * free + dependent) * rest_free, 0.5 * dependent * rest_dependent
        settled = reduction.add_up(with_free)
        scores: tuple[Tensor, ...] = (settled, settled + reduction.add_up(above))
        if mask is not None:
            settled = _sum_all(with_free)
            scores += (settled, settled + _sum_all(above))

        def gradient(top: Tensor, low: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
            total = rest_free + rest_dependent
            return level_gradients(reduction.spread(top), reduction.spread(low), rest_free, total, dependents)

        return scores, gradient

    settled, all_pairs, *unmasked = custom_gradient(scores_and_gradient)(level.free, level.dependent)
    return LevelScores(settled, all_pairs, tuple(map(ops.stop_gradient, unmasked)) if unmasked else None)


# --- the chain of levels --------------------------------------------------------------------------------------------


def add_levels(levels: Sequence[LevelScores], low: Sequence[Tensor], top: Tensor) -> Submodels:
    """Return B_{1,p} = low + the pairs settled below p (a constant) + all pairs at p.

    The last has every gradient: it is the model.

    Args:
        levels: the scores of each level.
        low: for each level the linear part, as the low losses see it.
        top: the linear part, as the top loss sees it.

    """
    constants = []  # (settled, all pairs) of each level, without masks and gradients
    for level in levels:
        constants.append(level.unmasked or (ops.stop_gradient(level.settled), ops.stop_gradient(level.all_pairs)))
    below = [None, *accumulate(settled for settled, _ in constants)]  # settled below each level
    scores, targets = [], []
    for linear, settled_below, level, (_, all_pairs) in zip(low, below, levels, constants, strict=False):
        constant = ops.stop_gradient(linear)
        if settled_below is None:
            scores.append(linear + level.all_pairs)
            targets.append(constant + all_pairs)
        else:
            scores.append(linear + (settled_below + level.all_pairs))
            targets.append(constant + (settled_below + all_pairs))
    scores[-1] = top + list(accumulate(level.settled for level in levels))[-1]
    return Submodels(scores, targets[1:])
