"""Scaled numbers and dates: their codec and its fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Floats
from feat2vec.encode.array_files import Array, ArrayFile, is_finite
from feat2vec.encode.codecs.entries import Entries, Facts, Tally
from feat2vec.encode.scaling import ColumnFeed, ColumnScale, fit_scale
from feat2vec.encode.workspace import Workspace
from feat2vec.schema.extractor_options import NumbersSpec
from feat2vec.schema.options import Group
from feat2vec.table.kinds import Kind
from feat2vec.table.numbers import numbers_of
from feat2vec.table.stages import Stage
from feat2vec.table.types import FIRST_DAY, LAST_DAY


@dataclass(frozen=True)
class NumbersCodec:
    """Scaled numbers, then an indicator for each column that has missing entries."""

    columns: tuple[ColumnScale, ...]
    nan: str
    dtype: ClassVar[type[np.generic]] = np.float32
    bits: ClassVar[int] = 32
    vocabulary: None = None

    @property
    def width(self) -> int:
        """Numbers in an entry."""
        return len(self.columns) + sum(column.indicator for column in self.columns)

    @property
    def training_width(self) -> int:
        """The same: entries of numbers have one width."""
        return self.width

    def encode(self, stage: Stage, group: Group) -> Entries:
        spec = group.extractor
        assert isinstance(spec, NumbersSpec)
        columns = [numbers_checked(stage, column.column, spec, column.kind)[0] for column in self.columns]
        numbers = np.stack(columns, axis=1)  # [rows, columns]
        entries = self.pack(numbers)
        is_infinite = ~np.isfinite(entries.rows)
        if is_infinite.any():
            entry, i = (int(places[0]) for places in np.nonzero(is_infinite))
            row = int(np.flatnonzero(entries.present)[entry])
            message = f"is too large for `scale: {self.columns[i].scale}` as the training rows fitted it"
            stage.refuse(row, self.columns[i].column, float(numbers[row, i]), message)
        return entries

    def pack(self, numbers: Floats) -> Entries:
        """The entries of numbers [rows, columns], NaN where one is missing."""
        is_missing = np.isnan(numbers)
        present = np.logical_not(is_missing.all(axis=1))
        numbers, is_missing = numbers[present], is_missing[present]
        indicators = [is_missing[:, i].astype(np.float64) for i, column in enumerate(self.columns) if column.indicator]
        with np.errstate(over="ignore"):
            scaled = [column.apply(numbers[:, i]) for i, column in enumerate(self.columns)]
            rows = np.stack([*scaled, *indicators], axis=1).astype(np.float32)
            rows = rows + np.float32(0)  # -0 and 0 are one value
        tally = Tally(missing=int((~present).sum()), filled=int(is_missing.sum()))
        return Entries(present, rows, tally)

    def decode(self, entries: Array) -> list[list[float | datetime | None]]:
        """The numbers of each entry, dates as such; None for one that an indicator says was missing."""
        are_dates = [column.kind == "date" for column in self.columns]
        decoded: list[list[float | datetime | None]] = []
        for row in self.numbers(entries).tolist():
            decoded.append(
                [
                    None if np.isnan(number) else _date(number) if is_date else number
                    for number, is_date in zip(row, are_dates, strict=True)
                ]
            )
        return decoded

    def numbers(self, entries: Array) -> Floats:
        """The numbers of each entry, [entries, columns]: days since 1970 for dates, NaN for what was missing."""
        count = len(self.columns)
        inverted = [column.invert(entries[:, i].astype(np.float64)) for i, column in enumerate(self.columns)]
        is_missing = np.zeros((len(entries), count), np.bool_)
        has_indicator = [column.indicator for column in self.columns]
        is_missing[:, has_indicator] = entries[:, count:] != 0
        return np.where(is_missing, np.nan, np.stack(inverted, axis=1))

    def facts(self) -> dict[str, Any]:
        return {"columns": [asdict(column) for column in self.columns], "nan": self.nan}

    @classmethod
    def from_facts(cls, group: Group, facts: Facts, keys: pa.Table | None) -> NumbersCodec:
        del keys
        spec = group.extractor
        assert isinstance(spec, NumbersSpec)
        columns = [ColumnScale(**{**column, "knots": tuple(column["knots"])}) for column in facts["columns"]]
        if [column.column for column in columns] != list(group.columns) or facts["nan"] != spec.nan:
            raise ValueError("the columns of numbers are not those of the schema")
        for column in columns:
            column.check(spec.scale)
        return cls(tuple(columns), facts["nan"])

    def check(self, entries: Array) -> None:
        if not is_finite(entries):
            raise ValueError("entries hold numbers that are not finite")


def _date(days: float) -> datetime:
    if days >= LAST_DAY + 1:  # the float32 of an entry may be days away from the date
        return datetime.max
    return datetime(1970, 1, 1) + timedelta(days=max(days, FIRST_DAY))


def numbers_checked(stage: Stage, column: str, spec: NumbersSpec, kind: Kind | None) -> tuple[Floats, Kind]:
    """A column's numbers, all of which its scale can take."""
    numbers, kind = numbers_of(stage, column, kind, spec.nan)
    if spec.scale == "log1p" and (too_low := np.flatnonzero(numbers <= -1)).size:
        row = int(too_low[0])
        stage.refuse(row, column, float(numbers[row]), "`scale: log1p` needs numbers above -1")
    if spec.scale == "none" and (too_large := np.flatnonzero(np.abs(numbers) > np.finfo(np.float32).max)).size:
        row = int(too_large[0])
        stage.refuse(row, column, float(numbers[row]), "is too large for 32 bits; choose another scale")
    return numbers, kind


