"""`explain`: a row's score as the sum of its parts, and what makes two rows alike.

A score is a bias, the groups' linear terms, the dot products of pairs of groups, and what an mlp head adds. With ranks
two values meet at the lower of their levels, so a pair's part is the sum over levels p of f_i . f_j + f_i . d_j +
d_i . f_j, f being the free and d the dependent part (see `interactions`). A class of a softmax has a bias and a pair
with each group, as if it were a value itself.

The similarity of two rows is the cosine of their vectors r = sum of v_i: the sum of v_i . v'_j / (|r| |r'|).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import combinations
from typing import Any, Literal

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
from feat2vec.schema.options import Softmax
from feat2vec.space.embed import at_level, level_of
from feat2vec.space.geometry import dense
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
        wide = max([len(name) for name in names] + [len(_cut(part.name)) for part in self.parts])
        told = []
        for i, row in enumerate(self.rows):
            told += [f"row {i + 1}"] if len(self.rows) > 1 else []
            told += [f"{name:{wide}}  {_cut(value)}" for name, value in zip(names, row.values(), strict=True)]
            told.append("")
        parts = [f"{_cut(part.name):{wide}}  {part.value:+10.4f}" for part in self.parts]
        return "\n".join([*told, *parts, f"{_cut(self.what):{wide}}  {self.total:+10.4f}"])

    def svg(self) -> str:
        """Bars."""
        return charts.bars(self.what, [*((part.name, part.value) for part in self.parts), (self.what, self.total)])

    def page(self) -> str:
        """The bars and what the rows hold, as a page of HTML."""
        several = len(self.rows) > 1
        columns = ["group", *([f"row {i + 1}" for i in range(len(self.rows))] if several else ["value"])]
        held = [(name, *(row[name] or "missing" for row in self.rows)) for name in self.rows[0]]
        parts = [(part.name, part.value) for part in self.parts]
        return charts.page(
            self.what,
            [self.svg(), charts.table("the parts", ["part", "adds"], parts), charts.table("the rows", columns, held)],
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
    one = row_of(encoder, rows, index)
    if to is None and to_index is None:
        if level is not None:
            raise UserError("--level: is for the similarity of two rows; a score has every level")
        return explain_score(model, encoder, one, class_name)
    if class_name is not None:
        raise UserError("--class: is for a row's score; two rows' similarity has no class")
    other = row_of(encoder, rows if to is None else to, 1 if to_index is None else to_index, to=True)
    return explain_similarity(model, encoder, one, other, level)


def row_of(encoder: Encoder, rows: object, index: int = 1, *, to: bool = False) -> Row:
    """The entries of one row of any table, counted from 1, or of a mapping of columns to values."""
    row_option, index_option = ("--to", "--to-index") if to else ("--row", "--index")
    if isinstance(rows, Mapping):
        known = encoder.schema.columns()
        for column in rows:
            if column not in known:
                near = suggest(str(column), known) or f"; leave it out, the columns are {listed(known)}"
                raise UserError(f"{row_option}: the run knows no column {column!r}{near}")
        given = {column: value for column, value in rows.items() if value is not None}
        try:
            rows = pa.table({column: pa.array([_long(value)]) for column, value in given.items()})
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:  # as `pa.array` may raise
            reason = f"{str(error).splitlines()[0]:.100}"
            raise UserError(f"{row_option}: a value is of no type that a table has ({reason})") from None
        if not any(column in group.columns for group in encoder.schema.groups.values() for column in given):
            wanted = listed(column for group in encoder.schema.groups.values() for column in group.columns)
            raise UserError(f"{row_option}: holds no value of the groups' columns: {wanted}")
    if index < 1:
        raise UserError(f"{index_option}: rows are counted from 1; received {index}")
    table, seen = open_table(rows), 0
    for stage, entries in encoder.staged(table, max_bytes=STAGE_BYTES // 8):
        if index <= seen + stage.rows:
            return {name: dense(some)[index - seen - 1 :][:1] for name, some in entries.items()}
        seen += stage.rows
    raise UserError(f"{index_option}: {table.name} has {seen:,} rows; received {index}")


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
    if isinstance(model.schema.objective, Softmax):
        c, name = _class(encoder, scores, class_name)
        parts = list(_class_parts(model, extracted, c, name))
        what = f"score of {model.schema.target} = {name}"
    else:
        if class_name is not None:
            raise UserError(f"--class: the objective {model.schema.objective.type} has no classes; remove it")
        c, what = 0, "score"
        parts = list(_parts(model, extracted))
    if heads is not None:
        parts.append(Part("head", (), float(np.ravel(heads)[c])))
    return Explanation(what, float(np.ravel(scores)[c]), _sorted(parts), [_spelled(encoder, row)])


def explain_similarity(
    model: Feat2Vec, encoder: Encoder, one: Row, other: Row, level: int | None = None
) -> Explanation:
    """The cosine of two rows' vectors as the sum over groups of the one and of the other."""
    level, _ = level_of(encoder.schema.model, level)
    vectors = []
    for row in (one, other):
        found = (model.vectors(name, tf.constant(np.ascontiguousarray(row[name]))).levels for name in model.groups)
        each = [at_level(levels, level, model.schema.model.level_sharing).numpy()[0] for levels in found]
        vectors.append(np.stack(each).astype(np.float64))
    a, b = vectors  # [groups, dim]
    length = float(np.linalg.norm(a.sum(axis=0)) * np.linalg.norm(b.sum(axis=0)))
    shares = a @ b.T / length if length else np.zeros((len(a), len(b)))
    parts = [
        Part("pair", (name, to), float(share))
        for name, of_one in zip(model.groups, shares, strict=True)
        for to, share in zip(model.groups, of_one, strict=True)
    ]
    there = [{name for name, vector in zip(model.groups, some, strict=True) if vector.any()} for some in vectors]
    parts = [part for part in parts if part.groups[0] in there[0] and part.groups[1] in there[1]]
    told = [_spelled(encoder, row) for row in (one, other)]
    return Explanation("similarity", float(shares.sum()), _sorted(parts), told)


