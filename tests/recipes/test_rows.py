"""A recipe's rows: joined, cut into words, and split."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feat2vec.errors import UserError
from feat2vec.recipes.corpus import Corpus
from feat2vec.recipes.recipe import CorpusSpec, Recipe
from feat2vec.recipes.rows import RowParts, make_parts, sources_of
from feat2vec.table.table import open_table

SCHEMA = {"version": 1, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}}


def recipe(**more: Any) -> Recipe:
    return Recipe.model_validate({"version": 1, "name": "tiny", "schema": SCHEMA, **more})


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": range(100), "a": [f"a{i % 7}" for i in range(100)]}), path)
    return str(path)


def numbers(parts: RowParts, name: str) -> list[int]:
    return [n for batch in parts.tables[name].batches(["n"]) for n in batch.data.column(0).to_pylist()]


def test_a_split_leaves_every_row_in_one_part_and_is_drawn_by_its_seed(source: str, tmp_path: Path) -> None:
    def split(folder: str, **more: Any) -> list[list[int]]:
        (tmp_path / folder).mkdir()
        parts = make_parts(recipe(data={"rows": source}, split=more), {"rows": source}, tmp_path / folder)
        return [numbers(parts, name) for name in ("train", "validation", "test")]

    train, validation, test = split("one", validation=0.1, test=0.25)
    assert (len(train), len(validation), len(test)) == (65, 10, 25)
    assert sorted(train + validation + test) == list(range(100))
    assert train == sorted(train)  # the order of rows stays
    assert split("two", validation=0.1, test=0.25) == [train, validation, test]
    assert split("three", validation=0.1, test=0.25, seed=1)[2] != test


def test_the_validation_rows_can_be_split(source: str, tmp_path: Path) -> None:
    spec = recipe(data={"train": "x", "validation": "y"}, split={"of": "validation", "test": 0.5})
    parts = make_parts(spec, {"train": source, "validation": source}, tmp_path)
    assert len(numbers(parts, "train")) == 100
    assert len(numbers(parts, "test")) == len(numbers(parts, "validation")) == 50


def test_tables_are_joined_by_a_query(source: str, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("a,name\na1,one\na2,two\n")
    query = "SELECT n, name FROM rows LEFT JOIN names USING (a) WHERE n < 10 ORDER BY n;"
    sources = {"rows": source, "names": str(names)}
    parts = make_parts(recipe(data=sources, rows=query), sources, tmp_path)
    (batch,) = parts.tables["train"].batches()
    assert batch.data.column("name").to_pylist() == [None, "one", "two"] + [None] * 5 + ["one", "two"]


def test_a_first_try_has_few_rows(source: str, tmp_path: Path) -> None:
    everything = make_parts(recipe(data={"rows": source}), {"rows": source}, tmp_path, rows=10**30)
    assert len(numbers(everything, "train")) == 100
    parts = make_parts(recipe(data={"rows": source}), {"rows": source}, tmp_path, rows=7)
    assert numbers(parts, "train") == list(range(7))


def test_columns_without_types_stay_so(tmp_path: Path) -> None:
    """Text that is a number in a CSV is one to a numeric group, also once the rows are split."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "x,1.5\n" * 10)
    parts = make_parts(recipe(data={"rows": "x"}, split={"test": 0.2}), {"rows": str(path)}, tmp_path)
    assert not parts.tables["train"].typed
    assert not parts.tables["test"].typed


