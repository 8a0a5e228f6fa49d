"""`explain`: a row's score as the sum of its parts, and what makes two rows alike.

A score is a bias, the groups' linear terms, the dot products of pairs of groups, and what an mlp head adds. With ranks
two values meet at the lower of their levels, so a pair's part is the sum over levels p of f_i . f_j + f_i . d_j +
d_i . f_j, f being the free and d the dependent part (see `model.pair_scores`). A class of a softmax has a bias and a
pair with each group, as if it were a value itself.

The similarity of two rows is the cosine of their vectors r = sum of v_i: the sum of v_i . v'_j / (|r| |r'|).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from feat2vec.encode.array_files import Array
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.entry_text import spell
from feat2vec.errors import UserError, listed, suggest
from feat2vec.model.extractors import Extracted
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.pages import charts
from feat2vec.space.geometry import dense
from feat2vec.space.groups_and_levels import level_and_dim, vectors_at_level
from feat2vec.table.stages import STAGE_BYTES
from feat2vec.table.table import open_table
from feat2vec.terminal import printable, shortened

Doubles = npt.NDArray[np.float64]
Row = Mapping[str, Array]  # each group's entry [1, width]


@dataclass(frozen=True)
class Part:
    """A number that others are added to, and the groups that it is of."""

    kind: Literal["bias", "linear", "pair", "head"]
    groups: tuple[str, ...]
    value: float

    @property
    def name(self) -> str:
        """`linear of genre`, `director x cast`."""
        return " x ".join(self.groups) if self.kind == "pair" else " of ".join([self.kind, *self.groups])


@dataclass(frozen=True)
class Explanation:
    """A score or a similarity, its parts from the largest on, and what each row holds of each group."""

    what: str
    total: float
    parts: Sequence[Part]
    rows: Sequence[Mapping[str, str | None]]

    def facts(self) -> dict[str, Any]:
        """What `--json` prints."""
        parts = [{**asdict(part), "groups": list(part.groups)} for part in self.parts]
        return {"what": self.what, "total": self.total, "parts": parts, "rows": [dict(row) for row in self.rows]}

    def text(self) -> str:
        """Tables for a terminal."""
        names = [f"{_cut(name)}:" for name in self.rows[0]]
        width = max([len(name) for name in names] + [len(_cut(part.name)) for part in self.parts])
        lines = []
        for i, row in enumerate(self.rows):
            lines += [f"row {i + 1}"] if len(self.rows) > 1 else []
            lines += [f"{name:{width}}  {_cut(value)}" for name, value in zip(names, row.values(), strict=True)]
            lines.append("")
        parts = [f"{_cut(part.name):{width}}  {part.value:+10.4f}" for part in self.parts]
        return "\n".join([*lines, *parts, f"{_cut(self.what):{width}}  {self.total:+10.4f}"])

    def svg(self) -> str:
        """Bars."""
        return charts.bars(self.what, [*((part.name, part.value) for part in self.parts), (self.what, self.total)])

    def page(self) -> str:
        """The bars and what the rows hold, as a page of HTML."""
        has_two_rows = len(self.rows) > 1
        columns = ["group", *([f"row {i + 1}" for i in range(len(self.rows))] if has_two_rows else ["value"])]
        row_values = [(name, *(row[name] or "missing" for row in self.rows)) for name in self.rows[0]]
        parts = [(part.name, part.value) for part in self.parts]
        return charts.page(
            self.what,
            [
                self.svg(),
                charts.table("the parts", ["part", "adds"], parts),
                charts.table("the rows", columns, row_values),
            ],
        )


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

    `rows` is a row as a mapping of columns to values, or a table, of which `index` says the row, counted from 1. `to`
    is another row, or `to_index` one of the same table: then the cosine of the two rows' vectors is explained, in a
    model with ranks at a `level`. The score of a softmax is that of the class `class_name`; None is the likeliest one.
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


def row_of(encoder: Encoder, rows: object, index: int = 1, *, to: bool = False) -> Row:
    """The entries of one row of any table, counted from 1, or of a mapping of columns to values."""
    row_option, index_option = ("--to", "--to-index") if to else ("--row", "--index")
    if isinstance(rows, Mapping):
        known = encoder.schema.columns()
        for column in rows:
            if column not in known:
                suggestion = suggest(str(column), known) or f"; leave it out, the columns are {listed(known)}"
                raise UserError(f"{row_option}: the run knows no column {column!r}{suggestion}")
        given_values = {column: value for column, value in rows.items() if value is not None}
        try:
            rows = pa.table({column: pa.array([_long(value)]) for column, value in given_values.items()})
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:  # as `pa.array` may raise
            reason = f"{str(error).splitlines()[0]:.100}"
            raise UserError(f"{row_option}: a value is of no type that a table has ({reason})") from None
        if not any(column in group.columns for group in encoder.schema.groups.values() for column in given_values):
            wanted = listed(column for group in encoder.schema.groups.values() for column in group.columns)
            raise UserError(f"{row_option}: holds no value of the groups' columns: {wanted}")
    if index < 1:
        raise UserError(f"{index_option}: rows are counted from 1; received {index}")
    table, rows_before = open_table(rows), 0
    for stage, entries in encoder.staged(table, max_bytes=STAGE_BYTES // 8):
        if index <= rows_before + stage.rows:
            return {
                name: dense(group_entries)[index - rows_before - 1 :][:1] for name, group_entries in entries.items()
            }
        rows_before += stage.rows
    raise UserError(f"{index_option}: {table.name} has {rows_before:,} rows; received {index}")


def _long(value: object) -> object:
    """An integer beyond 64 bits as the decimal that keeps all of its digits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return Decimal(value)
    return value


