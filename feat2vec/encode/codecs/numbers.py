"""Numbers to the scale that the training rows have; fitted once, then fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, get_args

import duckdb
import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Floats
from feat2vec.encode.arrays_on_disk import ArrayFile, is_finite
from feat2vec.encode.codecs.entries import Codec, CodecFit, Entries, Facts, Tally
from feat2vec.encode.finished_steps import StepRecord
from feat2vec.encode.workspace import Workspace
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import PLAIN_NUMBER, NumbersSpec
from feat2vec.schema.options import Group
from feat2vec.table.numbers import days_of, numbers_of
from feat2vec.table.table import Stage
from feat2vec.table.types import FIRST_DAY, LAST_DAY, Kind
from feat2vec.table.written_dates import written_dates
from feat2vec.table.written_numbers import written_numbers

Scale = Literal["standard", "minmax", "log1p", "quantile", "none"]
KINDS_OF_NUMBERS: tuple[Kind, ...] = ("number", "float", "float32")
KNOTS = 1001  # quantiles that the `quantile` scale keeps


@dataclass(frozen=True)
class ColumnScale:
    """One column's scale.

    Args:
        column: The column.
        kind: What its values are read as.
        scale: The name of the scale.
        knots: Mean and deviation (`standard`), minimum and range (`minmax`) or quantiles (`quantile`).
        fill: What a missing number counts as: the training mean.
        indicator: Whether another number of the entry says that this one was missing.

    """

    column: str
    kind: Kind
    scale: Scale
    knots: tuple[float, ...]
    fill: float
    indicator: bool

    def check(self, scale: str) -> None:
        """Raise a ValueError for facts that `fit_scale` cannot give."""
        numbers = [*self.knots, self.fill]
        if not all(isinstance(number, float | int) and np.isfinite(number) for number in numbers):
            raise ValueError(f"the scale of {self.column[:60]!r} has numbers that are not finite")
        expected_knots = {"standard": 2, "minmax": 2, "quantile": KNOTS}.get(self.scale, 0)
        is_divisible = self.scale not in ("standard", "minmax") or self.knots[-1:] > (0,)
        is_ascending = self.scale != "quantile" or list(self.knots) == sorted(self.knots)
        if self.scale != scale or len(self.knots) != expected_knots or not is_divisible or not is_ascending:
            raise ValueError(f"{self.column[:60]!r} is not scaled as `scale: {scale}` scales")
        if self.kind not in get_args(Kind) or not isinstance(self.indicator, bool):
            raise ValueError(f"{self.column[:60]!r} has a scale of no kind")

    def apply(self, numbers: Floats) -> Floats:
        """Scale numbers; NaN becomes `fill`."""
        filled = np.where(np.isnan(numbers), self.fill, numbers)
        match self.scale:
            case "standard" | "minmax":
                return (filled - self.knots[0]) / self.knots[1]
            case "log1p":
                return np.log1p(filled)
            case "quantile":
                # A number that is several quantiles at once gets the middle of the lowest and the highest.
                knots, levels = np.array(self.knots), np.linspace(0, 1, len(self.knots))
                highest = np.interp(filled, knots, levels)
                lowest = -np.interp(-filled, -knots[::-1], -levels[::-1])
                return (highest + lowest) / 2
        return filled

    def invert(self, scaled: Floats) -> Floats:
        """Numbers from what `apply` made of them."""
        match self.scale:
            case "standard" | "minmax":
                return scaled * self.knots[1] + self.knots[0]
            case "log1p":
                return np.expm1(scaled)
            case "quantile":
                return np.interp(scaled, np.linspace(0, 1, len(self.knots)), self.knots)
        return scaled


Numbers = Callable[[], Iterator[Floats]]  # numbers, to be read in pieces as often as needed


class ColumnFeed:
    """The numbers of a column, one file after the other, to be read in pieces as often as needed."""

    def __init__(self, files: Sequence[ArrayFile], column: int) -> None:
        self.files, self.column = files, column

    def __call__(self) -> Iterator[Floats]:
        for file in self.files:
            for piece in file.pieces():
                yield piece[:, self.column]


@dataclass
class Moments:
    """Count, mean, sum of squared deviations, minimum and maximum of numbers, added a piece at a time."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    def add(self, numbers: Floats) -> None:
        """Add numbers none of which is missing (Chan, Golub and LeVeque, 1983)."""
        more = len(numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            delta = numbers.mean() - self.mean
            self.squares += numbers.var() * more + delta**2 * self.count * more / (self.count + more)
            self.mean += delta * more / (self.count + more)
        self.count += more
        self.low, self.high = min(self.low, numbers.min()), max(self.high, numbers.max())


def fit_scale(
    connection: duckdb.DuckDBPyConnection, column: str, kind: Kind, scale: Scale, numbers: Numbers, indicator: bool
) -> ColumnScale:
    """Fit a column's scale to its training numbers, which may be larger than memory.

    Raises:
        UserError: If there are no numbers, or if they are too far apart for the scale.

    """
    moments = Moments()
    for piece in numbers():
        present = piece[~np.isnan(piece)]
        if len(present):
            moments.add(present)
    if not moments.count:
        raise UserError(f"column {column!r}: has no number in any row; remove it from its group")
    low, high = moments.low, moments.high
    with np.errstate(over="ignore"):
        spread = float(high - low)
    if spread:
        mean, deviation = float(moments.mean), float(np.sqrt(moments.squares / moments.count))
    else:  # the mean of equal numbers may differ from them in its last bit
        mean, deviation = float(low), 0.0
    divisor = {"standard": deviation, "minmax": spread, "quantile": spread}.get(scale, 0.0)
    if not np.isfinite(divisor) or not np.isfinite(mean):
        message = f"numbers from {low} to {high} are too far apart for `scale: {scale}`"
        raise UserError(f"column {column!r}: {message}; divide them, or use log1p if none is negative")
    knots: tuple[float, ...] = ()
    if scale == "standard":
        knots = (mean, deviation or 1.0)
    elif scale == "minmax":
        knots = (float(low), spread or 1.0)
    elif scale == "quantile":
        knots = quantiles(connection, numbers, KNOTS)
    return ColumnScale(column, kind, scale, knots, mean, indicator)


def quantiles(connection: duckdb.DuckDBPyConnection, numbers: Numbers, knots: int) -> tuple[float, ...]:
    """The numbers' exact quantiles 0, 1/(knots-1), ..., 1; none if there are no numbers."""
    count = sum(int((~np.isnan(piece)).sum()) for piece in numbers())
    if not count:
        return ()
    # Ranks are integers with a remainder, so that a whole rank is exact; others are interpolated between two numbers.
    lower_ranks, remainders = np.divmod(np.arange(knots, dtype=np.int64) * (count - 1), knots - 1)
    upper_ranks = lower_ranks + (remainders > 0)
    lower, upper = np.empty(knots), np.empty(knots)
    start = 0
    for piece in _sorted_numbers(connection, numbers):
        for ranks, numbers_of_ranks in ((lower_ranks, lower), (upper_ranks, upper)):
            is_in_piece = (ranks >= start) & (ranks < start + len(piece))
            numbers_of_ranks[is_in_piece] = piece[ranks[is_in_piece] - start]
        start += len(piece)
    return tuple((lower + (upper - lower) * (remainders / (knots - 1))).tolist())


def _sorted_numbers(connection: duckdb.DuckDBPyConnection, numbers: Numbers) -> Iterator[Floats]:
    """The numbers that are not missing in ascending order, in pieces. DuckDB sorts, and spills to disk."""

    def batches(pieces: Iterable[Floats]) -> Iterator[pa.RecordBatch]:
        for piece in pieces:
            yield pa.record_batch([pa.array(piece[~np.isnan(piece)])], names=["x"])

    cursor = connection.cursor()
    cursor.register("feed", pa.RecordBatchReader.from_batches(pa.schema({"x": pa.float64()}), batches(numbers())))
    for piece in pa.RecordBatchReader.from_stream(cursor.sql("select x from feed order by x")):
        yield piece.column("x").to_numpy()
    cursor.unregister("feed")


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

    def facts(self) -> dict[str, object]:
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

    def of_columns(self, columns: Sequence[str]) -> NumbersCodec:
        scales = [replace(scale, column=column) for scale, column in zip(self.columns, columns, strict=True)]
        return replace(self, columns=tuple(scales))


def _date(days: float) -> datetime:
    if days >= LAST_DAY + 1:  # the float32 of an entry may be days away from the date
        return datetime.max
    return datetime(1970, 1, 1) + timedelta(days=max(days, FIRST_DAY))


def date_text(days: float) -> str:
    """Days since 1970 as a date, with the time unless it is midnight.

    >>> date_text(1.5), date_text(0.0)
    ('1970-01-02 12:00:00', '1970-01-01')
    """
    date = _date(round(days * 86_400) / 86_400)
    return str(date).removesuffix(" 00:00:00")[:19]


def shared_kind(kinds: Mapping[str, Kind | None]) -> Kind | None:
    """The kind of what several columns share; None if none of them has one.

    Numbers of several types have the kind with which the most others are compared.

    Args:
        kinds: The kind of each column, None for one that has not shown any.

    Raises:
        UserError: If some columns hold numbers and others text, or dates.

    >>> shared_kind({"from": "number", "to": "float"}), shared_kind({"from": None, "to": "text"})
    ('float', 'text')

    """
    columns: dict[Kind, str] = {}  # the first column of each kind
    for column, kind in kinds.items():
        if kind is not None:
            columns.setdefault(kind, column)
    if len(columns) < 2:
        return next(iter(columns), None)
    if not set(columns) <= set(KINDS_OF_NUMBERS):
        held = " and ".join(f"{kind}s in {column!r}" for kind, column in columns.items())
        rule = "columns that share vectors hold keys of one kind"
        raise UserError(f"{rule}; received {held}: cast one, or remove `share`")
    return "float"


def numbers_checked(stage: Stage, column: str, spec: NumbersSpec, kind: Kind | None) -> tuple[Floats, Kind]:
    """A column's numbers, all of which its scale can take."""
    if spec.dates is not None:
        numbers, kind = days_of(written_dates(stage, column, spec.dates)), "date"
    elif spec.written is not None or spec.nan == "lenient":
        numbers, kind = written_numbers(stage, column, spec.written or PLAIN_NUMBER, spec.nan), "number"
    else:
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
        self.workspace, self.group, self.spec = workspace, group, group.extractor
        self.path = workspace.staging / f"{name}.npy"
        if workspace.steps is None:  # else `restore` follows, which goes on with the file
            self.numbers_file = self._file()
        self.kinds: list[Kind | None] = [None] * len(group.columns)
        self.has_gaps = np.zeros(len(group.columns), np.bool_)  # missing in a row where another column is not
        self.fits = [self]  # this one, and those that share its codec
        self.codec: NumbersCodec | None = None

    def _file(self, kept_rows: int = 0) -> ArrayFile:
        rows_per_piece = self.workspace.sizes.rows_per_piece
        return ArrayFile(self.path, np.float64, len(self.group.columns), rows_per_piece, kept_rows)

    def share(self, owner: CodecFit) -> None:
        assert isinstance(owner, NumbersFit)
        owner.fits.append(self)

    def record(self) -> StepRecord:
        facts = {"rows": self.numbers_file.rows, "kinds": list(self.kinds), "has_gaps": self.has_gaps.tolist()}
        return StepRecord(facts, [self.path])

    def restore(self, stages: Sequence[Facts], *, is_fitted: bool) -> None:
        self.numbers_file = self._file(stages[-1]["rows"] if stages and not is_fitted else 0)
        if stages:
            self.kinds, self.has_gaps = stages[-1]["kinds"], np.array(stages[-1]["has_gaps"], np.bool_)

    def record_fitted(self) -> StepRecord:
        return StepRecord({}, [])

    def restore_fitted(self, codec: Codec, facts: Facts) -> None:
        del facts
        assert isinstance(codec, NumbersCodec)
        self.codec = codec

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
        if self.codec is None:
            files = [fit.numbers_file for fit in self.fits]
            for file in files:
                file.close()
            scales = []
            for i, column in enumerate(self.group.columns):
                kind = shared_kind({fit.group.columns[i]: fit.kinds[i] for fit in self.fits}) or "number"
                has_gaps = any(bool(fit.has_gaps[i]) for fit in self.fits)
                numbers = ColumnFeed(files, i)
                scales.append(fit_scale(self.workspace.connection, column, kind, self.spec.scale, numbers, has_gaps))
            codec = NumbersCodec(tuple(scales), self.spec.nan)
            for fit in self.fits:
                fit.codec = codec.of_columns(fit.group.columns)
        assert self.codec is not None
        return self.codec

    def release(self) -> None:
        self.fits = []  # a reference to itself would keep it until the garbage is collected

    def entries(self) -> Iterator[Entries]:
        assert self.codec is not None
        for piece in self.numbers_file.pieces():
            yield self.codec.pack(piece)
        if self.workspace.steps is None:
            self.numbers_file.discard()
