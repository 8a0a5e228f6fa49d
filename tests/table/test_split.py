"""`split`: which rows are on which side, with their types, and what is refused."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.recipes.recipe import Split
from feat2vec.recipes.rows import _split
from feat2vec.table import split as split_module
from feat2vec.table.split import split, write_split
from feat2vec.table.table import open_table
from tests.commands import feat2vec as command


def rows(path: Path) -> list[int]:
    values: list[int] = pq.read_table(path)["n"].to_pylist()
    return values


def numbered(total: int) -> pa.Table:
    return pa.table({"n": pa.array(range(total), pa.int64())})


def test_each_row_is_on_one_side_in_its_order(tmp_path: Path) -> None:
    parts = split(numbered(1000), tmp_path / "parts", 0.3, seed=4)
    train, test = rows(parts.train), rows(parts.test)
    assert (parts.train_rows, parts.test_rows) == (len(train), len(test)) == (700, 300)
    assert sorted(train + test) == list(range(1000))
    assert train == sorted(train)
    assert test == sorted(test)
    again = split(numbered(1000), tmp_path / "again", 0.3, seed=4)
    assert rows(again.test) == test
    assert rows(split(numbered(1000), tmp_path / "other", 0.3, seed=5).test) != test


def test_the_draw_is_that_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    tables = _split(Split(test=0.2, seed=3), open_table(numbered(100)), tmp_path / "recipe")
    assert rows(split(numbered(100), tmp_path / "parts", 0.2, seed=3).test) == rows(Path(tables["test"].name))


def test_rows_in_several_row_groups_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(numbered(5000), tmp_path / "n.parquet", row_group_size=700)
    monkeypatch.setattr("feat2vec.table.table.BATCH_ROWS", 500)
    monkeypatch.setattr(split_module, "BYTES_PER_ROW_GROUP", 3000)
    parts = split(tmp_path / "n.parquet", tmp_path / "parts", 0.5)
    assert sorted(rows(parts.train) + rows(parts.test)) == list(range(5000))
    assert pq.read_metadata(parts.train).num_row_groups > 2


def test_types_are_kept(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": pa.array(["01", "2", None, "x"] * 5).dictionary_encode(),
            "day": pa.array([date(2020, 1, 1 + i) for i in range(20)]),
            "tags": pa.array([["a", "b"], None] * 10),
            "flag": pa.array([True, None] * 10),
            "point": pa.array([{"x": 1}] * 20),
        }
    )
    parts = split(table, tmp_path / "parts")
    read = pq.read_table(parts.train)
    kinds = {"text": pa.string(), "day": pa.date32(), "tags": pa.list_(pa.string()), "flag": pa.bool_()}
    kinds["point"] = pa.struct({"x": pa.int64()})
    assert dict(zip(read.schema.names, read.schema.types, strict=True)) == kinds
    assert open_table(parts.train).typed
    assert parts.left_out == ()


def test_columns_that_feat2vec_does_not_read_are_carried_along(tmp_path: Path) -> None:
    table = pa.table(
        {
            "n": range(10),
            "bytes": pa.array([b"\xcd", None] * 5),
            "span": pa.array(range(10), pa.duration("us")),
            "pair": pa.array([{"x": 1, "y": "a"}] * 10),
            "time": pa.array(range(10), pa.time64("us")),
            "moment": pa.array([2**62, 0] * 5, pa.timestamp("us")),
        }
    )
    pq.write_table(table, tmp_path / "odd.parquet")
    parts = split(tmp_path / "odd.parquet", tmp_path / "parts", by="n")
    assert pq.read_table(parts.test).drop_columns(["n"]) == table.slice(8).drop_columns(["n"])
    assert parts.left_out == ()
    frame = pd.DataFrame({"n": range(10), "mixed": [1, "a"] * 5})
    assert split(frame, tmp_path / "objects").left_out == ("mixed",)


def test_numbers_of_a_csv_are_numbers_for_others_and_the_same_text_for_feat2vec(tmp_path: Path) -> None:
    lines = [f"{i},{i}.0,{i / 4:.2f},{i / 4:g},0{i},+{i},{'NA' if i == 3 else i}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["id,rating,price,size,zip,phone,gaps", *lines]))
    parts = split(tmp_path / "t.csv", tmp_path / "parts", by="id")
    kinds = {name: str(dtype)[:3] for name, dtype in pd.read_parquet(parts.train).dtypes.items()}
    text = kinds["zip"]
    assert text not in ("int", "flo")
    assert kinds == {
        "id": "int", "rating": "flo", "price": "flo", "size": "flo", "zip": text, "phone": text, "gaps": "flo"
    }  # fmt: skip
    table = open_table(parts.train)
    assert not table.typed
    assert set(table.columns.values()) == {pa.string()}
    again = [row for batch in table.batches() for row in batch.data.to_pylist()]
    expected = [row for batch in open_table(tmp_path / "t.csv").batches() for row in batch.data.to_pylist()]
    expected[3]["gaps"] = None
    assert again == expected[:16]
    assert open_table(pq.read_table(parts.train)).columns == table.columns  # the metadata go with the rows


def test_the_parts_of_a_csv_are_encoded_as_the_csv_and_a_frame_of_them_as_numbers(tmp_path: Path) -> None:
    lines = [f"{i % 4},{i / 8:.2f},0{i % 3},{i / 4:g}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["shop,price,zip,size", *lines]))
    (tmp_path / "test.csv").write_text("\n".join(["shop,price,zip,size", *lines[32:]]))
    parts = split(tmp_path / "t.csv", tmp_path / "parts", 0.2, by="size")
    groups = {name: {"column": name} for name in ("shop", "zip")}
    groups |= {name: {"column": name, "extractor": "numeric"} for name in ("price", "size")}
    schema = feat2vec.read_schema({"version": 1, "groups": groups})
    encoder = feat2vec.fit(schema, parts.train).encoder
    expected = next(encoder.entries(tmp_path / "test.csv"))
    for rows_to_read in (parts.test, pd.read_parquet(parts.test)):
        entries = next(encoder.entries(rows_to_read))
        for name, of_group in entries.items():
            np.testing.assert_array_equal(of_group.rows, expected[name].rows)
    assert encoder.decode("shop", np.array([[2]])) == [["0"]]


def test_text_of_a_csv_that_is_no_number_stays_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("code,size\n" + "".join(f"0{i},{i}.5\n" for i in range(40)))
    parts = split(tmp_path / "t.csv", tmp_path / "parts")
    table = open_table(parts.train)
    assert not table.typed
    assert table.columns == {"code": pa.string(), "size": pa.string()}
    assert pq.read_table(parts.train)["code"][0].as_py().startswith("0")
    groups = {"code": {"column": "code"}, "size": {"column": "size", "extractor": "numeric"}}
    encoded = feat2vec.fit(feat2vec.read_schema({"version": 1, "groups": groups}), parts.train)
    assert len(encoded) == parts.train_rows == 32


def test_the_latest_rows_are_the_test_part_and_ties_stay_together(tmp_path: Path) -> None:
    years = np.array([2000, 2005, 2001, 2005, 2005, 2002, 2003, 2004, 2001, 2000])
    table = pa.table({"n": range(12), "year": pa.array([*years.tolist(), None, None])})
    parts = split(table, tmp_path / "parts", 0.2, by="year")  # 2 of 10: the nearest bound gives 3, all of 2005
    assert rows(parts.test) == [1, 3, 4]
    assert (parts.first_test_value, parts.without_value) == ("2005", 2)
    assert rows(split(table, tmp_path / "more", 0.42, by="year").test) == [1, 3, 4, 7]


def test_dates_of_text_are_in_the_order_of_time(tmp_path: Path) -> None:
    days = [f"2020-{month:02}-{day:02}" for month in (12, 2) for day in range(1, 11)]
    (tmp_path / "t.csv").write_text("n,day\n" + "".join(f"{i},{day}\n" for i, day in enumerate(days)))
    parts = split(tmp_path / "t.csv", tmp_path / "parts", 0.25, by="day")
    assert pq.read_table(parts.test)["day"].to_pylist() == [f"2020-12-{day:02}" for day in range(6, 11)]
    assert parts.first_test_value == "2020-12-06"
    times = pa.table({"n": [0, 1], "at": pa.array([0, 90_061_000_000], pa.timestamp("us"))})
    assert split(times, tmp_path / "times", 0.5, by="at").first_test_value == "1970-01-02T01:01:01"


@pytest.mark.parametrize(
    ("texts", "latest", "told"),
    [
        (["31.12.2018", "01.05.2018", "02.05.2018", "03.06.2017"], 0, "2018-12-31"),
        (["March 01, 2018", "April 02, 2017", "May 15, 2016", "June 1, 2015"], 0, "2018-03-01"),
        (["09:30", "13:05", "NA", "10:00"], 1, "13:05:00"),
        (["12/31/2017 1:05 PM", "5/1/2018 10:05 AM", "", "5/1/2016 10:05 AM"], 1, "2018-05-01T10:05:00"),
    ],
)
def test_dates_may_be_written_in_any_form_that_init_reads(
    texts: list[str], latest: int, told: str, tmp_path: Path
) -> None:
    lines = "".join(f'{i},"{text}"\n' for i, text in enumerate(texts))
    (tmp_path / "t.csv").write_text(f"n,at\n{lines}")
    parts = split(tmp_path / "t.csv", tmp_path / "parts", 0.25, by="at")
    assert rows(parts.test) == [latest]
    assert parts.first_test_value == told


def test_an_earlier_split_is_replaced_with_force_alone(tmp_path: Path) -> None:
    out = tmp_path / "parts"
    split(numbered(10), out)
    with pytest.raises(UserError, match=r"exists already; .* add force=True to replace it"):
        split(numbered(10), out)
    split(numbered(20), out, force=True)
    assert len(rows(out / "train.parquet")) == 16
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt, which feat2vec did not write"):
        split(numbered(20), out, force=True)
    assert (out / "notes.txt").read_text() == "mine"
    (out / "notes.txt").unlink()
    with pytest.raises(UserError, match=r"lies in .*parts, which is replaced"):
        split(out / "train.parquet", out, force=True)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a percentage": ({"test": 20}, "--test: expected a share of the rows between 0 and 1, such as 0.2; received 20"),
    "nothing": ({"test": 0.0}, "--test: expected a share"),
    "no number": ({"test": "a"}, "--test: expected a share"),
    "seed": ({"seed": -1}, "--seed: expected a whole number from 0; received -1"),
    "too few": ({"test": 0.01}, "has 5 rows; 0.01 of them leave none on one side; give more rows"),
    "no column": ({"by": "dya"}, "no column 'dya'; did you mean 'day'?"),
    "text": (
        {"by": "name"},
        "column 'name': received 'a'; a number or a date is needed\n--by: takes a column of dates",
    ),
    "lists": ({"by": "tags"}, "column 'tags' holds lists"),
    "one value": ({"by": "same"}, "column 'same' has one value, 7, in all rows; name another for --by"),
    "no value": ({"by": "void"}, "column 'void' has no value in all rows"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str, tmp_path: Path) -> None:
    options, message = MISTAKES[mistake]
    table = pa.table(
        {
            "day": [1, 2, 3, 4, 5],
            "name": ["a", "b", "c", "d", "e"],
            "tags": [["a"]] * 5,
            "same": [7] * 5,
            "void": pa.nulls(5, pa.float64()),
        }
    )
    with pytest.raises(UserError) as error:
        split(table, tmp_path / "parts", **options)
    assert message.replace("--", "") in str(error.value)
    with pytest.raises(UserError) as error:
        write_split(table, tmp_path / "parts", **{"test": 0.2, "by": None, "seed": 0, "force": False, **options})
    assert message in str(error.value)
    assert not (tmp_path / "parts").exists()


def test_the_command_prints_the_files_and_what_is_next(tmp_path: Path) -> None:
    lines = "".join(f"d{i % 3},{2000 + i}\n" for i in range(10)) + "d1,\n"
    (tmp_path / "films.csv").write_text("director,year\n" + lines)
    done = command("split", "films.csv", "--by", "year", "--out", "parts", folder=tmp_path)
    assert done.stdout.splitlines() == [
        "parts/train.parquet: 9 rows, 1 of them without a value of year",
        "parts/test.parquet: 2 rows, from year 2008 on",
        "next: feat2vec init parts/train.parquet -o schema.yaml",
    ]
    command("init", "parts/train.parquet", "-o", "schema.yaml", folder=tmp_path)
    printed = command("split", "films.csv", "--out", "parts", "--force", "--json", folder=tmp_path).stdout
    assert json.loads(printed)["test_rows"] == 2
    done = command("split", "films.csv", "--out", "parts", "--test", 2, folder=tmp_path, code=2)
    assert len(done.stderr.splitlines()) == 1
