"""The data sets that come with the package."""

from __future__ import annotations

import pyarrow as pa

from feat2vec.table.table import open_table
from tests.table.tables import S, rows


def test_bundled_artworks() -> None:
    table = open_table("dataset:artworks")
    assert table.typed
    assert table.columns == {"id": pa.int64(), "artist": S, "title": S, "medium": S, "year": pa.int64()}
    read = rows(table)
    assert len(read) == 4284
    assert read[1] == {
        **{"id": 20472, "artist": "Auerbach, Frank", "title": "Michael", "medium": "Etching on paper", "year": 1990}
    }
