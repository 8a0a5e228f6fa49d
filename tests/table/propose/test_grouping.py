"""Names of groups, merged numbers, copies, the column that names the rows."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest

from feat2vec.table.propose import propose
from tests.table.propose.columns import PAIR, ROWS, WORDS, fitted, proposed


def test_the_id_is_the_column_that_is_called_so() -> None:
    table = pa.table({"code": [f"c{i}" for i in range(ROWS)], "name": [f"n{i}" for i in range(ROWS)], **PAIR})
    assert proposed(table)[1].id == "code"
    assert proposed(table.drop_columns(["code"]))[1].id == "name"
    assert proposed(table.set_column(0, "code", pa.array(["c0"] * ROWS)))[1].id == "name"
    assert proposed(pa.table(PAIR))[1].id is None


def test_recodings_are_commented_out(tmp_path: Path) -> None:
    table = pa.table(
        {"code": [ord(kind) for kind in PAIR["kind"]], **PAIR, "Size": [2 * size for size in PAIR["size"]]}
    )
    text, schema = fitted(table, tmp_path / "encoded")
    assert list(schema.groups) == ["kind", "size"]  # what reads best, and then the first
    assert "  # code:   {column: code, extractor: lookup}  # tells what kind tells, one to one" in text
    assert list(proposed(table.select(["code", "kind"]))[1].groups) == ["code", "kind"]  # better than no schema


@pytest.mark.parametrize("is_text", [False, True])
def test_numbers_in_another_unit_are_commented_out(is_text: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    metres = np.where(rng.random(ROWS) < 0.1, np.nan, rng.gamma(3, 2, ROWS))
    columns = {"metres": metres, "feet": metres / 0.3048, "below": 9 - metres, "square": metres**2, **PAIR}
    source: object = pa.table({name: pa.array(column, from_pandas=True) for name, column in columns.items()})
    if is_text:
        source = str(tmp_path / "lengths.csv")
        arrow_csv.write_csv(pa.table({name: pa.array(c, from_pandas=True) for name, c in columns.items()}), source)
    text, schema = proposed(source)
    assert list(schema.groups) == ["metres", "square", "kind", "size"]
    assert text.count("# the numbers of metres, maybe in another unit") == 2
    text = propose(source, target="feet")
    assert {"#   metres: tells what feet tells, one to one", "#   below: tells what feet tells, one to one"} <= set(
        text.splitlines()
    )
    assert "#   square" not in text


def test_an_index_of_pandas_is_left_out() -> None:
    table = pa.table({"__index_level_0__": np.random.default_rng(0).permutation(ROWS), **PAIR})
    text, schema = proposed(table)
    assert schema.id is None
    assert list(schema.groups) == ["kind", "size"]
    assert "#   __index_level_0__: the index that pandas wrote beside the rows" in text


def test_keys_that_are_nearly_one_to_one_are_one() -> None:
    """Two films may have one title, and a few rows have none."""
    rng = np.random.default_rng(0)
    film = rng.integers(0, 300, 4000)
    title = [f"Film {chr(65 + number % 26)}{number // 2 if number < 10 else number}" for number in film.tolist()]
    table = {
        "movieId": film * 7,
        "title": [None if i % 200 == 0 else text for i, text in enumerate(title)],
        "user": rng.integers(0, 300, 4000),
        "studio": film % 200,
    }
    _, schema = proposed(pa.table(table))
    assert set(schema.groups) == {"title", "user", "studio"}
    table["title"] = [None if i % 20 == 0 else text for i, text in enumerate(title)]  # too often
    assert set(proposed(pa.table(table))[1].groups) == {"movieId", "user", "studio"}
    table["title"] = [f"{text} {i % 3}" for i, text in enumerate(title)]
    assert set(proposed(pa.table(table))[1].groups) == {"movieId", "title", "user", "studio"}


def test_the_same_dates_in_other_forms_are_one_group(tmp_path: Path) -> None:
    days = [datetime(2019, 3, 1) + timedelta(days=i) for i in range(ROWS)]
    table = {
        "epoch": [int(day.replace(tzinfo=timezone.utc).timestamp()) for day in days],
        "us": [None if i % 9 == 0 else f"{day:%m/%d/%Y}" for i, day in enumerate(days)],
        "sold": [f"{day:%Y-%m-%d}" for day in days],
        "shipped": [f"{day + timedelta(days=i % 3):%Y-%m-%d}" for i, day in enumerate(days)],
        **PAIR,
    }
    text, schema = fitted(pa.table(table), tmp_path / "encoded")
    assert set(schema.groups) == {"sold", "shipped", "kind", "size"}
    assert text.count("  # the same dates as sold\n") == 2
    _, schema = proposed(pa.table(table), "size")
    assert set(schema.groups) == {"sold", "sold_days", "shipped", "shipped_days", "kind"}
    table["at"] = [f"{day:%Y-%m-%d} {i % 24:02}:15" for i, day in enumerate(days)]
    text, schema = proposed(pa.table(table))
    assert set(schema.groups) == {"at", "shipped", "kind", "size"}
    assert "  # the days of at, which has the hours too\n" in text
    assert set(proposed(pa.table(table), "at")[1].groups) == {"shipped", "shipped_days", "kind", "size"}


def test_an_index_that_a_program_wrote_names_rows_only_where_nothing_else_does() -> None:
    titles = [f"Film {i:03}x" for i in range(ROWS)]
    for index in ("Unnamed: 0", "index", "rownames", "X", "row_number"):
        table = pa.table({index: range(ROWS), "title": titles, **PAIR})
        assert proposed(table)[1].id == "title"
        assert proposed(table.drop_columns(["title"]))[1].id == index
    assert proposed(pa.table({"film_id": range(ROWS), "title": titles, **PAIR}))[1].id == "film_id"


ADDRESSES: dict[str, list[Any]] = {
    "phone": [f"555-{1000 + i}" for i in range(ROWS)],
    "contact": [f"+49 30 {100_000 + 7919 * i}" for i in range(ROWS)],
    "isbn": [9_780_000_000_000 + 7 * i for i in range(ROWS)],
    "e_mail": [f"u{i}@mail.org" for i in range(ROWS)],
    "page": [f"https://films.example/{i}" for i in range(ROWS)],
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_title_is_a_better_id_than_an_address(name: str) -> None:
    titles = [f"The {WORDS[i % 12]} {WORDS[i % 7]} {i}" for i in range(ROWS)]
    table = pa.table({name: ADDRESSES[name], "title": titles, **PAIR})
    assert proposed(table)[1].id == "title"
    assert proposed(table.append_column("film_id", [[f"f{i}" for i in range(ROWS)]]))[1].id == "film_id"
    assert proposed(table.drop_columns(["title"]))[1].id == name
    assert proposed(table.drop_columns(["title"]).append_column("index", [range(ROWS)]))[1].id == name


def test_very_many_numbers_become_a_few_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = {f"sensor_{i}": rng.normal(size=ROWS) for i in range(42)} | {
        name: rng.normal(size=ROWS) for name in "xyz"
    }
    table = pa.table({"kind": PAIR["kind"], **numbers})
    _, schema = fitted(table, tmp_path / "encoded")
    assert {name: len(group.columns) for name, group in schema.groups.items()} == {
        "kind": 1,
        "sensor": 42,
        "numbers": 3,
    }
    assert schema.groups["sensor"].extractor == schema.groups["numbers"].extractor
    few = table.select([f"sensor_{i}" for i in range(12)])
    assert len(proposed(few)[1].groups) == 12
    only = pa.table({f"sensor_{i}": rng.normal(size=ROWS) for i in range(50)})
    assert len(proposed(only)[1].groups) == 50  # one group has nothing to learn from
