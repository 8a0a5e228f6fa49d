"""A row that is explained: its entries, and what it holds of each group as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array, Float32s, Floats, as_numbers
from feat2vec.encode.codecs import Entries, NumbersCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.entry_text import spell, text_beyond_range
from feat2vec.errors import UserError, listed, suggest
from feat2vec.model.answer_scale import AnswerScale
from feat2vec.model.extractors import Extracted
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.pages.explanation_views import Contribution, Explanation
from feat2vec.space.geometry import dense
from feat2vec.space.given_row import table_of_row
from feat2vec.space.groups_and_levels import level_and_dim, vectors_at_level
from feat2vec.table.table import STAGE_BYTES, Stage, open_table

Row = Mapping[str, Array]  # each group's entry [1, width]


class GivenRow(NamedTuple):
    """A row as it is given.

    Args:
        entries: The entry of each group, [1, width].
        beyond_range: What it holds of groups of numbers, as text, where its entry stands for the nearest number.

    """

    entries: Row
    beyond_range: Mapping[str, str]

    @classmethod
    def of_stage(cls, encoder: Encoder, stage: Stage, entries: Mapping[str, Entries], row: int) -> GivenRow:
        """A row of a stage, given the entries of all of them."""
        beyond_range = {}
        for name, codec in encoder.codecs.items():
            if isinstance(codec, NumbersCodec):
                text = text_beyond_range(codec, encoder.schema.groups[name], stage, row)
                if text is not None:
                    beyond_range[name] = text
        return cls({name: dense(of_group)[row:][:1] for name, of_group in entries.items()}, beyond_range)


def row_of(encoder: Encoder, rows: object, index: int = 1, *, to: bool = False) -> Row:
    """The entries of one row.

    Args:
        encoder: Encodes the row.
        rows: A table, or one row as a mapping of columns to values.
        index: Which row of the table, counted from 1.
        to: Whether it is the row to compare with; messages then name the options `--to` and `--to-index`.

    Raises:
        UserError: The row cannot be read, or holds none of the groups' columns.

    Returns:
        The entry of each group, [1, width].

    Example:
        >>> row = feat2vec.explain.row_of(run.fitted, films, index=2)
        >>> {name: entry.shape for name, entry in row.items()}
        {'director': (1, 1), 'genre': (1, 1), 'year': (1, 1)}

    """
    return given_row(encoder, rows, index, to=to).entries


def given_row(encoder: Encoder, rows: object, index: int = 1, *, to: bool = False) -> GivenRow:
    """The same row with its own numbers, where entries hold the nearest ones; arguments and errors are those."""
    row_option, index_option = ("--to", "--to-index") if to else ("--row", "--index")
    if isinstance(rows, Mapping):
        rows = table_of_row(encoder, rows, row_option)
    if index < 1:
        raise UserError(f"{index_option}: rows are counted from 1; received {index}")
    table, rows_before = open_table(rows), 0
    for stage, entries in encoder.staged(table, max_bytes=STAGE_BYTES // 8):
        if index <= rows_before + stage.rows:
            return GivenRow.of_stage(encoder, stage, entries, index - rows_before - 1)
        rows_before += stage.rows
    raise UserError(f"{index_option}: {table.name} has {rows_before:,} rows; received {index}")


def row_texts(encoder: Encoder, row: Row) -> dict[str, str | None]:
    """What a row holds of each group, None where it is missing."""
    values: dict[str, str | None] = {}
    for name, codec in encoder.codecs.items():
        entry = np.ascontiguousarray(row[name])
        missing = bool(np.isnan(entry[0, 0])) if entry.dtype == np.float32 else not entry.any()
        group = encoder.schema.groups[name]
        values[name] = None if missing else spell(codec, group, entry, np.zeros(1, np.int64))[0].as_py()
    return values


def score_parts(model: Feat2Vec, extracted: Sequence[Extracted]) -> Iterator[Contribution]:
    """Bias, linear terms and pairs of the groups that the row has a value of."""
    if model.schema.model.bias:
        yield Contribution("bias", (), float(model.bias))
        for name, group in zip(model.groups, extracted, strict=True):
            linear = float(group.linear[0])
            if linear != 0:
                yield Contribution("linear", (name,), linear)
    if not model.has_pairs:
        return
    vectors = {name: _LevelVectors.of_group(model, group) for name, group in zip(model.groups, extracted, strict=True)}
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
        vectors = _LevelVectors.of_group(model, group)
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
    def of_group(cls, model: Feat2Vec, extracted: Extracted) -> _LevelVectors:
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

    def dot(self, partner: _LevelVectors) -> float:
        """The sum over levels of f . f' + f . d' + d . f': two values meet at the lower of their levels."""
        total = 0.0
        for f, d, other_f, other_d in zip(self.free, self.dependent, partner.free, partner.dependent, strict=True):
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
        vectors.append(as_numbers(vectors_at_level(levels, level, model.schema.model.levels))[0])
    return np.stack(vectors).astype(np.float64)


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

    Example:
        >>> similarity = feat2vec.explain.explain(run.model, run.fitted, films, index=1, to_index=2)
        >>> similarity.what, len(similarity.parts)
        ('similarity', 9)

    """
    given = [given_row(encoder, rows, index)]
    if to is None and to_index is None:
        if level is not None:
            raise UserError("--level: is for the similarity of two rows; a score has every level")
        explanation = explain_score(model, encoder, given[0].entries, class_name)
    else:
        if class_name is not None:
            raise UserError("--class: is for a row's score; two rows' similarity has no class")
        given.append(given_row(encoder, rows if to is None else to, 1 if to_index is None else to_index, to=True))
        explanation = explain_similarity(model, encoder, given[0].entries, given[1].entries, level)
    texts = [{**texts, **row.beyond_range} for texts, row in zip(explanation.rows, given, strict=True)]
    return replace(explanation, rows=texts)


def explain_score(model: Feat2Vec, encoder: Encoder, row: Row, class_name: str | None = None) -> Explanation:
    """A row's score, `model.call`, as the sum of its parts.

    Args:
        model: A trained model.
        encoder: Its encoder.
        row: The entries of the row, as `row_of` returns them.
        class_name: The class of a softmax whose score is explained; by default the likeliest.

    Returns:
        The parts, the largest first, and what the row holds.

    Raises:
        UserError: The model has no such class, or no classes.

    Example:
        >>> row = feat2vec.explain.row_of(run.fitted, {"director": "Tati", "genre": "comedy"})
        >>> score = feat2vec.explain.explain_score(run.model, run.fitted, row)
        >>> [part.name for part in score.parts], score.rows[0]["year"]
        (['director x genre'], None)

    """
    inputs = {name: tf.constant(np.ascontiguousarray(row[name])) for name in model.groups}
    extracted = model.extract(inputs)
    scores = as_numbers(model.call(inputs))[0]
    head_scores = None if model.head is None else as_numbers(model.head_score(extracted))[0]
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
    total = float(np.ravel(scores)[class_number])
    parts = _in_unit_of_target(model.answer_scale_of_row(inputs), parts, total)
    return Explanation(what, total, _largest_first(parts), [row_texts(encoder, row)])


def _in_unit_of_target(scale: AnswerScale, parts: Sequence[Contribution], total: float) -> list[Contribution]:
    """The parts of a score as parts of the answer: times the unit, with the mean, and with what the range cuts off."""
    if scale.is_plain:
        return list(parts)
    scaled = [replace(part, value=scale.factor * part.value) for part in parts if part.kind != "bias"]
    bias = [part for part in parts if part.kind == "bias"]
    bias_names = bias[0].groups if bias else ()
    scaled.append(Contribution("bias", bias_names, scale.shift + scale.factor * sum(part.value for part in bias)))
    answer = sum(part.value for part in scaled)
    if answer > scale.high or answer < scale.low:
        scaled.append(Contribution("limit", (), total - answer))
    return scaled


def explain_similarity(
    model: Feat2Vec, encoder: Encoder, row: Row, other_row: Row, level: int | None = None
) -> Explanation:
    """The cosine of two rows' vectors as the sum over pairs of a group of the one row and a group of the other row.

    Args:
        model: A trained model.
        encoder: Its encoder.
        row: The entries of a row, as `row_of` returns them.
        other_row: The entries of the row to compare with.
        level: In a model with `ranks`, the level of the vectors.

    Returns:
        The parts, the largest first, and what the rows hold.

    Raises:
        UserError: There is no such level.

    Example:
        >>> row = feat2vec.explain.row_of(run.fitted, {"director": "Ozu"})
        >>> round(feat2vec.explain.explain_similarity(run.model, run.fitted, row, row).total, 3)
        1.0

    """
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
