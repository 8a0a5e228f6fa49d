"""A recipe's query reads the recipe's tables, and does nothing else, whoever has written it."""

from __future__ import annotations

import re
import stat
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feat2vec.errors import UserError
from feat2vec.recipes import query as queries
from feat2vec.recipes.query import write_query
from feat2vec.table.database import connect

SECRET = "what stands in a file of the user's"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """The tables' file, in a folder of its own beside a file that is no business of a query's."""
    (tmp_path / "secret.csv").write_text(f"key\n{SECRET}\n")
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(pa.table({"n": range(10), "a": [f"a{i % 3}" for i in range(10)]}), folder / "rows.parquet")
    return folder / "rows.parquet"


def made_by(query: str, rows: Path, **more: Path) -> list[dict[str, Any]]:
    path = rows.parent / "train.parquet"
    write_query(query, {"rows": rows, **more}, path, "tiny: rows")
    made: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return made


@pytest.mark.parametrize(
    ("query", "made"),
    [
        ("SELECT max(n) AS n FROM rows -- the last", [{"n": 9}]),
        ("SELECT max(n) AS n FROM rows; -- the last", [{"n": 9}]),
        ("/* the last */ SELECT max(n) AS n FROM rows ; /* ; */ ;", [{"n": 9}]),
        ("SELECT n FROM Rows WHERE a = 'a1); --' OR n = 4 ORDER BY n DESC", [{"n": 4}]),
        ("WITH x AS (FROM main.rows) SELECT count(*) AS n FROM x AS y JOIN x USING (n)", [{"n": 10}]),
        ("WITH RECURSIVE x AS (SELECT 7 AS n UNION ALL SELECT n + 1 FROM x WHERE n < 8) FROM x", [{"n": 7}, {"n": 8}]),
        ("SELECT sum(n) AS n FROM rows, unnest([1, 2]) UNION ALL FROM (VALUES (1))", [{"n": 90}, {"n": 1}]),
        ("SELECT n FROM rows WHERE n IN (SELECT unnest(range(2))) AND EXISTS (FROM rows)", [{"n": 0}, {"n": 1}]),
        ("SELECT n FROM (PIVOT rows ON a IN ('a0', 'a1') USING count(*)) WHERE n = 3", [{"n": 3}]),
    ],
)
def test_one_select_is_run_with_or_without_a_semicolon_and_comments(query: str, made: Any, rows: Path) -> None:
    values = made_by(query, rows)
    assert values[: len(made)] == made
    assert sorted(path.name for path in rows.parent.iterdir()) == ["rows.parquet", "train.parquet"]


STATEMENTS = {
    "COPY rows TO '{here}/out.csv'": "COPY",
    "COPY rows FROM '{here}/secret.csv'": "COPY",
    "EXPORT DATABASE '{here}/out'": "EXPORT",
    "ATTACH '{here}/out.db' AS x": "ATTACH",
    "INSTALL httpfs": "LOAD",
    "LOAD httpfs": "LOAD",
    "SET enable_external_access = true": "SET",
    "CALL pragma_version()": "CALL",
    "CREATE TABLE x AS FROM rows": "CREATE",
    "CREATE SECRET (TYPE s3)": "CREATE",
    "EXPLAIN ANALYZE FROM rows": "EXPLAIN",
    "PREPARE x AS FROM rows": "PREPARE",
    "DROP VIEW rows": "DROP",
    "SELECT 1; SELECT 2": "2 statements",
    "SELECT 1; COPY rows TO '{here}/out.csv'": "2 statements",
    "-- nothing": "none",
}


