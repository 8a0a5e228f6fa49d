"""A table with its missing values filled in, and the command that does so."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.cli.completing import complete
from feat2vec.errors import UserError, naming_options
from feat2vec.space.fillers import probability_around
from feat2vec.space.filling import why_not_filled
from feat2vec.space.hidden_group import NumberColumn
from tests.commands import feat2vec as command
from tests.space.completed_films import films


def with_gaps(rows: int = 200) -> pa.Table:
    """Films with further columns, a fifth of whose values are missing."""
    table, rng = films(rows, seed=11), np.random.default_rng(0)
    for i, name in enumerate(table.column_names):
        gaps, column = pa.array(rng.random(rows) < 0.2), table[name].combine_chunks()
        table = table.set_column(i, name, pc.if_else(gaps, pa.scalar(None, column.type), column))
    return table.append_column("note", pa.array([f"n{i}" for i in range(rows)]))


def test_only_missing_values_are_filled_and_only_probable_ones(completed_run: feat2vec.Run, tmp_path: Path) -> None:
    table, at_least = with_gaps(), 0.6
    counts = completed_run.fill(table, tmp_path / "filled.parquet", at_least=at_least)
    filled = pq.read_table(tmp_path / "filled.parquet")
    expected = [
        "director", "director_probability", "genre", "genre_probability", "actors", "actors_probability", "year",
        "year_probability", "note",
    ]  # fmt: skip
    assert filled.column_names == expected
    assert counts.rows == len(table) == len(filled)
    guesses = completed_run.complete(table, "director", n=1)
    years = completed_run.complete(table, "decade")
    for i, (before, after) in enumerate(zip(table.to_pylist(), filled.to_pylist(), strict=True)):
        for name in ("director", "genre", "year", "note"):
            assert before[name] is None or after[name] == before[name]
            assert after.get(f"{name}_probability") is None or before[name] is None
            assert (after.get(f"{name}_probability") or 1) >= at_least
        if before["director"] is None:
            ((key, probability),) = guesses[i].values or ((None, 0.0),)
            assert after["director"] == (key if probability >= at_least else None)
            assert after["director_probability"] == (pytest.approx(probability) if probability >= at_least else None)
        if before["year"] is None and after["year"] is not None:
            assert after["year"] == round(float(years[i].numbers["year"].mean))
    for name in ("director", "genre", "year"):
        assert counts.missing[name] == table[name].null_count
        assert counts.filled[name] == table[name].null_count - filled[name].null_count > 0
    truth = films(len(table), seed=11)["director"].to_pylist()
    of_guesses = [
        (after["director"], true)
        for after, true in zip(filled.to_pylist(), truth, strict=True)
        if after["director_probability"] is not None and true is not None
    ]
    assert np.mean([guess == true for guess, true in of_guesses]) > 0.8


def test_lists_hold_what_is_probable_enough(completed_run: feat2vec.Run, tmp_path: Path) -> None:
    counts = completed_run.fill(with_gaps(), tmp_path / "filled.parquet", ["actors"], at_least=0.2)
    rows = [row for row in pq.read_table(tmp_path / "filled.parquet").to_pylist() if row["actors_probability"]]
    assert len(rows) == counts.filled["actors"] > 10
    for row in rows:
        assert len(row["actors"]) == len(row["actors_probability"])
        assert row["actors_probability"] == sorted(row["actors_probability"], reverse=True)
        assert min(row["actors_probability"]) >= 0.2


def test_columns_that_the_table_lacks_and_text(completed_run: feat2vec.Run, tmp_path: Path) -> None:
    table = films(40, seed=5).select(["director", "actors"])
    completed_run.fill(table, tmp_path / "new.parquet", ["genre", "decade"], at_least=0)
    filled = pq.read_table(tmp_path / "new.parquet")
    assert filled.column_names == ["director", "actors", "genre", "genre_probability", "year", "year_probability"]
    assert filled.schema.field("year").type == pa.float64()
    text = with_gaps().select(["director", "genre", "year"])
    pyarrow.csv.write_csv(text, tmp_path / "rows.csv")
    completed_run.fill(tmp_path / "rows.csv", tmp_path / "text.parquet", at_least=0.5)
    of_text = pq.read_table(tmp_path / "text.parquet")
    assert of_text.schema.field("year").type == pa.float64()  # for other programs
    assert all(year > 1900 for year in of_text["year"].to_pylist() if year)
    again = feat2vec.open_table(tmp_path / "text.parquet")
    assert (again.typed, again.columns["year"]) == (False, pa.string())
    before = [row["year"] for row in text.to_pylist()]
    after = [row["year"] for batch in again.batches(["year"]) for row in batch.data.to_pylist()]
    assert all(year is None or str(year) == written for year, written in zip(before, after, strict=True))


def test_columns_that_the_run_does_not_use_are_carried_along(completed_run: feat2vec.Run, tmp_path: Path) -> None:
    table = with_gaps().append_column("span", pa.array(range(200), pa.duration("us")))
    table = table.append_column("bytes", pa.array([b"\xcd", None] * 100))
    table = table.append_column("pair", pa.array([{"x": 1}] * 200))
    counts = completed_run.fill(table, tmp_path / "filled.parquet", ["genre"])
    names = ["note", "span", "bytes", "pair"]
    assert pq.read_table(tmp_path / "filled.parquet").select(names) == table.select(names)
    assert counts.left_out == ()


def test_keys_of_a_csv_are_numbers_where_all_candidates_are(completed_run: feat2vec.Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("director,genre,actors\n7,drama,a1\n8,drama,a2\n,drama,a1\n")
    completed_run.fill(tmp_path / "rows.csv", tmp_path / "filled.parquet", ["director"], at_least=0)
    directors = pq.read_table(tmp_path / "filled.parquet")["director"].to_pylist()
    assert directors[:2] == ["7", "8"]  # as text: the third is a director of the run
    assert directors[2].startswith("d")


def test_integers_beside_gaps_that_pandas_wrote_stay_numbers(tmp_path: Path) -> None:
    rows = "".join(f"k{i % 2},{'' if i % 5 == 0 else 26.0 + i % 2}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text("kind,level\n" + rows)
    schema = {"version": 1, "model": {"dim": 4}, "groups": {name: {"column": name} for name in ("kind", "level")}}
    encoder = feat2vec.fit(schema, tmp_path / "rows.csv").encoder
    run = feat2vec.Run.of_model(feat2vec.Feat2Vec.from_encoder(encoder))
    counts = run.fill(tmp_path / "rows.csv", tmp_path / "filled.parquet", ["level"], at_least=0)
    filled = pq.read_table(tmp_path / "filled.parquet")
    assert counts.missing == counts.filled == {"level": 12}
    assert filled.schema.field("level").type == pa.float64()
    assert set(filled["level"].to_pylist()) == {26.0, 27.0}


def test_types_of_columns(tmp_path: Path) -> None:
    rows = 120
    days = [date(2020, 1, 1 + 9 * (i % 2)) for i in range(rows)]
    table = pa.table(
        {
            "kind": [f"k{i % 2}" for i in range(rows)],
            "day": [None if i % 6 == 0 else day for i, day in enumerate(days)],
            "time": [None if i % 7 == 0 else datetime(day.year, 1, day.day, 12) for i, day in enumerate(days)],
            "yes": [None if i % 5 == 0 else i % 2 == 1 for i in range(rows)],
            "level": pa.array([None if i % 4 == 0 else i % 2 + 7 for i in range(rows)], pa.int16()),
            "number": [None if i % 9 == 0 else i % 2 * 0.5 for i in range(rows)],
            "words": [f"{'red' if i % 2 else 'blue'},{i % 3}" if i % 8 else None for i in range(rows)],
        }
    )
    groups: dict[str, Any] = {name: {"column": name} for name in ("kind", "yes", "level")}
    groups |= {name: {"column": name, "extractor": "numeric"} for name in ("day", "time")}
    groups["number"] = {"column": "number", "extractor": {"type": "numeric", "nan": "missing"}}
    groups["words"] = {"column": "words", "extractor": {"type": "lookup", "split": ","}}
    schema = {"version": 1, "model": {"dim": 4}, "groups": groups}
    run = feat2vec.Run.of_model(feat2vec.Feat2Vec.from_encoder(feat2vec.fit(schema, table).encoder))
    run.fill(table, tmp_path / "filled.parquet", at_least=0)
    filled = pq.read_table(tmp_path / "filled.parquet")
    for field in feat2vec.open_table(table).columns.items():
        assert filled.schema.field(field[0]).type == field[1]
        assert filled[field[0]].null_count == 0
    assert {row["level"] for row in filled.to_pylist()} <= {7, 8}
    assert {row["day"] for row in filled.to_pylist()} <= {date(2020, 1, d) for d in range(1, 11)}


def test_gaps_of_columns_that_had_none_in_training(tmp_path: Path) -> None:
    rows = 60
    table = pa.table(
        {
            "kind": [f"k{i % 2}" for i in range(rows)],
            "width": pa.array([i % 2 + 1.0 for i in range(rows)]),
            "height": pa.array([i % 2 * 10 + 5.0 for i in range(rows)]),
        }
    )
    groups = {
        "kind": {"column": "kind"},
        "size": {"columns": ["width", "height"], "extractor": {"type": "numeric", "nan": "missing"}},
    }
    schema = {"version": 1, "model": {"dim": 4}, "groups": groups}
    run = feat2vec.Run.of_model(feat2vec.Feat2Vec.from_encoder(feat2vec.fit(schema, table).encoder))
    new = pa.table({"kind": ["k0", "k1", "k0"], "width": [None, 2.0, None], "height": [5.0, float("nan"), None]})
    counts = run.fill(new, tmp_path / "filled.parquet", at_least=0)
    filled = pq.read_table(tmp_path / "filled.parquet")
    assert counts.missing == counts.filled == {"kind": 0, "width": 2, "height": 2}
    assert [value is not None for value in filled["width_probability"].to_pylist()] == [True, False, True]
    assert all(1 <= width <= 2 for width in filled["width"].to_pylist())
    assert all(5 <= height <= 15 for height in filled["height"].to_pylist())
    without_column = run.fill(new.drop_columns(["width"]), tmp_path / "new.parquet", ["size"], at_least=0)
    assert without_column.missing == without_column.filled == {"width": 3, "height": 2}


def test_what_cannot_be_filled(completed_run: feat2vec.Run, tmp_path: Path) -> None:
    schema = feat2vec.read_schema(
        {
            "version": 1,
            "groups": {
                "title": {"column": "title", "extractor": "text_cnn"},
                "words": {"column": "title", "extractor": {"type": "lookup", "split": "words"}},
                "day": {"column": "day", "extractor": {"type": "lookup", "parts": ["month"]}},
                "bag": {"column": "bag", "extractor": {"type": "lookup", "multi": True, "weights": "w"}},
                "price": {"column": "price", "extractor": {"type": "numeric", "written": "1.5 min"}},
                "year": {"column": "year"},
            },
        }
    )
    reasons = [why_not_filled(schema, name) for name in schema.groups]
    assert [reason is None for reason in reasons] == [False, False, False, False, False, True]
    out, table = tmp_path / "out.parquet", films(20)
    for arguments, message in (
        ({"groups": ["genr"]}, r"there is no group 'genr'; did you mean 'genre'\?"),
        ({"at_least": 1.5}, r"at_least: is a probability from 0 to 1; received 1.5"),
        ({"groups": []}, r"groups: name one or more of director, genre"),
    ):
        with pytest.raises(UserError, match=message):
            completed_run.fill(table, out, **arguments)
    taken = table.append_column("genre_probability", pa.array([0.5] * 20))
    with pytest.raises(UserError, match=r"has a column .genre_probability., .* rename it"):
        completed_run.fill(taken, out)
    wrong = table.drop_columns(["genre"]).append_column("genre", pa.array([None] * 20, pa.int64()))
    with pytest.raises(UserError, match=r"the column 'genre' is of type int64, which its values do not fit"):
        completed_run.fill(wrong, out, ["genre"], at_least=0)
    assert not out.exists()


def test_probability_around_a_number() -> None:
    numbers = np.arange(100.0)
    column = NumberColumn("x", False, numbers, numbers, numbers)
    probabilities = np.stack([np.full(100, 0.01), np.eye(100)[40], np.eye(100)[99]])
    around = probability_around(column, np.full(100, 3), probabilities, np.array([50.0, 40.0, 99.0]))
    np.testing.assert_allclose(around, [0.2, 1, 1])
    np.testing.assert_allclose(probability_around(column, np.full(100, 3), probabilities[1:], np.array([70.0, 0.0])), 0)


def test_the_command(completed_run: feat2vec.Run, tmp_path: Path) -> None:
    run, row = str(completed_run.folder), '{"genre": "comedy", "year": 1937}'
    result = command("complete", run, "--row", row, "--group", "director", "-n", "2", "--json")
    (expected,) = completed_run.complete(json.loads(row), "director", n=2)
    assert json.loads(result.stdout) == expected.facts()
    result = command("complete", run, "--row", '{"director": "d1"}')
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.endswith(":")] == ["genre:", "actors:", "decade:"]
    assert any(line.startswith("year: mean 19") for line in lines)
    pq.write_table(with_gaps(), tmp_path / "rows.parquet")
    words = ["--data", str(tmp_path / "rows.parquet"), "--out", str(tmp_path / "filled.parquet")]
    result = command("complete", run, *words, "--at-least", "0.7", "--group", "genre")
    assert result.stdout.splitlines()[0].startswith("genre: ")
    assert pq.read_schema(tmp_path / "filled.parquet").names[1:3] == ["genre", "genre_probability"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "complete: give a row by --row, or a table by --data"),
        (["--row", "{}", "--data", "x"], "give a row by --row, or a table by --data; not both"),
        (["--row", "{}", "--out", "x"], "--out: is for --data; remove it"),
        (["--row", "{}", "--at-least", "0"], "--at-least: is for --data; remove it"),
        (["--data", "x"], "--out: name the Parquet file"),
        (["--data", "x", "--out", "y", "-n", "3"], "-n: is for --row; remove it"),
        (["--data", "x", "--out", "y", "--at-least", "80"], "--at-least: is a probability from 0 to 1; received 80"),
        (["--row", "[1]"], "--row: expected columns and values"),
        (["--row", '{"genr": "drama"}'], "the run knows no column 'genr'; did you mean 'genre'?"),
        (["--row", '{"genre": "drama"}', "--group", "yaer"], "there is no group 'yaer'; the groups are"),
        (
            ["--row", '{"director": "d1", "genre": "drama", "actors": ["a1"], "year": 1}'],
            "--group: the row has a value",
        ),
        (["--row", "{}"], "row: holds no value of the groups' columns"),
    ],
)
def test_messages_of_the_command(completed_run: feat2vec.Run, words: list[str], message: str) -> None:
    with pytest.raises(UserError) as error, naming_options():
        complete.main([str(completed_run.folder), *words], standalone_mode=False)
    assert message in str(error.value)
    assert words or "both" not in str(error.value)
    assert len(error.value.problems) == 1
