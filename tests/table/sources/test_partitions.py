"""Folders that tell a column, such as `year=2020`."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from feat2vec.table.table import open_table
from tests.table.tables import column, refuse, rows


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_a_folder_called_like_a_column_says_nothing_of_one_file(ending: str, tmp_path: Path) -> None:
    folder = tmp_path / "year=1900" / "a=zz"
    folder.mkdir(parents=True)
    (folder / f"x.{ending}").write_text('{"a": "p", "year": 1}\n' if ending == "jsonl" else '[{"a": "p", "year": 1}]')
    (batch,) = open_table(folder / f"x.{ending}").batches()
    assert batch.data.to_pylist() == [{"a": "p", "year": 1}]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_folders_that_tell_a_column(form: str, tmp_path: Path) -> None:
    for i, folder in enumerate(["year=2020/city=A%2FB", "year=2021/city=__HIVE_DEFAULT_PARTITION__"]):
        (tmp_path / folder).mkdir(parents=True)
        frame = pl.DataFrame({"a": [f"{i}", f"{i}0"]})
        getattr(frame, f"write_{form}")(tmp_path / folder / f"part.{form}")
    told = [("0", "2020", "A/B"), ("00", "2020", "A/B"), ("1", "2021", None), ("10", "2021", None)]
    for source in (tmp_path, f"{tmp_path}/**/*.{form}", f"{tmp_path}/*/*/*.{form}"):
        assert [tuple(row.values()) for row in rows(source, ["a", "year", "city"])] == told
        assert column(source, "year") == ["2020", "2020", "2021", "2021"]
    one = tmp_path / "year=2020" / "city=A%2FB" / f"part.{form}"
    assert rows(one) == [{"a": "0"}, {"a": "00"}]
    getattr(pl.DataFrame({"year": ["x"]}), f"write_{form}")(one)
    refuse(tmp_path, "column 'year' is in the file and in its folder's name: rename one of them")
    one.unlink()
    getattr(pl.DataFrame({"a": ["x"]}), f"write_{form}")(tmp_path / f"other.{form}")
    refuse(tmp_path, "has no column 'year', which .*year=2021.* has|has no column 'city'")
