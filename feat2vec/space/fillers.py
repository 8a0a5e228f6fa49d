"""What fills in the missing values of a column: keys, lists of keys, or numbers, each with its probability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Bools, Floats, Integers
from feat2vec.encode.codecs import ItemsCodec, NumbersCodec
from feat2vec.encode.codecs.numbers import numbers_checked
from feat2vec.schema.extractor_options import ItemsSpec, NumbersSpec
from feat2vec.space.calibration import is_list
from feat2vec.space.completer import Completer, rows_with_known
from feat2vec.space.completion import in_list, number_guesses
from feat2vec.space.geometry import Queries, blocks
from feat2vec.space.hidden_group import NumberColumn
from feat2vec.table.number_texts import INTEGER, POINT, SHORTEST, fits
from feat2vec.table.table import Stage

SCORES_IN_MEMORY = 1 << 19
AROUND = 0.1  # of the training numbers on each side of a mean

Filled: TypeAlias = tuple[pa.Array, pa.Array]  # values and probabilities of the rows of a block, null where none is


class Filler(Protocol):
    """Fills a column."""

    @property
    def column(self) -> str:
        """Its name."""

    @property
    def new_type(self) -> pa.DataType:
        """Its type, if the table lacks it."""

    @property
    def probability_type(self) -> pa.DataType:
        """The type of the column beside it."""

    @property
    def is_date(self) -> bool:
        """Whether its values are days since 1970."""

    def form_of_filled(self, form: str) -> str | None:
        """The form of the text of the column once it is filled, see `number_texts`; None for text without one."""

    def is_missing(self, stage: Stage, entries: Mapping[str, Array]) -> Bools:
        """Which rows of a stage lack a value, given their entries: [rows]."""

    def fill(self, missing: Bools, entries: Mapping[str, Array], vectors: Mapping[str, Queries]) -> Filled:
        """The values of rows that lack one, as `missing` says, [rows]."""


@dataclass
class KeyFiller:
    """Fills a column of keys, or of lists of them."""

    completer: Completer
    at_least: float

    def __post_init__(self) -> None:
        encoder = self.completer.encoder
        spec = encoder.schema.groups[self.completer.group].extractor
        assert isinstance(spec, ItemsSpec)
        self.spec, self.is_list = spec, is_list(encoder, self.completer.group)

    @property
    def column(self) -> str:
        return self.completer.encoder.schema.groups[self.completer.group].columns[0]

    @property
    def new_type(self) -> pa.DataType:
        return pa.list_(pa.string()) if self.spec.multi else pa.string()

    @property
    def probability_type(self) -> pa.DataType:
        return pa.list_(pa.float64()) if self.is_list else pa.float64()

    @property
    def is_date(self) -> bool:
        return False

    def form_of_filled(self, form: str) -> str | None:
        names = pa.array(self.completer.hidden.names(range(len(self.completer.hidden))), pa.string())
        is_number = fits(names, form) or (form == POINT and fits(names, INTEGER))  # 26.0 is the key 26
        return form if not self.is_list and is_number else None

    def is_missing(self, stage: Stage, entries: Mapping[str, Array]) -> Bools:
        del stage
        missing: Bools = np.logical_not(np.any(entries[self.completer.group], axis=1))
        return missing

    def fill(self, missing: Bools, entries: Mapping[str, Array], vectors: Mapping[str, Queries]) -> Filled:
        values: list[object] = [None] * len(entries[self.completer.group])
        said: list[object] = list(values)
        for rows, log_p in _blocks_of_missing(self.completer, missing, entries, vectors):
            best = log_p.argmax(axis=1)
            for i, row in enumerate(rows.tolist()):
                if self.is_list:
                    values[row], said[row] = self._list_of_row(np.exp(log_p[i]))
                elif np.exp(log_p[i, best[i]]) >= self.at_least:
                    values[row], said[row] = self._key(int(best[i])), float(np.exp(log_p[i, best[i]]))
        value_type = pa.list_(pa.string()) if self.is_list and not self.spec.split else pa.string()
        return pa.array(values, value_type), pa.array(said, self.probability_type)

    def _key(self, place: int) -> str:
        return self.completer.hidden.names([place])[0]

    def _list_of_row(self, shares: Floats) -> tuple[object, list[float] | None]:
        """The items of a list, or the text that is split into them, and their probabilities."""
        probabilities = in_list(shares, self.completer.calibration)
        places = np.flatnonzero(probabilities >= self.at_least)
        places = places[np.argsort(-probabilities[places], kind="stable")][: self.spec.max_items]
        if not len(places):
            return None, None
        names = self.completer.hidden.names(places)
        return self.spec.split.join(names) if self.spec.split else names, probabilities[places].tolist()


@dataclass
class NumberFiller:
    """Fills a column of numbers with means."""

    completer: Completer
    at_least: float
    numbers: NumberColumn

    @property
    def column(self) -> str:
        return self.numbers.column

    @property
    def new_type(self) -> pa.DataType:
        return pa.timestamp("us") if self.numbers.is_date else pa.float64()

    @property
    def probability_type(self) -> pa.DataType:
        return pa.float64()

    @property
    def is_date(self) -> bool:
        return self.numbers.is_date

    def form_of_filled(self, form: str) -> str | None:
        if self.is_date:
            return None
        return form if form == POINT else SHORTEST  # means have other numbers of places

    def is_missing(self, stage: Stage, entries: Mapping[str, Array]) -> Bools:
        codec = self.completer.hidden.codec
        if isinstance(codec, ItemsCodec):
            missing: Bools = np.logical_not(entries[self.completer.group].any(axis=1))
            return missing
        assert isinstance(codec, NumbersCodec)
        # An entry says that one of several numbers is missing only where training has seen such a gap; the row says it.
        spec = self.completer.encoder.schema.groups[self.completer.group].extractor
        assert isinstance(spec, NumbersSpec)
        (kind,) = (column.kind for column in codec.columns if column.column == self.column)
        is_nan: Bools = np.isnan(numbers_checked(stage, self.column, spec, kind)[0])
        return is_nan

    def fill(self, missing: Bools, entries: Mapping[str, Array], vectors: Mapping[str, Queries]) -> Filled:
        total = len(entries[self.completer.group])
        means, said = np.full(total, np.nan), np.full(total, np.nan)
        for rows, log_p in _blocks_of_missing(self.completer, missing, entries, vectors):
            probabilities = np.exp(log_p)
            of_rows = number_guesses(self.numbers, probabilities).means
            nearness = probability_around(self.numbers, self.completer.hidden.counts, probabilities, of_rows)
            enough = nearness >= self.at_least
            means[rows[enough]], said[rows[enough]] = of_rows[enough], nearness[enough]
        is_null = np.isnan(means)
        return pa.array(means, pa.float64(), mask=is_null), pa.array(said, pa.float64(), mask=is_null)


def _blocks_of_missing(
    completer: Completer, missing: Bools, entries: Mapping[str, Array], vectors: Mapping[str, Queries]
) -> Iterator[tuple[Integers, Floats]]:
    """The rows that lack a value and have something to find it by, with log p [rows, candidates], in blocks."""
    rows = np.flatnonzero(missing & rows_with_known(completer.encoder, entries, completer.given))
    if not len(rows):
        return
    of_rows = {name: entries[name][rows] for name in completer.given}
    queries = completer.queries(of_rows, {name: vectors[name].take(rows) for name in completer.given})
    for block in blocks(len(rows), max(SCORES_IN_MEMORY // len(completer.hidden), 1)):
        yield rows[block], completer.log_probabilities(queries.take(block))


def probability_around(column: NumberColumn, counts: Array, probabilities: Floats, numbers: Floats) -> Floats:
    """The probability of lying among the fifth of the training numbers that is around a number.

    Args:
        column: What the candidates are as numbers.
        counts: How many training rows have each.
        probabilities: That of each candidate, [rows, candidates].
        numbers: The number of each row.

    Returns:
        The probabilities, [rows].

    """
    known = np.flatnonzero(~np.isnan(column.mean))
    order = known[np.argsort(column.mean[known], kind="stable")]
    ends = np.concatenate([[0.0], np.cumsum(counts[order]) / counts[order].sum()])  # shares of the training rows
    middles = (ends[1:] + ends[:-1]) / 2
    ranks = np.interp(numbers, column.mean[order], middles)
    ordered = probabilities[:, order] / np.maximum(probabilities[:, order].sum(axis=1, keepdims=True), 1e-300)
    up_to = np.concatenate([np.zeros((len(ordered), 1)), np.cumsum(ordered, axis=1)], axis=1)
    low, high = np.clip(ranks - AROUND, 0, 1 - 2 * AROUND), np.clip(ranks + AROUND, 2 * AROUND, 1)
    around = [np.interp([low[i], high[i]], ends, row) for i, row in enumerate(up_to)]
    return np.clip(np.diff(np.array(around).reshape(-1, 2), axis=1)[:, 0], 0, 1)
