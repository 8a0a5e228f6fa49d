"""`complete`: the most probable values of a hidden group, and the mean and the quantiles of a group of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Floats, Integers, Strings
from feat2vec.encode.codecs.numbers import date_text
from feat2vec.errors import UserError, listed
from feat2vec.space.calibration import GroupCalibration, is_list
from feat2vec.space.completer import AnyFloats, Completer
from feat2vec.space.given_row import is_missing, table_of_row
from feat2vec.space.hidden_group import NumberColumn
from feat2vec.writing.files import JsonObject

SMALLEST_TOTAL = 1e-300
SHARES = (0.1, 0.5, 0.9)  # of the probability that lies below a quantile


@dataclass(frozen=True)
class NumberGuess:
    """What a number of a row may be: numbers, or dates as text.

    Args:
        mean: The mean.
        quantiles: The numbers below which it lies with a probability of 10, 50 and 90 %, by "10", "50" and "90".

    """

    mean: float | str
    quantiles: Mapping[str, float | str]


@dataclass(frozen=True)
class Completed:
    """What a row may hold of a group, whatever it holds of it.

    Args:
        group: The group.
        values: The most probable values and their probabilities, in descending order. Those of a list are the
            probabilities that it holds the value. None if nothing is known of the row.
        numbers: For a group of numbers what is said of each column.
        is_calibrated: Whether held-out rows have said how far the probabilities may be believed. Where training held
            out fewer than 20 rows with a value, they may be too sure.

    """

    group: str
    values: tuple[tuple[str, float], ...]
    numbers: Mapping[str, NumberGuess]
    is_calibrated: bool = True

    def facts(self) -> JsonObject:
        """The same as plain data, as `feat2vec complete --json` prints it."""
        facts: JsonObject = {
            "group": self.group,
            "values": [{"value": value, "probability": probability} for value, probability in self.values],
            "calibrated": self.is_calibrated,
        }
        if self.numbers:
            facts["numbers"] = {
                column: {"mean": guess.mean, "quantiles": dict(guess.quantiles)}
                for column, guess in self.numbers.items()
            }
        return facts


def complete(completer: Completer, rows: object, n: int = 5) -> list[Completed]:
    """What rows may hold of a group.

    Args:
        completer: That of the group.
        rows: A row as a mapping of columns to values, or a table.
        n: How many values are named.

    Returns:
        For each row its most probable values.

    Raises:
        UserError: The rows cannot be read, or `rows` is a mapping without anything that the run has seen.

    """
    given_number: object = n
    if isinstance(given_number, bool) or not isinstance(given_number, Integral) or n < 1:
        raise UserError(f"n: is how many values are named, 1 or more; received {n!r:.40}")
    source = _table_of_row(completer, rows) if isinstance(rows, Mapping) else rows
    completed: list[Completed] = []
    for batch in completer.batches(source):
        probabilities = np.exp(batch.log_probabilities)  # [rows, candidates]
        of_parts = shares_of_parts(completer, probabilities)
        places = top_places(batch.log_probabilities if of_parts is None else of_parts, n)  # [rows, n]
        guesses = [number_guesses(column, probabilities) for column in completer.hidden.columns]
        for i, is_findable in enumerate(batch.findable):
            if isinstance(rows, Mapping) and not is_findable:
                known = listed(column for column, value in rows.items() if value is not None)
                raise UserError(f"row: training has seen none of its values, of {known}")
            if not is_findable:
                completed.append(Completed(completer.group, (), {}, completer.is_calibrated))
                continue
            of_row = (probabilities if of_parts is None else of_parts)[i, places[i]]
            if of_parts is None and is_list(completer.encoder, completer.group):
                of_row = in_list(of_row, completer.calibration)
            values = tuple(zip(completer.hidden.names(places[i]), of_row.tolist(), strict=True))
            columns = zip(completer.hidden.columns, guesses, strict=True)
            numbers = {column.column: _guess_of_row(column, means, i) for column, means in columns}
            completed.append(Completed(completer.group, values, numbers, completer.is_calibrated))
    return completed


def has_parts(completer: Completer) -> bool:
    """Whether the candidates are the parts of dates."""
    return bool(getattr(completer.encoder.schema.groups[completer.group].extractor, "parts", ()))


def shares_of_parts(completer: Completer, shares: Floats) -> Floats | None:
    """The probabilities of the parts of dates: a row has one year, one month and so on.

    Args:
        completer: That of the group.
        shares: The probabilities of the candidates, which sum to 1 in each row, [rows, candidates].

    Returns:
        Probabilities that sum to 1 for each part, [rows, candidates]; None for a group of other columns than dates.

    """
    if not has_parts(completer):
        return None
    names = completer.hidden.names(range(len(completer.hidden)))  # such as "year=2019"
    parts: Strings = np.array([name.partition("=")[0] for name in names])
    probabilities = np.empty_like(shares)
    for part in np.unique(parts):
        of_part = parts == part
        totals = shares[:, of_part].sum(axis=1, keepdims=True)
        probabilities[:, of_part] = shares[:, of_part] / np.maximum(totals, SMALLEST_TOTAL)
    return probabilities


def in_list(probabilities: Floats, calibration: GroupCalibration) -> Floats:
    """The probability that a list holds a candidate, from its share p of the list's items."""
    with np.errstate(divide="ignore"):
        log_p = np.log(probabilities)
    expected = np.exp(calibration.list_size + calibration.list_slope * log_p)
    return np.asarray(-np.expm1(-expected), np.float64)


