"""`explain`: a row's score as the sum of its parts, and what makes two rows alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Float32s
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError, listed, suggest
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.pages.explanation import Contribution, Explanation
from feat2vec.pages.row_entries import Row, row_of, row_texts
from feat2vec.pages.score_parts import class_score_parts, score_parts, similarity_parts
from feat2vec.space.groups_and_levels import level_and_dim


def explain(
    model: Feat2Vec,
    encoder: Encoder,
    rows: object,
    *,
    index: int = 1,
    to: object = None,
    to_index: int | None = None,
    class_name: str | None = None,
    level: int | None = None,
) -> Explanation:
    """The score of a row, or its similarity with another one, as the sum of its parts.

    Args:
        model: A trained model.
        encoder: Encodes the rows as training did.
        rows: A row as a mapping of columns to values, or a table.
        index: Which row of the table, counted from 1.
        to: A row to compare with, as a mapping or a table of one row: the cosine of both vectors is explained.
        to_index: A row of the same table to compare with, counted from 1.
        class_name: The class of a softmax whose score is explained; by default the likeliest.
        level: Of a similarity in a model with ranks, the level.

    Returns:
        The parts, the largest first, and what the rows hold.

    Raises:
        UserError: A row cannot be read, or an argument is not for this model.

    """
    row = row_of(encoder, rows, index)
    if to is None and to_index is None:
        if level is not None:
            raise UserError("--level: is for the similarity of two rows; a score has every level")
        return explain_score(model, encoder, row, class_name)
    if class_name is not None:
        raise UserError("--class: is for a row's score; two rows' similarity has no class")
    other_row = row_of(encoder, rows if to is None else to, 1 if to_index is None else to_index, to=True)
    return explain_similarity(model, encoder, row, other_row, level)


def explain_score(model: Feat2Vec, encoder: Encoder, row: Row, class_name: str | None = None) -> Explanation:
    """A row's score, `model.call`, as the sum of its parts."""
    inputs = {name: tf.constant(np.ascontiguousarray(row[name])) for name in model.groups}
    extracted = model.extract(inputs)
    scores = model.call(inputs).numpy()[0]
    head_scores = None if model.head is None else model.head_score(extracted).numpy()[0]
    if model.schema.objective.has_classes:
        class_number, name = _class_of(encoder, scores, class_name)
        parts = list(class_score_parts(model, extracted, class_number, name))
        what = f"score of {model.schema.target} = {name}"
    else:
        if class_name is not None:
            raise UserError(f"--class: the objective {model.schema.objective.type} has no classes; remove it")
        class_number, what = 0, "score"
        parts = list(score_parts(model, extracted))
    if head_scores is not None:
        parts.append(Contribution("head", (), float(np.ravel(head_scores)[class_number])))
    return Explanation(what, float(np.ravel(scores)[class_number]), _largest_first(parts), [row_texts(encoder, row)])


def explain_similarity(
    model: Feat2Vec, encoder: Encoder, row: Row, other_row: Row, level: int | None = None
) -> Explanation:
    """The cosine of two rows' vectors as the sum over pairs of a group of the one and a group of the other."""
    level, _ = level_and_dim(encoder.schema.model, level)
    cosine, parts = similarity_parts(model, row, other_row, level)
    texts = [row_texts(encoder, row), row_texts(encoder, other_row)]
    return Explanation("similarity", cosine, _largest_first(parts), texts)


def _class_of(encoder: Encoder, scores: Float32s, name: str | None) -> tuple[int, str]:
    """The number and the name of a class; of the likeliest one if no name is given."""
    assert encoder.classes is not None
    names = encoder.classes.keys.to_pylist()
    if name is None:
        return int(scores.argmax()), names[int(scores.argmax())]
    if name not in names:
        near = suggest(name, names) or f"; the classes are {listed(names)}"
        raise UserError(f"--class: there is no class {name!r}{near}")
    return names.index(name), name


def _largest_first(parts: Sequence[Contribution]) -> list[Contribution]:
    return sorted(parts, key=lambda part: -abs(part.value))


__all__ = ["explain", "explain_score", "explain_similarity"]