class NumbersFit:
    """Fits a NumbersCodec: the numbers are staged."""

    def __init__(self, workspace: Workspace, name: str, group: Group) -> None:
        assert isinstance(group.extractor, NumbersSpec)
        self.connection, self.group, self.spec = workspace.connection, group, group.extractor
        path, rows_per_piece = workspace.staging / f"{name}.npy", workspace.sizes.rows_per_piece
        self.numbers_file = ArrayFile(path, np.float64, len(group.columns), rows_per_piece)
        self.kinds: list[Kind | None] = [None] * len(group.columns)
        self.has_gaps = np.zeros(len(group.columns), np.bool_)  # missing in a row where another column is not
        self.codec: NumbersCodec | None = None

    @property
    def work(self) -> int:
        """How many numbers are staged."""
        return self.numbers_file.rows * len(self.group.columns)

    def stage(self, stage: Stage) -> None:
        columns = []
        for i, column in enumerate(self.group.columns):
            numbers, kind = numbers_checked(stage, column, self.spec, self.kinds[i])
            self.kinds[i] = kind if not np.isnan(numbers).all() else self.kinds[i]
            columns.append(numbers)
        rows = np.stack(columns, axis=1)  # [rows, columns]
        is_missing = np.isnan(rows)
        is_missing_row = is_missing.all(axis=1, keepdims=True)
        self.has_gaps |= (is_missing & ~is_missing_row).any(axis=0)
        self.numbers_file.append(rows)

    def finish(self) -> NumbersCodec:
        self.numbers_file.close()
        scales = []
        for i, column in enumerate(self.group.columns):
            numbers, kind = ColumnFeed(self.numbers_file, i), self.kinds[i] or "number"
            has_gaps = bool(self.has_gaps[i])
            scales.append(fit_scale(self.connection, column, kind, self.spec.scale, numbers, has_gaps))
        self.codec = NumbersCodec(tuple(scales), self.spec.nan)
        return self.codec

    def entries(self) -> Iterator[Entries]:
        assert self.codec is not None
        for piece in self.numbers_file.pieces():
            yield self.codec.pack(piece)
        self.numbers_file.discard()
