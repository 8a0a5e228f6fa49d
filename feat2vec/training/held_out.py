"""Rows that training splits off: at random, to choose the epoch by their loss (`training.validation`), and the last.

The last rows by `training.time` say how rows are completed that are later than all that was learnt from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from feat2vec.arrays import Int64s
from feat2vec.encode.arrays_on_disk import ROWS_PER_PIECE
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.hashing import row_order
from feat2vec.encode.left_out import LeftOut
from feat2vec.encode.time_order import tells_time, times_of_values
from feat2vec.errors import UserError

LEAST_ROWS = 200  # of a table that rows are split off: the loss of a tenth of fewer says little
MOST_HELD_OUT = 20_000
MOST_REFITTED = 50_000  # rows of a table that is learnt from the beginning with the rows that were held out
LEAST_LATER = 20  # last rows, of which something can be fitted
LEAST_DRAWS = 4_000  # held-out rows that are compared with noise, each of them anew as often as that takes
MOST_REPEATS = 16  # of a held-out row


@dataclass(frozen=True)
class Split:
    """The rows of a table in two parts.

    Args:
        learnt: The rows that are learnt from; the others are left out of them.
        held_out: The rows that the loss is measured on, in memory. Where noise is drawn, and the loss chooses an
            epoch, few rows stand there several times: each time another group of theirs is compared with other values,
            so that chance counts less.
        places: Their numbers in the table, ascending, each once.
        later: The numbers of the last rows, which are held out as well, ascending; none without `training.time`.

    """

    learnt: Encoded
    held_out: Encoded
    places: Int64s
    later: Int64s


def split_off(rows: Encoded, path: Path) -> Split | None:
    """Split rows off, as many as the schema says; None for none.

    The encoder knows the values of all rows. Noise draws those of the rows that are learnt from.

    Args:
        rows: All rows, as they are encoded.
        path: A new file for the numbers of the rows that are not learnt from, if some have no target.

    """
    if why_none_is_held_out(rows) is not None:
        return None
    schema = rows.encoder.schema
    places, later = split_places(rows)
    is_noisy = schema.objective.needs_noise and schema.patience > 0  # a loss by which an epoch is chosen
    repeats = min(-(-LEAST_DRAWS // len(places)), MOST_REPEATS) if is_noisy else 1
    learnt = rows.without(np.union1d(places, later), path)
    return Split(learnt, rows.only(np.tile(places, repeats)), places, later)


def split_places(rows: Encoded) -> tuple[Int64s, Int64s]:
    """The numbers of the rows that are held out at random, and of the last rows; both are ascending."""
    training = rows.encoder.schema.training
    later = later_places(rows) if is_learnt_again(rows) else np.zeros(0, np.int64)
    if not len(later):
        return held_out_places(rows, training.validation, training.seed), later
    earlier = replace(rows, left_out=LeftOut(np.union1d(rows.left_out.places, later)))
    return held_out_places(earlier, training.validation, training.seed), later


def is_learnt_again(rows: Encoded) -> bool:
    """Whether a second training learns from all rows; without it, the last ones would not be learnt."""
    refit = rows.encoder.schema.training.refit
    return refit == "continue" or (refit and rows.learnt_rows <= MOST_REFITTED)


def later_places(rows: Encoded, most: int = MOST_HELD_OUT, rows_per_piece: int = ROWS_PER_PIECE) -> Int64s:
    """The last rows by `training.time`, about as many as are held out at random; ascending.

    All rows of a time are held out or none: so there are up to twice as many, or fewer, and none where the last time
    has more rows than that.

    Args:
        rows: All rows.
        most: The largest number of rows that is aimed at.
        rows_per_piece: How many rows are in memory at once.

    Raises:
        UserError: If no value of the group tells a time.

    """
    training, no_rows = rows.encoder.schema.training, np.zeros(0, np.int64)
    if training.time is None:
        return no_rows
    if not tells_time(rows.encoder, training.time):
        raise UserError(
            f"training.time: no value of {training.time!r} is a number, a year or a date, which would tell when a row"
            " came; name another group, or remove it"
        )
    times = times_of_values(rows.encoder, training.time, rows.values[training.time].entries)
    group = list(rows.values).index(training.time)
    counts = _counts_of_values(rows, group, len(times), rows_per_piece)
    wanted = min(round(training.validation * rows.learnt_rows), most)
    distinct, place_of_value = np.unique(times[~np.isnan(times)], return_inverse=True)
    rows_of_time = np.bincount(place_of_value, counts[~np.isnan(times)], len(distinct))
    from_time = np.cumsum(rows_of_time[::-1])[::-1]  # rows of each time and of later ones
    times_of_few = distinct[from_time <= 2 * wanted]
    enough = distinct[from_time >= wanted]
    if not len(times_of_few):
        return no_rows
    first = max(times_of_few[0], enough[-1]) if len(enough) else times_of_few[0]
    if from_time[distinct == first][0] < LEAST_LATER:
        return no_rows
    is_last = np.append(times >= first, False)  # [values], then for rows without the group; NaN is not
    parts = [no_rows]
    for start in range(0, len(rows), rows_per_piece):
        parts.append(start + np.flatnonzero(is_last[rows.rows[start : start + rows_per_piece, group]]))
    return np.setdiff1d(np.concatenate(parts), rows.left_out.places)


def _counts_of_values(rows: Encoded, group: int, values: int, rows_per_piece: int) -> Int64s:
    """How many of the rows that are not left out have each value of a group, [values].

    The counts of a value table are those of the rows that its encoder was fitted to, which may be others.
    """
    counts = np.zeros(values, np.int64)
    for piece in rows.left_out.pieces(rows.rows, rows_per_piece):  # [rows of the piece, groups]
        value_ids = piece[:, group]
        counts += np.bincount(value_ids[value_ids >= 0], minlength=values)
    return counts


def why_none_is_held_out(rows: Encoded) -> str | None:
    """Why no rows are split off; None if some are."""
    schema = rows.encoder.schema
    if not schema.training.validation:
        return "training.validation is 0"
    if schema.objective.why_none_is_held_out is not None:
        return schema.objective.why_none_is_held_out
    if rows.learnt_rows < LEAST_ROWS:
        return f"{rows.learnt_rows:,} are fewer than {LEAST_ROWS}"
    return None


def held_out_places(
    rows: Encoded, share: float, seed: int, most: int = MOST_HELD_OUT, rows_per_piece: int = ROWS_PER_PIECE
) -> Int64s:
    """The rows that come first in the order of the seed, of those that are not left out already, ascending.

    Args:
        rows: All rows.
        share: The share of rows that are held out.
        seed: The seed. It and a row's number alone decide where a row stands in the order.
        most: The largest number of rows.
        rows_per_piece: How many rows are in memory at once.

    """
    count = min(round(share * rows.learnt_rows), most)
    first, order = np.zeros(0, np.int64), np.zeros(0, np.uint64)
    for start in range(0, len(rows), rows_per_piece):
        stop = min(start + rows_per_piece, len(rows))
        from_place, to_place = np.searchsorted(rows.left_out.places, [start, stop])
        piece = np.delete(np.arange(start, stop), rows.left_out.places[from_place:to_place] - start)
        first, order = np.append(first, piece), np.append(order, row_order(piece, seed))
        if len(first) > count:
            chosen = np.argpartition(order, count)[:count]
            first, order = first[chosen], order[chosen]
    return np.sort(first)
