"""Numbers to the scale that the training rows have; fitted once, then fixed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import duckdb
import numpy as np
import pyarrow as pa

from feat2vec.arrays import Floats
from feat2vec.encode.array_files import ArrayFile
from feat2vec.errors import UserError
from feat2vec.table.kinds import Kind

Scale = Literal["standard", "minmax", "log1p", "quantile", "none"]
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


class ColumnFeed:
    """A column's numbers, to be read in pieces as often as needed."""

    def __init__(self, file: ArrayFile, column: int) -> None:
        self.file, self.column = file, column

    def __call__(self) -> Iterator[Floats]:
        for piece in self.file.pieces():
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
    connection: duckdb.DuckDBPyConnection, column: str, kind: Kind, scale: Scale, numbers: ColumnFeed, indicator: bool
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


def quantiles(connection: duckdb.DuckDBPyConnection, numbers: ColumnFeed, knots: int) -> tuple[float, ...]:
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


def _sorted_numbers(connection: duckdb.DuckDBPyConnection, numbers: ColumnFeed) -> Iterator[Floats]:
    """The numbers that are not missing in ascending order, in pieces. DuckDB sorts, and spills to disk."""

    def batches(pieces: Iterable[Floats]) -> Iterator[pa.RecordBatch]:
        for piece in pieces:
            yield pa.record_batch([pa.array(piece[~np.isnan(piece)])], names=["x"])

    cursor = connection.cursor()
    cursor.register("feed", pa.RecordBatchReader.from_batches(pa.schema({"x": pa.float64()}), batches(numbers())))
    for piece in pa.RecordBatchReader.from_stream(cursor.sql("select x from feed order by x")):
        yield piece.column("x").to_numpy()
    cursor.unregister("feed")
