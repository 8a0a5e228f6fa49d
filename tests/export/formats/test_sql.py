"""Scripts are run by PostgreSQL, where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.export.export import export
from feat2vec.export.formats.sql import Sql
from feat2vec.writing import MARK
from tests.export.tables import HARD, check_nearest, write_keys


@pytest.fixture(scope="module")
def database() -> Iterator[list[str]]:
    """The command that runs SQL in a temporary cluster."""
    debian = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    found = shutil.which("initdb", path=os.pathsep.join([os.environ.get("PATH", ""), *debian]))
    if found is None:
        pytest.skip("PostgreSQL is not installed")
    programs = Path(found).resolve().parent
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, where no other user may look
        user: dict[str, Any] = {"cwd": folder}
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, "nobody")
            user["user"] = "nobody"
        quiet: dict[str, Any] = {"check": True, "capture_output": True, **user}
        subprocess.run([found, "-D", f"{folder}/data", "-U", "me", "-A", "trust", "-E", "UTF8"], **quiet)
        server = [str(programs / "pg_ctl"), "-D", f"{folder}/data", "-w", "-l", f"{folder}/log"]
        # its output must not be a pipe, which the server would hold open
        subprocess.run(
            [*server, "-o", f"-k {folder} -c listen_addresses='' -c fsync=off", "start"],
            check=True,
            stdout=subprocess.DEVNULL,
            **user,
        )
        try:
            yield [str(programs / "psql"), "-h", folder, "-U", "me", "-d", "postgres", "-X", "-q", "-A", "-t"]
        finally:
            subprocess.run([*server, "-m", "immediate", "stop"], **quiet)


@pytest.mark.slow
def test_postgresql_runs_the_script(run: feat2vec.Run, tmp_path: Path, database: list[str]) -> None:
    def ask(sql: str) -> Any:
        done = subprocess.run([*database, "-c", sql], check=True, capture_output=True, text=True)
        return json.loads(done.stdout or "null")

    facts = run.export("sql", tmp_path / "out")
    there = ask("select count(*) from pg_available_extensions where name = 'vector'")
    for name, group in facts["groups"].items():
        v, script = run.vectors(name), tmp_path / "out" / group["files"][0]
        if not there:  # the script but for what is pgvector's
            text = script.read_text(encoding="utf-8").replace("vector vector(6)", "vector text")
            lines = [line for line in text.split("\n") if "hnsw" not in line and "EXTENSION" not in line]
            script.write_text("\n".join(lines), encoding="utf-8", newline="")
        subprocess.run([*database, "-f", str(script)], check=True, capture_output=True)
        quoted = '"' + name.replace('"', '""') + '"'
        fields = "id, key, vector::text::json, count, level"
        rows = ask(f"select json_agg(json_build_array({fields}) order by id) from {quoted}")
        assert [row[1] for row in rows] == v.index_to_key
        np.testing.assert_array_equal(np.array([row[2] for row in rows], np.float32), v.vectors)
        assert [row[3] for row in rows] == v.counts.tolist()
        assert [row[4] for row in rows] == v.levels.tolist()
        indexes = ask(f"select json_agg(indexdef) from pg_indexes where tablename = '{name}'")
        assert any("hash (key)" in index for index in indexes)
        if there:
            assert any("hnsw (vector vector_cosine_ops)" in index for index in indexes)
            closest = ask(
                "set enable_indexscan = off; select json_agg(key) from (select b.key from "
                f"{quoted} a, {quoted} b where a.id = 1 and b.id <> 1 order by a.vector <=> b.vector limit 3) near"
            )
            check_nearest(v, v.index_to_key[0], closest)


def test_the_script_without_postgresql(run: feat2vec.Run, tmp_path: Path) -> None:
    run.export("sql", tmp_path / "out", ['a/"tag" №1', "who"])
    text = (tmp_path / "out" / "who.sql").read_text(encoding="utf-8")
    assert "CREATE EXTENSION IF NOT EXISTS vector;" in text
    assert 'CREATE INDEX ON "who" USING hnsw (vector vector_cosine_ops);' in text
    assert "\tline\\nbreak\t[" in text
    (script,) = (path for path in (tmp_path / "out").glob("*.sql") if path.name != "who.sql")
    assert 'CREATE TABLE "a/""tag"" №1" (' in script.read_text(encoding="utf-8")
    export(run, Sql(max_indexed_dim=5), tmp_path / "out", ["who"], force=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARK, "manifest.json", "who.sql"]
    assert "hnsw" not in (tmp_path / "out" / "who.sql").read_text(encoding="utf-8")
    with pytest.raises(
        UserError, match=r"^sql: pgvector's vectors have up to 5 dimensions, these have 6; use parquet$"
    ):
        export(run, Sql(max_dim=5), tmp_path / "other")


def test_what_postgresql_cannot_hold_is_replaced_and_stays_distinct(tmp_path: Path) -> None:
    keys = [*HARD, "a\0", "a\0\0", "a\ufffd", "\0", "a\ufffd#2"]
    (name,) = write_keys("sql", keys, tmp_path / "sql")
    text = (tmp_path / "sql" / name).read_bytes().decode()
    rows = text[text.index("FROM stdin;\n") + 12 : text.index("\n\\.\n")].split("\n")
    found = [row.split("\t")[1] for row in rows]
    assert len(found) == len(set(found)) == len(keys)
    assert "\0" not in text
    assert [found[keys.index(key)] for key in ("a\ufffd", "a\0", "a\ufffd#2")] == [
        "a\ufffd",
        "a\ufffd#2#2",
        "a\ufffd#2",
    ]