@pytest.mark.parametrize(("query", "received"), STATEMENTS.items())
def test_any_other_statement_is_refused(query: str, received: str, rows: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^tiny: rows: expected one SELECT statement, received {received}"):
        made_by(query.format(here=tmp_path), rows)
    assert [path.name for path in rows.parent.iterdir()] == ["rows.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "secret.csv"]


READERS = [
    "read_csv('{file}')", "read_csv_auto('{file}')", "sniff_csv('{file}')", "read_text('{file}')",
    "read_blob('{file}')", "read_json('{file}')", "read_json_objects('{file}')", "read_parquet('{file}')",
    "parquet_metadata('{file}')", "parquet_schema('{file}')", "glob('{here}/*')", "duckdb_secrets()",
    "duckdb_settings()", "duckdb_extensions()", "which_secret('s3://x', 's3')", "pragma_database_list()",
    "query('SELECT 1')", "query_table('rows')", "enable_logging()", "checkpoint()", "read_duckdb('{file}')",
    "arrow_scan(1, 2, 3)", "pandas_scan(1)", "'{file}'", "'{here}/*.csv'", "information_schema.tables",
    "duckdb_tables", "pragma_database_list", "sqlite_master", "system.information_schema.columns", "SECRET",
]  # fmt: skip


@pytest.mark.thinned(2)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "query",
    [
        "FROM {reader}",
        "SELECT n, (SELECT count(*) FROM {reader}) FROM rows",
        "WITH x AS (FROM rows WHERE EXISTS (FROM {reader})) FROM x UNION ALL FROM x",
    ],
)
def test_nothing_but_the_tables_is_read(reader: str, query: str, rows: Path, tmp_path: Path) -> None:
    SECRET = pa.table({"a": ["a variable of Python's"]})  # noqa: F841, N806 - DuckDB would find it by its name
    query = query.format(reader=reader.format(here=tmp_path, file=tmp_path / "secret.csv"))
    with pytest.raises(UserError, match=r"^tiny: rows: the query may read the tables of `data` alone, rows, not "):
        made_by(query, rows)
    assert [path.name for path in rows.parent.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1); COPY (SELECT 2) TO '{here}/out.csv'; --",
        "SELECT 1) AS x, read_text('{file}') AS y; --",
        "WITH x AS (COPY rows TO '{here}/out.csv') FROM x",
        "WITH x AS (INSERT INTO rows VALUES (1, 'b') RETURNING *) FROM x",
        "SHOW ALL TABLES",
        "DESCRIBE rows",
        "PRAGMA version",
        "PRAGMA database_list",
        "SELECT getenv('HOME')",
        "SELECT $1",
        "SELECT read_text('{file}')",
        "SELECT nothing FROM rows",
        'WITH "{file}" AS (SELECT 1) FROM "{file}"',
        "SELECT " + " - ".join("1" for _ in range(5000)),
    ],
)
def test_what_else_may_be_tried_is_a_short_message(query: str, rows: Path, tmp_path: Path) -> None:
    query = query.replace("{here}", str(tmp_path)).replace("{file}", str(tmp_path / "secret.csv"))
    with pytest.raises(UserError, match=r"^tiny: rows: ") as refusal:
        made_by(query, rows)
    lines = str(refusal.value).splitlines()
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "secret.csv"]
    assert [path.name for path in rows.parent.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize("statement", ["COPY rows TO 'out.csv'", "INSERT INTO rows VALUES (1) RETURNING *"])
def test_a_with_that_writes_is_refused_before_it_is_run(statement: str, rows: Path) -> None:
    """DuckDB 2 parses it, as a part of a SELECT; those before do not."""
    with pytest.raises(UserError, match=f"not {statement.split()[0]}; name|A CTE needs a SELECT"):
        made_by(f"WITH x AS ({statement}) FROM x", rows)


@pytest.mark.parametrize("reach", ["the files", "the temporary folder"])
def test_duckdb_itself_would_refuse_what_the_first_look_lets_pass(
    reach: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two walls: without the look at the parsed query, DuckDB opens no file, and its spill folder is a private one."""
    monkeypatch.setattr(queries, "_refuse_other_than_select", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "mine.csv").write_text("key\nmine\n")
    file = tmp_path / ("secret.csv" if reach == "the files" else ".tmp/mine.csv")
    for query in (f"FROM read_csv('{file}')", f"FROM '{file}'", "FROM '.tmp/*.csv'", "COPY rows TO '.tmp/out.csv'"):
        with pytest.raises(UserError, match=r"^tiny: rows: the query fails: "):
            made_by(query, rows)
    assert [path.name for path in (tmp_path / ".tmp").iterdir()] == ["mine.csv"]


def test_the_spill_folder_is_private_and_goes_again(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def watched(spill: Path, **options: Any) -> Any:
        seen.append(Path(spill))
        assert stat.S_IMODE(Path(spill).parent.stat().st_mode) == 0o700
        connection = connect(spill, **options)
        connection.execute("SET memory_limit = '40MB'")
        return connection

    monkeypatch.setattr(queries, "connect", watched)
    made_by("SELECT md5(n::VARCHAR) AS h FROM range(1_000_000) t(n) ORDER BY h", rows)
    (folder,) = seen
    assert folder.parents[1] == rows.parent
    assert not folder.parent.exists()


def test_a_folder_called_like_a_column_says_nothing_of_the_rows(tmp_path: Path) -> None:
    folder = tmp_path / "n=7"
    folder.mkdir()
    pq.write_table(pa.table({"n": [1]}), folder / "rows.parquet")
    write_query("SELECT n FROM rows", {"rows": folder / "rows.parquet"}, folder / "out.parquet", "r: rows")
    assert pq.read_table(folder / "out.parquet", partitioning=None)["n"].to_pylist() == [1]


def test_a_folder_may_be_called_anything(tmp_path: Path) -> None:
    folder = tmp_path / "it's [1] *?"
    folder.mkdir()
    other = tmp_path / "it's 1 xy"  # which the pattern would be of
    other.mkdir()
    pq.write_table(pa.table({"n": [1]}), folder / "rows.parquet")
    pq.write_table(pa.table({"n": [2]}), other / "rows.parquet")
    assert made_by("FROM rows", folder / "rows.parquet") == [{"n": 1}]
    assert made_by('FROM "a""b"', folder / "rows.parquet", **{'a"b': other / "rows.parquet"}) == [{"n": 2}]


def test_a_table_may_be_called_train(rows: Path) -> None:
    """The rows are then written where the table is read."""
    train = rows.rename(rows.with_name("train.parquet"))
    write_query("SELECT n FROM train WHERE n > 7", {"train": train}, train, "tiny: rows")
    assert pq.read_table(train)["n"].to_pylist() == [8, 9]


def test_every_connection_is_made_in_one_place() -> None:
    """DuckDB's default is to spill into `.tmp` of the current folder, and to load extensions from the user's home."""
    package = Path(queries.__file__).parents[1]
    connecting = [
        path.name
        for path in package.rglob("*.py")
        if re.search(r"duckdb\.(connect|sql|query|execute|default_connection)\b", path.read_text())
    ]
    assert connecting == ["database.py"]


def test_connections_spill_only_where_they_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ("temp_directory", "autoinstall_known_extensions", "autoload_known_extensions")
    for spill, folder in ((None, ""), (tempfile.gettempdir(), tempfile.gettempdir())):
        with connect(spill) as connection:
            values = [connection.sql(f"SELECT current_setting('{name}')").fetchall()[0][0] for name in settings]
        assert values == [folder, False, False]