def top_places(scores: AnyFloats, n: int) -> Integers:
    """The places of the n largest of each row, the largest first, the first of equal ones: [rows, n]."""
    n = min(n, scores.shape[1])
    if n == scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    bound = -np.partition(-scores, n - 1, axis=1)[:, n - 1 : n]  # the n-th largest of each row
    places = np.empty((len(scores), n), np.int64)
    for i, row in enumerate(scores):
        candidates = np.flatnonzero(row >= bound[i])
        places[i] = candidates[np.argsort(-row[candidates], kind="stable")][:n]
    return places


# --- numbers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberGuesses:
    """The means of rows [rows], and their quantiles at some shares [rows, shares]."""

    means: Floats
    quantiles: Floats


def number_guesses(column: NumberColumn, probabilities: Floats, shares: tuple[float, ...] = SHARES) -> NumberGuesses:
    """The mean and quantiles of a number.

    Args:
        column: What the candidates are as numbers.
        probabilities: That of each candidate, [rows, candidates].
        shares: The probability that lies below each quantile.

    Returns:
        The means, and the quantiles: within a bin all numbers are held to be equally probable.

    """
    known = np.flatnonzero(~np.isnan(column.mean))
    order = known[np.argsort(column.mean[known], kind="stable")]
    ordered = probabilities[:, order]
    ordered = ordered / np.maximum(ordered.sum(axis=1, keepdims=True), 1e-300)
    up_to = np.cumsum(ordered, axis=1)  # [rows, candidates]
    rows = np.arange(len(ordered))
    quantiles = np.empty((len(ordered), len(shares)))
    for s, share in enumerate(shares):
        place = np.minimum((up_to < share).sum(axis=1), len(order) - 1)  # [rows]
        inside = ordered[rows, place]
        below = up_to[rows, place] - inside
        part = np.clip((share - below) / np.maximum(inside, 1e-300), 0, 1)
        low, high = column.low[order[place]], column.high[order[place]]
        quantiles[:, s] = low + (high - low) * part
    return NumberGuesses(ordered @ column.mean[order], quantiles)


def _guess_of_row(column: NumberColumn, guesses: NumberGuesses, row: int) -> NumberGuess:
    def shown(number: float) -> float | str:
        return date_text(number) if column.is_date else number

    quantiles = zip(SHARES, guesses.quantiles[row].tolist(), strict=True)
    by_percent = {f"{share * 100:.0f}": shown(number) for share, number in quantiles}
    return NumberGuess(shown(float(guesses.means[row])), by_percent)


def _table_of_row(completer: Completer, rows: Mapping[str, object]) -> pa.Table:
    """The row as a table, without what it holds of the group."""
    schema = completer.encoder.schema
    hidden = schema.groups[completer.group].columns
    table_of_row(completer.encoder, rows, "row")  # whose columns are known
    used = schema.columns().keys() - set(hidden)
    known = {column: value for column, value in rows.items() if column in used and not is_missing(value)}
    groups_columns = {column for name in completer.given for column in schema.groups[name].columns}
    if not groups_columns & set(known):
        wanted = listed(sorted(groups_columns))
        raise UserError(f"row: holds nothing to complete {completer.group!r} by; it is found by the columns {wanted}")
    return table_of_row(completer.encoder, known, "row")