def explain_score(model: Feat2Vec, encoder: Encoder, row: Row, class_name: str | None = None) -> Explanation:
    """A row's score, `model.call`, as the sum of its parts."""
    inputs = {name: tf.constant(np.ascontiguousarray(row[name])) for name in model.groups}
    extracted = model.extract(inputs)
    scores = model.call(inputs).numpy()[0]
    heads = None if model.head is None else model.head_score(extracted).numpy()[0]
    if model.schema.objective.has_classes:
        class_number, name = _class(encoder, scores, class_name)
        parts = list(_class_parts(model, extracted, class_number, name))
        what = f"score of {model.schema.target} = {name}"
    else:
        if class_name is not None:
            raise UserError(f"--class: the objective {model.schema.objective.type} has no classes; remove it")
        class_number, what = 0, "score"
        parts = list(_parts(model, extracted))
    if heads is not None:
        parts.append(Part("head", (), float(np.ravel(heads)[class_number])))
    return Explanation(what, float(np.ravel(scores)[class_number]), _sorted(parts), [_spelled(encoder, row)])


def explain_similarity(
    model: Feat2Vec, encoder: Encoder, row: Row, other_row: Row, level: int | None = None
) -> Explanation:
    """The cosine of two rows' vectors as the sum over pairs of a group of the one and a group of the other."""
    level, _ = level_and_dim(encoder.schema.model, level)
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
                parts.append(Part("pair", (name, other_name), float(shares[i, j])))
    values = [_spelled(encoder, row), _spelled(encoder, other_row)]
    return Explanation("similarity", float(shares.sum()), _sorted(parts), values)


def _group_vectors(model: Feat2Vec, row: Row, level: int) -> Doubles:
    """The vectors [groups, dim] of a row's groups at a level; zeros where the row has none."""
    vectors = []
    for name in model.groups:
        levels = model.vectors(name, tf.constant(np.ascontiguousarray(row[name]))).levels
        vectors.append(vectors_at_level(levels, level, model.schema.model.levels).numpy()[0])
    return np.stack(vectors).astype(np.float64)


class _LevelVectors(NamedTuple):
    """A group's free and dependent vectors [rank] at each level; with truncation all of a vector is free."""

    free: list[Doubles]
    dependent: list[Doubles]

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


def _parts(model: Feat2Vec, extracted: Sequence[Extracted]) -> Iterator[Part]:
    """Bias, linear terms and pairs of the groups that the row has a value of."""
    if model.schema.model.bias:
        yield Part("bias", (), float(model.bias))
        for name, group in zip(model.groups, extracted, strict=True):
            linear = float(group.linear[0])
            if linear != 0:
                yield Part("linear", (name,), linear)
    vectors = {name: _LevelVectors.of(model, group) for name, group in zip(model.groups, extracted, strict=True)}
    present = [name for name in model.groups if vectors[name].present]
    together = {name: names for names in model.schema.partners for name in names}  # these add up to one vector
    for name, other_name in combinations(present, 2):
        if together[name] != together[other_name]:
            yield Part("pair", (name, other_name), vectors[name].dot(vectors[other_name]))


def _class_parts(model: Feat2Vec, extracted: Sequence[Extracted], class_number: int, class_name: str) -> Iterator[Part]:
    """A class's bias and its pairs with the groups: it is a value of the top level."""
    yield Part("bias", (class_name,), float(model.class_bias[class_number]))
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
        yield Part("pair", (name, class_name), total)


def _class(encoder: Encoder, scores: Any, name: str | None) -> tuple[int, str]:
    assert encoder.classes is not None
    names = encoder.classes.keys.to_pylist()
    if name is None:
        return int(scores.argmax()), names[int(scores.argmax())]
    if name not in names:
        near = suggest(name, names) or f"; the classes are {listed(names)}"
        raise UserError(f"--class: there is no class {name!r}{near}")
    return names.index(name), name


def _sorted(parts: Sequence[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: -abs(part.value))


def _spelled(encoder: Encoder, row: Row) -> dict[str, str | None]:
    """What a row holds of each group, None where it is missing."""
    values: dict[str, str | None] = {}
    for name, codec in encoder.codecs.items():
        entry = np.ascontiguousarray(row[name])
        missing = bool(np.isnan(entry[0, 0])) if entry.dtype == np.float32 else not entry.any()
        group = encoder.schema.groups[name]
        values[name] = None if missing else spell(codec, group, entry, np.zeros(1, np.int64))[0].as_py()
    return values


def _cut(value: str | None, most: int = 80) -> str:
    """A name or a value on a line of a table."""
    return "missing" if value is None else shortened(printable(value), most)


__all__ = ["Explanation", "Part", "explain", "explain_score", "explain_similarity", "row_of"]