def _parts(model: Feat2Vec, extracted: Sequence[Extracted]) -> Iterator[Part]:
    """Bias, linear terms and pairs of groups that are there."""
    if model.schema.model.bias:
        yield Part("bias", (), float(model.bias))
        for name, one in zip(model.groups, extracted, strict=True):
            if (term := float(one.linear[0])) != 0:
                yield Part("linear", (name,), term)
    split = [(name, *_split(model, one)) for name, one in zip(model.groups, extracted, strict=True)]
    there = [(name, free, held) for name, free, held in split if any(map(np.any, (*free, *held)))]
    partners = {name: names for names in model.schema.partners for name in names}
    for (name, free, held), (other, free_, held_) in combinations(there, 2):
        if partners[name] == partners[other]:
            continue
        meet = zip(free, held, free_, held_, strict=True)
        yield Part("pair", (name, other), sum(float(f @ f_ + f @ d_ + d @ f_) for f, d, f_, d_ in meet))


def _class_parts(model: Feat2Vec, extracted: Sequence[Extracted], c: int, class_name: str) -> Iterator[Part]:
    """A class's bias and its pairs with the groups: it is a value of the top level."""
    yield Part("bias", (class_name,), float(model.class_bias[c]))
    own = [vectors.numpy()[c].astype(np.float64) for vectors in model.class_vectors]
    truncate = model.schema.model.level_sharing == "truncate"
    for name, one in zip(model.groups, extracted, strict=True):
        free, held = _split(model, one)
        if not any(map(np.any, (*free, *held))):
            continue
        meet = [
            float(f @ v + (d @ v if truncate or level == len(own) - 1 else 0.0))
            for level, (f, d, v) in enumerate(zip(free, held, own, strict=True))
        ]
        yield Part("pair", (name, class_name), sum(meet))


def _split(model: Feat2Vec, one: Extracted) -> tuple[list[Doubles], list[Doubles]]:
    """A group's free and dependent vectors at each level; with truncation all is free."""
    free = [level.free.numpy()[0].astype(np.float64) for level in one.levels]
    held = [
        np.zeros_like(some) if level.dependent is None else level.dependent.numpy()[0].astype(np.float64)
        for some, level in zip(free, one.levels, strict=True)
    ]
    if model.schema.model.level_sharing == "truncate":
        return [f + d for f, d in zip(free, held, strict=True)], [np.zeros_like(d) for d in held]
    return free, held


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
    told: dict[str, str | None] = {}
    for name, codec in encoder.codecs.items():
        entry = np.ascontiguousarray(row[name])
        missing = bool(np.isnan(entry[0, 0])) if entry.dtype == np.float32 else not entry.any()
        group = encoder.schema.groups[name]
        told[name] = None if missing else spell(codec, group, entry, np.zeros(1, np.int64))[0].as_py()
    return told


def _cut(value: str | None, most: int = 80) -> str:
    """A name or a value on a line of a table."""
    return "missing" if value is None else shortened(printable(value), most)


__all__ = ["Explanation", "Part", "explain", "explain_score", "explain_similarity", "row_of"]
