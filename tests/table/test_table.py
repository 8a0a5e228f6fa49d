"""Tables of several parts: row numbers, sizes of batches, columns of all files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feat2vec.errors import UserError
from feat2vec.table.table import Batch, Table, marked, open_table, stages
from tests.table.tables import ARROW, S, refuse, rows, write


def places(table: Table) -> Iterator[tuple[str, Any]]:
    for batch in table.batches():
        for i, row in enumerate(batch.data.to_pylist()):
            yield batch.row(i), row["a"]


def test_row_numbers_across_files_and_batches(tmp_path: Path) -> None:
    n = 2**17 + 5
    write(tmp_path / "1.csv", "a,b\n" + "".join(f"{i},x\n" for i in range(1, n + 1)))
    write(tmp_path / "2.csv", "b,a\nx,1\ny,2\n")
    seen = list(places(open_table(tmp_path)))
    assert len(seen) == n + 2
    assert seen[:n] == [(f"{tmp_path}/1.csv: row {i}", str(i)) for i in range(1, n + 1)]
    assert seen[n:] == [(f"{tmp_path}/2.csv: row 1", "1"), (f"{tmp_path}/2.csv: row 2", "2")]


def test_batches_are_of_a_size() -> None:
    many = pa.table({"a": pa.chunked_array([[i] for i in range(3000)])})
    assert [batch.data.num_rows for batch in open_table(many).batches()] == [3000]
    long = pa.table({"a": pa.array(np.arange(300_000))})
    assert [(batch.data.num_rows, batch.first_row) for batch in open_table(long).batches()] == [
        (2**17, 0),
        (2**17, 2**17),
        (300_000 - 2**18, 2**18),
    ]
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2**25, np.float32)), 2**12)
    assert max(batch.data.nbytes for batch in open_table(pa.table({"a": wide})).batches()) <= 2**26
    assert Batch(pa.record_batch({"a": [1]}), "films.csv", 16).row(0) == "films.csv: row 17"


def test_files_with_other_types_or_columns(tmp_path: Path) -> None:
    def write_table(name: str, **columns: object) -> None:
        pq.write_table(pa.table(columns), tmp_path / name)

    write_table("1.parquet", a=pa.array([1, 2]), b=pa.nulls(2), c=pa.array([[1]] * 2))
    write_table("2.parquet", c=pa.array([[0.5]]), b=pa.array(["x"]), a=pa.array([0.5]))
    table = open_table(tmp_path)
    assert table.columns == {"a": pa.float64(), "b": S, "c": pa.list_(pa.float64())}
    assert rows(table)[1:] == [{"a": 2.0, "b": None, "c": [1.0]}, {"a": 0.5, "b": "x", "c": [0.5]}]
    write_table("3.parquet", a=["1"], b=["x"], c=[[1]])
    refuse(tmp_path, r"3\.parquet: column 'a' is of type string, but double in the files before it, of which .*1\.parq")
    write_table("3.parquet", aa=[1], b=["x"], c=[[1]])
    refuse(tmp_path, r"3\.parquet: has no column 'a', which .*1\.parquet has; did you mean 'aa'")
    write_table("3.parquet", a=[1], b=["x"], c=[[1]], d=[1])
    refuse(tmp_path, r"1\.parquet: has no column 'd', which .*3\.parquet has")


def test_columns_that_are_not_there() -> None:
    table = open_table(ARROW)
    with pytest.raises(UserError, match="the table: no column 'titel'; did you mean 'title'"):
        table.batches(["titel"])
    with pytest.raises(UserError, match="the table: no column 'xyz'; it has 'title', 'votes'"):
        table.batches(["xyz"])
    with pytest.raises(UserError, match="no column is asked for"):
        table.batches([])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files with two rows each."""
    for i in range(3):
        write(tmp_path / f"{i}.csv", f"a,b\n{i},x\n{i},y\n")
    return tmp_path


def test_all_rows_come_in_one_stage_if_they_are_few(folder: Path) -> None:
    (stage,) = stages(open_table(folder), ["a"])
    assert stage.rows == 6
    assert stage.column("a").to_pylist() == ["0", "0", "1", "1", "2", "2"]
    assert stage.row(3) == f"{folder}/1.csv: row 2"


@pytest.mark.parametrize(("limits", "rows"), [({"max_rows": 4}, [4, 2]), ({"max_rows": 1}, [2] * 3)])
def test_batches_are_not_split(limits: dict[str, Any], rows: list[int], folder: Path) -> None:
    assert [stage.rows for stage in stages(open_table(folder), ["a"], **limits)] == rows
    assert [stage.rows for stage in stages(open_table(folder), ["a"], max_bytes=1)] == [2] * 3


def test_a_column_that_the_table_has_not_is_missing(folder: Path) -> None:
    (stage,) = stages(open_table(folder), ["a"])
    assert stage.column("c").null_count == 6


def test_a_value_is_refused_with_its_place(folder: Path) -> None:
    (stage,) = stages(open_table(folder), ["a"])
    with pytest.raises(UserError, match=r"2\.csv: row 1: column 'a': received '2'; a date is needed$"):
        stage.refuse(4, "a", "2", "a date is needed")


def test_rows_of_a_file_without_types_are_read_as_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("size,who\n1.5,a\nNA,b\n", encoding="utf-8")
    file = open_table(tmp_path / "t.csv")
    rows = pa.table({"size": ["1.5", "NA"]})
    assert open_table(rows).typed
    assert not open_table(marked(rows, file).slice(1)).typed
    assert open_table(marked(rows, open_table(rows))).typed
