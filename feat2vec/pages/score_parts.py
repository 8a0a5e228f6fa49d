"""What a score and a similarity are the sums of.

A score is a bias, the groups' linear terms, the dot products of pairs of groups, and what an mlp head adds. With ranks
two values meet at the lower of their levels, so a pair's part is the sum over levels p of f_i . f_j + f_i . d_j +
d_i . f_j, f being the free and d the dependent part (see `model.pair_scores`). A class of a softmax has a bias and a
pair with each group, as if it were a value itself.

The similarity of two rows is the cosine of their vectors r = sum of v_i: the sum of v_i . v'_j / (|r| |r'|).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Floats
from feat2vec.model.extractors import Extracted
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.pages.explanation import Contribution
from feat2vec.pages.row_entries import Row
from feat2vec.space.groups_and_levels import vectors_at_level


def score_parts(model: Feat2Vec, extracted: Sequence[Extracted]) -> Iterator[Contribution]:
    """Bias, linear terms and pairs of the groups that the row has a value of."""
    if model.schema.model.bias:
        yield Contribution("bias", (), float(model.bias))
        for name, group in zip(model.groups, extracted, strict=True):
            linear = float(group.linear[0])
            if linear != 0:
                yield Contribution("linear", (name,), linear)
    vectors = {name: _LevelVectors.of(model, group) for name, group in zip(model.groups, extracted, strict=True)}
    present = [name for name in model.groups if vectors[name].present]
    together = {name: names for names in model.schema.partners for name in names}  # these add up to one vector
    for name, other_name in combinations(present, 2):
        if together[name] != together[other_name]:
            yield Contribution("pair", (name, other_name), vectors[name].dot(vectors[other_name]))


def class_score_parts(
    model: Feat2Vec, extracted: Sequence[Extracted], class_number: int, class_name: str
) -> Iterator[Contribution]:
    """A class's bias and its pairs with the groups: it is a value of the top level."""
    yield Contribution("bias", (class_name,), float(model.class_bias[class_number]))
    class_vectors = [vectors.numpy()[class_number].astype(np.float64) for vectors in model.class_vectors]
    truncate = model.schema.model.levels.nested
    top = len(class_vectors) - 1
    for name, group in zip(model.groups, extracted, strict=True):
        vectors = _LevelVectors.of(model, group)
        if not vectors.present:
            continue
        total = 0.0
        for level, class_vector in enumerate(class_vectors):
            meets_dependent = truncate or level == top
            total += float(
                vectors.free[level] @ class_vector
                + (vectors.dependent[level] @ class_vector if meets_dependent else 0.0)
            )
        yield Contribution("pair", (name, class_name), total)


class _LevelVectors(NamedTuple):
    """A group's free and dependent vectors [rank] at each level; with truncation all of a vector is free."""

    free: list[Floats]
    dependent: list[Floats]

    @classmethod
    def of(cls, model: Feat2Vec, extracted: Extracted) -> _LevelVectors:
        free, dependent = [], []
        for level in extracted.levels:
            level_free = level.free.numpy()[0].astype(np.float64)
            level_dependent = np.zeros_like(level_free)
            if level.dependent is not None:
                level_dependent = level.dependent.numpy()[0].astype(np.float64)
            if model.schema.model.levels.nested:
                level_free, level_dependent = level_free + level_dependent, np.zeros_like(level_dependent)
            free.append(level_free)
            dependent.append(level_dependent)
        return cls(free, dependent)

    @property
    def present(self) -> bool:
        """Whether the row has a value of the group."""
        return any(vector.any() for vector in (*self.free, *self.dependent))

    def dot(self, other: _LevelVectors) -> float:
        """The sum over levels of f . f' + f . d' + d . f': two values meet at the lower of their levels."""
        total = 0.0
        for f, d, other_f, other_d in zip(self.free, self.dependent, other.free, other.dependent, strict=True):
            total += float(f @ other_f + f @ other_d + d @ other_f)
        return total


def similarity_parts(model: Feat2Vec, row: Row, other_row: Row, level: int) -> tuple[float, list[Contribution]]:
    """The cosine of two rows' vectors, and the share of each pair of groups, one of each row, in it."""
    vectors = _group_vectors(model, row, level)  # [groups, dim]
    other_vectors = _group_vectors(model, other_row, level)
    length = float(np.linalg.norm(vectors.sum(axis=0)) * np.linalg.norm(other_vectors.sum(axis=0)))
    shares = np.zeros((len(vectors), len(other_vectors)))  # [groups, groups]
    if length:
        shares = vectors @ other_vectors.T / length
    parts = []
    for i, name in enumerate(model.groups):
        for j, other_name in enumerate(model.groups):
            if vectors[i].any() and other_vectors[j].any():
                parts.append(Contribution("pair", (name, other_name), float(shares[i, j])))
    return float(shares.sum()), parts


def _group_vectors(model: Feat2Vec, row: Row, level: int) -> Floats:
    """The vectors [groups, dim] of a row's groups at a level; zeros where the row has none."""
    vectors = []
    for name in model.groups:
        levels = model.vectors(name, tf.constant(np.ascontiguousarray(row[name]))).levels
        vectors.append(vectors_at_level(levels, level, model.schema.model.levels).numpy()[0])
    return np.stack(vectors).astype(np.float64)


__all__ = ["class_score_parts", "score_parts", "similarity_parts"]