@pytest.mark.parametrize(
    ("more", "rows", "message"),
    [
        ({"rows": "SELECT nothing FROM rows"}, None, "rows: the query fails: Binder Error.*nothing"),
        ({"rows": "SELECT FROM WHERE"}, None, "rows: the query fails: Parser Error"),
        (
            {"rows": "SELECT * FROM read_text('/etc/hosts')"},
            None,
            "rows: the query may read the tables of `data` alone, rows, not read_text[(][)]; name the file there",
        ),
        ({"rows": "FROM rows WHERE n > 1000"}, None, "rows: the query gives no row; look at"),
        ({"split": {"test": 0.01}}, 20, "has 20 rows; 0.01 of them for test leave none"),
    ],
)
def test_what_gives_no_rows_is_refused(more: Any, rows: int | None, message: str, source: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        make_parts(recipe(data={"rows": source}, **more), {"rows": source}, tmp_path, rows)


def test_what_a_recipe_asks_for_is_given() -> None:
    asking_recipe = recipe(data={"films": {"ask": "films with directors"}})
    assert sources_of(asking_recipe, ["f.parquet"]) == {"films": "f.parquet"}
    assert sources_of(asking_recipe, ["films=a=b.parquet"]) == {"films": "a=b.parquet"}
    two = recipe(data={"train": {"ask": "rows"}, "validation": {"ask": "more rows"}, "more": "m.csv"})
    assert sources_of(two, ["train=a", "validation=b"]) == {"train": "a", "validation": "b", "more": "m.csv"}
    with pytest.raises(UserError, match="asks for a table, films: films with directors; give it by --data PATH"):
        sources_of(asking_recipe, [])
    with pytest.raises(UserError, match=r"train: rows; give it by --data train=PATH\n.*validation=PATH"):
        sources_of(two, [])
    with pytest.raises(UserError, match="--data tran=a: the recipe has no table 'tran'; did you mean 'train'"):
        sources_of(two, ["tran=a"])


def test_a_query_keeps_long_ids_apart(source: str, tmp_path: Path) -> None:
    query = """SELECT a, 9007199254740992::HUGEINT + n AS id, n AS "odd ""name" FROM rows"""
    parts = make_parts(recipe(data={"rows": source}, rows=query), {"rows": source}, tmp_path)
    (batch,) = parts.tables["train"].batches(["id", 'odd "name'])
    assert [int(id_) for id_ in batch.data["id"].to_pylist()] == [2**53 + n for n in range(100)]
    assert batch.data[1].to_pylist() == list(range(100))
    long = pa.table({"id": pa.array([Decimal(10**50), Decimal(10**50 + 1)], pa.decimal256(60)), "a": ["x", "y"]})
    pq.write_table(long, tmp_path / "long.parquet")
    sources = {"rows": str(tmp_path / "long.parquet")}
    with pytest.raises(UserError, match=r"column 'id' of .*long\.parquet is decimal256\(60, 0\), .* keeps 38 digits"):
        make_parts(recipe(data=sources, rows="SELECT * FROM rows"), sources, tmp_path)


def test_a_query_keeps_long_ids_in_lists_apart(source: str, tmp_path: Path) -> None:
    query = """SELECT [9007199254740992::HUGEINT + n] AS ids, [[sum(n) + 9007199254740992]] AS sums,
        [9007199254740992::UHUGEINT]::UHUGEINT[1] AS pair, {'a "b"': [9007199254740993::HUGEINT], 'c': 1} AS facts,
        MAP {'k': 9007199254740993::HUGEINT} AS map, row(9007199254740993::HUGEINT, 'x') AS row FROM rows GROUP BY n"""
    make_parts(recipe(data={"rows": source}, rows=query), {"rows": source}, tmp_path)
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert {int(row["ids"][0]) for row in rows} == {2**53 + n for n in range(100)}
    assert {int(row["sums"][0][0]) for row in rows} == {2**53 + n for n in range(100)}
    assert rows[0]["pair"] == [Decimal(2**53)]
    assert rows[0]["facts"] == {'a "b"': [Decimal(2**53 + 1)], "c": 1}
    assert rows[0]["map"] == [("k", Decimal(2**53 + 1))]
    assert list(rows[0]["row"].values()) == [Decimal(2**53 + 1), "x"]


def test_rows_in_a_folder_called_tilde_are_not_in_the_home_folder(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "~").mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    spec = recipe(data={"rows": source}, rows="SELECT * FROM rows", split={"test": 0.25})
    parts = make_parts(spec, {"rows": source}, Path("~"))
    assert len(numbers(parts, "test")) == 25
    assert not list((tmp_path / "home").iterdir())


@pytest.mark.parametrize(
    ("options", "columns", "expected"),
    [
        ({"reach": "fixed"}, ["word", "context"], 6),
        ({"reach": "fixed", "window": 1}, ["word", "context"], 4),
        ({"reach": "fixed", "fake_centres": 2, "fake_alpha": 0.0}, ["word", "context", "label"], 6 * 3),
        ({"counts": True}, ["word", "context", "count"], {("a", "b"): 2.0, ("b", "b"): 1.0}),
        ({"counts": True, "count_weights": "plain"}, ["word", "context", "count"], {("a", "b"): 2.0, ("b", "b"): 2.0}),
        ({"counts": True, "window": 1}, ["word", "context", "count"], {("a", "b"): 2.0}),
    ],
)
def test_a_corpus_becomes_rows_as_its_options_say(
    options: dict[str, Any], columns: list[str], expected: Any, tmp_path: Path
) -> None:
    """The text has the words b, a and b."""
    (tmp_path / "texts.csv").write_text("text\nb a b\n")
    spec = recipe(data={"texts": "x"}, corpus={"column": "text", "min_count": 1, **options})
    table = make_parts(spec, {"texts": str(tmp_path / "texts.csv")}, tmp_path).tables["train"]
    assert list(table.columns) == columns
    made = [row for batch in table.batches() for row in batch.data.to_pylist()]
    if isinstance(expected, int):
        assert len(made) == expected
        assert sum(row.get("label", 1) for row in made) == expected // (1 + options.get("fake_centres", 0))
    else:
        counts = {(row["word"], row["context"]): row["count"] for row in made}
        assert counts == {**expected, **{(second, first): n for (first, second), n in expected.items()}}


@pytest.mark.parametrize("counts", [False, True])
def test_what_a_corpus_draws_follows_from_its_options(counts: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    pq.write_table(
        pa.table({"text": [[f"w{i}" for i in random.zipf(1.5, 9) % 9] for _ in range(60)]}), tmp_path / "t.parquet"
    )
    drawn = {"reach": "random", "subsample": 0.05, "seed": 3}

    def rows_of(**options: Any) -> list[dict[str, Any]]:
        corpus = {"column": "text", "min_count": 1, "window": 4, "counts": counts, **drawn, **options}
        spec = recipe(data={"texts": "x"}, corpus=corpus)
        table = make_parts(spec, {"texts": f"{tmp_path}/t.parquet"}, tmp_path).tables["train"]
        return [row for batch in table.batches() for row in batch.data.to_pylist()]

    read = Corpus.read(open_table(f"{tmp_path}/t.parquet"), "text")
    options: Any = drawn
    expected = read.cooccurrences(4, **options) if counts else pa.Table.from_batches(list(read.pairs(4, **options)))
    assert rows_of() == expected.to_pylist()
    for change in ({"reach": "fixed"}, {"subsample": 0.0}, {"seed": 4}):
        assert rows_of(**change) != rows_of()


def test_a_study_of_before_options_were_there_can_go_on() -> None:
    """Its facts are those of the options that are given; that of tied vectors is in the schema."""
    plain = CorpusSpec(column="text", tied=True).study_facts()
    assert plain == {"column": "text", "window": 5, "min_count": 5, "subsample": 0.0, "counts": False, "seed": 0}
    assert CorpusSpec(column="text", fake_centres=1).study_facts() == {**plain, "fake_centres": 1}
