"""Numbers to the scale that the training rows have; fitted once, then fixed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import duckdb
import numpy as np
import pyarrow as pa

from feat2vec.encode.entry_tables import ArrayFile
from feat2vec.errors import UserError
from feat2vec.table.stages import Floats, Kind

Scale = Literal["standard", "minmax", "log1p", "quantile", "none"]
KNOTS = 1001  # quantiles that the `quantile` scale keeps


@dataclass(frozen=True)
class ColumnScale:
    """One column's scale. `knots`: mean and deviation, or minimum and maximum, or quantiles.

    `fill` is what a missing number counts as: the training mean. `indicator` says whether another input tells so.
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
        count = {"standard": 2, "minmax": 2, "quantile": KNOTS}.get(self.scale, 0)
        divides = self.scale not in ("standard", "minmax") or self.knots[-1:] > (0,)
        ascends = self.scale != "quantile" or list(self.knots) == sorted(self.knots)
        if self.scale != scale or len(self.knots) != count or not divides or not ascends:
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
                knots, levels = np.array(self.knots), np.linspace(0, 1, len(self.knots))
                up, down = np.interp(filled, knots, levels), -np.interp(-filled, -knots[::-1], -levels[::-1])
                return (up + down) / 2  # a number that is several quantiles at once is their middle
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


def fit_scale(
    connection: duckdb.DuckDBPyConnection, column: str, kind: Kind, scale: Scale, numbers: ColumnFeed, indicator: bool
) -> ColumnScale:
    """Fit a column's scale to its training numbers, which may be larger than memory."""
    count, mean, square, low, high = 0, 0.0, 0.0, np.inf, -np.inf
    for piece in numbers():
        some = piece[~np.isnan(piece)]
        if not len(some):
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            delta = some.mean() - mean  # the means and squared deviations of pieces add up as Chan et al. have it
            square += some.var() * len(some) + delta**2 * count * len(some) / (count + len(some))
            mean += delta * len(some) / (count + len(some))
        count += len(some)
        low, high = min(low, some.min()), max(high, some.max())
    if not count:
        raise UserError(f"column {column!r}: has no number in any row; remove it from its group")
    with np.errstate(over="ignore"):
        spread = float(high - low)
    # equal numbers may have a mean that is not quite theirs
    mean, deviation = (float(mean), float(np.sqrt(square / count))) if spread else (float(low), 0.0)
    needed = {"standard": deviation, "minmax": spread, "quantile": spread}.get(scale, 0.0)
    if not np.isfinite(needed) or not np.isfinite(mean):
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


class ColumnFeed:
    """A column's numbers, to be read as often as needed."""

    def __init__(self, file: ArrayFile, column: int) -> None:
        self.file, self.column = file, column

    def __call__(self) -> Iterator[Floats]:
        for piece in self.file.pieces():
            yield piece[:, self.column]


def quantiles(connection: duckdb.DuckDBPyConnection, numbers: ColumnFeed, knots: int) -> tuple[float, ...]:
    """The numbers' exact quantiles 0, 1/(knots-1), ..., 1; DuckDB sorts, and spills to disk."""

    def batches(feed: Iterable[Floats]) -> Iterator[pa.RecordBatch]:
        for piece in feed:
            yield pa.record_batch([pa.array(piece[~np.isnan(piece)])], names=["x"])

    def sorted_by_duckdb() -> Iterator[Floats]:
        cursor = connection.cursor()
        cursor.register("feed", pa.RecordBatchReader.from_batches(pa.schema({"x": pa.float64()}), batches(numbers())))
        for piece in pa.RecordBatchReader.from_stream(cursor.sql("select x from feed order by x")):
            yield piece.column("x").to_numpy()
        cursor.unregister("feed")

    count = sum(int((~np.isnan(piece)).sum()) for piece in numbers())
    if not count:
        return ()
    # ranks, interpolated between the two numbers around them; as integers, so that a rank that is whole is exact
    whole, rest = np.divmod(np.arange(knots, dtype=np.int64) * (count - 1), knots - 1)
    below, above = np.empty(knots), np.empty(knots)
    start = 0
    for piece in sorted_by_duckdb():
        for ranks, found in ((whole, below), (whole + (rest > 0), above)):
            here = (ranks >= start) & (ranks < start + len(piece))
            found[here] = piece[ranks[here] - start]
        start += len(piece)
    return tuple((below + (above - below) * (rest / (knots - 1))).tolist())
