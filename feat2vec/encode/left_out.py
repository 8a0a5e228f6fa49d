"""Rows of a table that nothing is learnt from: their places, and what is read of an array without them.

The encoded rows stay as they are on the disk; a training reads them by way of `LeftOut.take`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from feat2vec.arrays import Array, Int64s
from feat2vec.encode.arrays_on_disk import ROWS_PER_PIECE, ArrayFile, open_array, release_pages

LEFT_OUT = "left_out.npy"  # in a folder of encoded rows: those without a target
NO_ROWS: Int64s = np.zeros(0, np.int64)


class LeftOut:
    """Rows that are left out. The other rows, which are kept, are counted from 0 in the order of the table.

    Args:
        places: The numbers of the rows that are left out, ascending, [rows left out]. It may be memory-mapped.

    """

    def __init__(self, places: Int64s = NO_ROWS) -> None:
        self.places = places

    def __len__(self) -> int:
        """The number of rows that are left out."""
        return len(self.places)

    def row(self, kept: int) -> int:
        """The row of the table that is the kept row of this number."""
        # places[i] - i rows are kept before the i-th that is left out
        return kept + bisect_right(range(len(self.places)), kept, key=lambda i: int(self.places[i]) - i)

    def take(self, array: Array, start: int, stop: int) -> Array:
        """The kept rows from `start` to `stop` of an array that has all rows, [stop - start, ...]."""
        if not len(self.places) or start >= stop:
            return array[start:stop]
        first, end = self.row(start), self.row(stop - 1) + 1
        from_place, to_place = np.searchsorted(self.places, [first, end])
        kept: Array = np.delete(array[first:end], self.places[from_place:to_place] - first, axis=0)
        return kept

    def pieces(self, array: Array, rows_per_piece: int = ROWS_PER_PIECE) -> Iterator[Array]:
        """The kept rows of an array in pieces, as it may be larger than memory."""
        rows = len(array) - len(self)
        for start in range(0, rows, rows_per_piece):
            yield self.take(array, start, min(start + rows_per_piece, rows))
            release_pages(array)

    def all_of(self, array: Array) -> Array:
        """All kept rows of an array: the array itself if nothing is left out."""
        return self.take(array, 0, len(array) - len(self))

    def with_more(self, places: Int64s, path: Path, rows_per_piece: int = ROWS_PER_PIECE) -> LeftOut:
        """These rows and more of them.

        Args:
            places: The numbers of more rows, ascending.
            path: The file for both, which must be new. There is none if nothing was left out before.
            rows_per_piece: How many of the rows that are left out already are in memory at once.

        """
        if not len(self.places):
            return LeftOut(places)
        file = ArrayFile(path, np.int64)
        done = 0  # of `places`
        for start in range(0, len(self.places), rows_per_piece):
            piece = np.asarray(self.places[start : start + rows_per_piece])
            end = int(np.searchsorted(places, piece[-1], side="right"))
            file.append(np.union1d(piece, places[done:end]))
            done = end
        file.append(places[done:])
        file.close()
        return LeftOut(open_array(path))
