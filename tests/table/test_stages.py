"""Stages of bounded size, and where their rows stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from feat2vec.errors import UserError
from feat2vec.table.stages import stages
from feat2vec.table.table import open_table
from tests.table.tables import write


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
def test_batches_are_not_split(limits: dict[str, int], rows: list[int], folder: Path) -> None:
    assert [stage.rows for stage in stages(open_table(folder), ["a"], **limits)] == rows
    assert [stage.rows for stage in stages(open_table(folder), ["a"], max_bytes=1)] == [2] * 3


def test_a_column_that_the_table_has_not_is_missing(folder: Path) -> None:
    (stage,) = stages(open_table(folder), ["a"])
    assert stage.column("c").null_count == 6


def test_a_value_is_refused_with_its_place(folder: Path) -> None:
    (stage,) = stages(open_table(folder), ["a"])
    with pytest.raises(UserError, match=r"2\.csv: row 1: column 'a': received '2'; a date is needed$"):
        stage.refuse(4, "a", "2", "a date is needed")
