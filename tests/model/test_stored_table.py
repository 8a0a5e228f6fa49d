"""A table that stays in a model's file gives the rows of the one that is read at once."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from feat2vec.errors import UserError
from feat2vec.model import stored_table
from feat2vec.model.model_file import write_model
from feat2vec.model.stored_model import StoredModel
from feat2vec.model.stored_table import StoredTable, rows_of_file, squares_of
from feat2vec.writing import digests
from feat2vec.writing.digests import Pieces, digests_of_pieces
from tests.model.test_weights_file import encoder_of, random_model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_model(random_model("ranks"), tmp_path / "model.keras")
    return tmp_path / "model.keras"


def stored_model(path: Path, pieces: Pieces | None = None) -> StoredModel:
    return StoredModel(path, encoder_of(random_model("ranks")), sealed=True, pieces=pieces)


def tables_in_file(model: StoredModel, group: str) -> list[StoredTable] | None:
    with mock.patch.object(stored_table, "LEAST_STORED_BYTES", 0):
        return model.stored_tables(group)


def test_rows_are_those_of_the_table(path: Path) -> None:
    model = stored_model(path)
    assert model.stored_tables("tags") is None  # it is small
    tables, arrays = tables_in_file(model, "tags"), model.lookup("tags").tables
    assert tables is not None
    assert tables_in_file(model, "title") is None  # it is no lookup
    for table, array in zip(tables, arrays, strict=True):
        assert (len(table), table.shape, table.dtype, table.nbytes) == (
            len(array),
            array.shape,
            array.dtype,
            array.nbytes,
        )
        np.testing.assert_array_equal(np.asarray(table), array)
        np.testing.assert_array_equal(squares_of(table), squares_of(array))
        last = len(array) - 1
        for rows in (slice(None), slice(1, 2), slice(0, 0), slice(-1, None), slice(0, None, 2)):
            np.testing.assert_array_equal(table[rows], array[rows])
            np.testing.assert_array_equal(table.without_first(1)[rows], array[1:][rows])
        for numbers in (np.array([last, 0, last]), np.array([[0, -1], [last, 0]]), np.zeros(0, np.int64)):
            np.testing.assert_array_equal(table[numbers], array[numbers])
            if last:
                later = numbers % last
                np.testing.assert_array_equal(table.without_first(1, 2)[later], 2 * array[1:][later])
        blocks = list(table.blocks(8))
        np.testing.assert_array_equal(np.concatenate([values for _, values in blocks]), array)
        assert len(blocks) == len(array)
    assert rows_of_file(arrays[0]) is None


def test_a_row_is_read_without_the_rest_of_the_file(path: Path) -> None:
    size = path.stat().st_size
    with mock.patch.object(digests, "BLOCK_BYTES", 8):
        pieces = Pieces(digests_of_pieces(path), 8)
    tables = tables_in_file(stored_model(path, pieces), "tags")
    assert tables is not None
    table: StoredTable = tables[0]
    array = np.asarray(stored_model(path).lookup("tags").tables[0])
    place = path.read_bytes().index(array.tobytes())
    damaged = bytearray(path.read_bytes())
    damaged[place + array.nbytes - 1] ^= 1  # of the last row
    path.write_bytes(damaged)
    np.testing.assert_array_equal(table[:1], array[:1])
    with pytest.raises(UserError, match=r"model\.keras: is not the file that this run was trained with; restore"):
        table[-1:]
    assert size == path.stat().st_size
