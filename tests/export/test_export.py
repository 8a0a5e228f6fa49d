"""Exports are read back by the tools that they are for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.export import export as exports
from feat2vec.export.export import FORMATS, words_of
from feat2vec.run import train
from feat2vec.space.search import import_faiss
from feat2vec.space.vectors import Vectors
from feat2vec.writing import MARK
from tests.commands import feat2vec as command

NAMES = [
    "Agnès Varda", "李安", "a b", "a_b", "a\tb", "a\u00a0b", "a_b#2", "line\nbreak",
    'x\'y"z', "back\\slash\\n", "🎬 studio", "\\.", " edge ", "cr\rlf", "\x1c", "comma,quote",
]  # fmt: skip
GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": "lookup"},
    'a/"tag" №1': {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2]}},
    "score": {"column": "score", "extractor": {"type": "numeric", "hidden": [4]}},
}
MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6},
    "rafm": {"ranks": [3, 6, 8]},
    "truncate": {"ranks": [3, 6, 8], "level_sharing": "truncate"},
}


def table(rows: int = 300) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "who": [NAMES[i % len(NAMES)] if i < 40 else NAMES[i % 5] for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)],
            "title": [f"The {rng.integers(0, 6)} of Tōkyō {rng.integers(0, 3)}" for _ in range(rows)],
            "score": rng.integers(0, 9, rows) / 8,
        }
    )


def trained(model: str, folder: Path) -> feat2vec.Run:
    schema = {
        "version": 1, "model": MODELS[model], "groups": GROUPS if model == "fm" else {"who": GROUPS["who"]} | {
            "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}}},
        "training": {"epochs": 1, "batch_size": 100, "optimizer": {"type": "adam", "learning_rate": 0.05}},
    }  # fmt: skip
    return train(schema, table(), folder, quiet=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return trained("fm", tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module", params=["rafm", "truncate"])
def ranked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return trained(request.param, tmp_path_factory.mktemp("runs") / "run")


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def check_nearest(v: Vectors, key: str, found: Sequence[str]) -> None:
    """As near as the nearest ones: some are equally near."""
    cosines = [v.similarity(key, other) for other in found]
    np.testing.assert_allclose(cosines, [score for _, score in v.most_similar(key, topn=len(found))], atol=1e-5)
    assert len({key, *found}) == len(found) + 1


def test_parquet_opens_in_duckdb_pandas_and_polars(run: feat2vec.Run, tmp_path: Path) -> None:
    facts = run.export("parquet", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")) == facts
    assert {k: facts[k] for k in ("format", "metric", "normalised", "dimension", "level")} == {
        "format": "parquet", "metric": "cosine", "normalised": False, "dimension": 6, "level": 1
    }  # fmt: skip
    assert list(facts["groups"]) == list(GROUPS)
    assert [facts["groups"][name]["of"] for name in GROUPS] == ["keys", "keys", "values", "values"]
    for name, group in facts["groups"].items():
        v, (file,) = run.vectors(name), group["files"]
        path = tmp_path / "out" / file
        assert group["rows"] == len(v)
        assert pq.read_schema(path).field("vector").type == pa.list_(pa.float32(), 6)
        assert pl.read_parquet(path).schema["vector"] == pl.Array(pl.Float32, 6)
        frame = pd.read_parquet(path)
        assert list(frame["key"]) == v.index_to_key
        np.testing.assert_array_equal(np.stack(list(frame["vector"])), v.vectors)
        np.testing.assert_array_equal(frame["count"], v.counts)
        np.testing.assert_array_equal(frame["level"], v.levels)
        closest = duckdb.execute(
            f"select b.key from '{path}' a, '{path}' b where a.key = $key and b.key <> a.key"
            " order by list_cosine_similarity(a.vector, b.vector) desc limit 3",
            {"key": v.index_to_key[0]},
        ).fetchall()
        check_nearest(v, v.index_to_key[0], [key for (key,) in closest])


def test_npz_needs_no_pickle(run: feat2vec.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.export("npz", tmp_path / "out", ["who", "title"], normalise=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARK, "manifest.json", "title.npz", "who.npz"]
    for name in ("who", "title"):
        v = run.vectors(name)
        with np.load(tmp_path / "out" / f"{name}.npz", allow_pickle=False) as file:
            assert sorted(file) == ["counts", "keys", "levels", "vectors"]
            assert file["keys"].tolist() == v.index_to_key
            np.testing.assert_allclose(file["vectors"], unit(v.vectors), rtol=1e-5)
            np.testing.assert_array_equal(file["counts"], v.counts)
            np.testing.assert_array_equal(file["levels"], v.levels)
    monkeypatch.setattr(exports, "WIDEST_KEYS", 100)
    with pytest.raises(UserError, match=r"^npz: the group 'who': numpy gives each key .* 12 signs: .*; use parquet$"):
        run.export("npz", tmp_path / "wide")
    assert not (tmp_path / "wide").exists()


HARD = [
    "a", "a\0b", "\0a", "a\ufffdb", "a\tb", "a\nb", "a\\nb", "a\rb", "a b", "a_b", "\ufeffa", "a\u2028b", "\U0010ffff",
    "e\u0301", "\u00e9", "\u200b", "-", "\\.", "NULL", "'", '"', "a#2", "a;b", " a", "a ", "None", "\x7f", "\u202ea",
]  # fmt: skip


def written(kind: Any, keys: Sequence[str], folder: Path) -> list[str]:
    """The files of an export of a group with these keys."""
    folder.mkdir()
    vectors = np.arange(2.0 * len(keys), dtype=np.float32).reshape(-1, 2)
    ones = np.ones(len(keys), np.int64)
    exported = exports.Exported(pa.array(keys, pa.string()), vectors, ones, ones)
    return exports.WRITERS[kind](folder, "who", exported)


def test_npz_keeps_every_key_or_refuses_it(tmp_path: Path) -> None:
    written("npz", HARD, tmp_path / "out")
    with np.load(tmp_path / "out" / "who.npz", allow_pickle=False) as file:
        assert file["keys"].dtype.kind == "U"
        assert file["keys"].tolist() == HARD
    message = r"^npz: the group 'who': the key 'a\\x00': numpy's texts do not keep .* at their end; use parquet$"
    for keys in (["a", "a\0"], ["a\0"], ["b", "a\0", "c\0\0"]):
        with pytest.raises(UserError, match=message):
            written("npz", keys, tmp_path / f"npz {len(keys)}")


def test_parquet_and_text_keep_every_key(tmp_path: Path) -> None:
    keys = [*HARD, "a\0", "a\0\0", "\0", "x" * 100_000]
    (name,) = written("parquet", keys, tmp_path / "parquet")
    assert pq.read_table(tmp_path / "parquet" / name)["key"].to_pylist() == keys
    _, name = written("projector", keys, tmp_path / "projector")
    lines = (tmp_path / "projector" / name).read_bytes().decode().split("\n")
    escapes = {r"\\": "\\", r"\t": "\t", r"\n": "\n", r"\r": "\r"}
    fields = [re.sub(r"\\.", lambda match: escapes[match[0]], line.split("\t")[0]) for line in lines[1:-1]]
    assert fields == keys
    assert {line.count("\t") for line in lines[:-1]} == {2}


def test_what_a_format_cannot_write_is_replaced_and_stays_distinct(tmp_path: Path) -> None:
    keys = [*HARD, "a\0", "a\0\0", "a\ufffd", "\0", "a\ufffd#2"]
    (name,) = written("sql", keys, tmp_path / "sql")
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
    name, _ = written("word2vec", keys, tmp_path / "word2vec")
    first, *words = (tmp_path / "word2vec" / name).read_bytes().decode().removesuffix("\n").split("\n")
    assert first == f"{len(keys)} 2"
    assert len({word.split(" ")[0] for word in words}) == len(keys)
    assert {len(word.split()) for word in words} == {3}


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_loads_word2vec_and_finds_the_same_neighbours(
    run: feat2vec.Run, tmp_path: Path, binary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gensim.models import KeyedVectors

    monkeypatch.setattr(exports, "BLOCK", 100)  # more than one
    facts = run.export("word2vec", tmp_path / "out")
    for name, group in facts["groups"].items():
        file = tmp_path / "out" / group["files"][binary]
        v, found = run.vectors(name), KeyedVectors.load_word2vec_format(file, binary=binary)
        words = words_of(pa.array(v.index_to_key)).to_pylist()
        assert found.index_to_key == words
        np.testing.assert_array_equal(found.vectors, v.vectors)
        for i, key in enumerate(v.index_to_key[:20]):
            near = [v.index_to_key[words.index(word)] for word, _ in found.similar_by_key(words[i], topn=3)]
            check_nearest(v, key, near)


def test_words_have_no_white_space_and_stay_distinct() -> None:
    keys = pa.array(["a b", "a_b", "a\tb", "a_b#2", "a\u00a0b", "", " ", "\n", "a\x1cb", "x\u2028y", "ü"])
    words = words_of(keys).to_pylist()
    assert words == ["a_b#2#2", "a_b", "a_b#3", "a_b#2", "a_b#4", "", "_", "_#2", "a_b#5", "x_y", "ü"]
    assert all(len(word.split()) <= 1 for word in words)
    names = words_of(pa.array(NAMES)).to_pylist()
    assert len(set(names)) == len(NAMES)
    assert words_of(pa.array([], pa.string())).to_pylist() == []


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated:DeprecationWarning")  # TensorBoard's own
def test_tensorboard_opens_the_projector(run: feat2vec.Run, tmp_path: Path) -> None:
    from tensorboard.backend import application
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
    from werkzeug.test import Client

    facts = run.export("projector", tmp_path / "out")
    logs = str(tmp_path / "out")
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    provider = data_provider.MultiplexerDataProvider(multiplexer, logs)
    plugin = ProjectorPlugin(base_plugin.TBContext(logdir=logs, data_provider=provider))
    browser, at = Client(application.TensorBoardWSGI([plugin])), "/data/plugin/projector"
    assert browser.get(f"{at}/runs").json == ["."]
    config: Any = browser.get(f"{at}/info", query_string={"run": "."}).json
    assert [one["tensorName"] for one in config["embeddings"]] == list(GROUPS)
    for name, one in zip(GROUPS, config["embeddings"], strict=True):
        v, query = run.vectors(name), {"run": ".", "name": name}
        assert [int(size) for size in one["tensorShape"]] == [len(v), 6]
        tensor = np.frombuffer(browser.get(f"{at}/tensor", query_string=query).data, np.float32)
        np.testing.assert_array_equal(tensor.reshape(-1, 6), v.vectors)
        text = browser.get(f"{at}/metadata", query_string={**query, "num_rows": len(v)}).text
        header, *lines = text.removesuffix("\n").split("\n")
        assert header == "key\tcount\tlevel"
        assert [line.split("\t")[1:] for line in lines] == [
            [str(n), str(level)] for n, level in zip(v.counts, v.levels, strict=True)
        ]
        plain = [line.split("\t")[0].encode("latin-1", "backslashreplace").decode("unicode_escape") for line in lines]
        assert plain == v.index_to_key
    assert facts["groups"]["who"]["files"] == ["who.tensors.tsv", "who.metadata.tsv"]


@pytest.mark.parametrize("indexed", [10_000, 1])
def test_faiss_finds_the_same_neighbours(
    run: feat2vec.Run, tmp_path: Path, indexed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    faiss = import_faiss()
    monkeypatch.setattr(exports, "INDEXED", indexed)  # flat, or a graph
    monkeypatch.setattr(exports, "BLOCK", 100)
    facts = run.export("faiss", tmp_path / "out", ["who", "title"])
    assert facts["normalised"]
    for name, group in facts["groups"].items():
        v = run.vectors(name)
        index, keys = (tmp_path / "out" / file for file in group["files"])
        read, known = faiss.read_index(str(index)), pq.read_table(keys)
        assert read.ntotal == len(v) == len(known)
        assert known["key"].to_pylist() == v.index_to_key
        np.testing.assert_allclose(read.reconstruct(3), unit(v.vectors)[3], rtol=1e-5)
        scores, ids = read.search(unit(v.vectors), len(v))
        np.testing.assert_allclose(scores[:, 0], 1, rtol=1e-5)
        for i, key in enumerate(v.index_to_key):
            check_nearest(v, key, [v.index_to_key[j] for j in ids[i] if j not in (i, -1)][:3])


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


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
        assert any("hash (key)" in one for one in indexes)
        if there:
            assert any("hnsw (vector vector_cosine_ops)" in one for one in indexes)
            closest = ask(
                "set enable_indexscan = off; select json_agg(key) from (select b.key from "
                f"{quoted} a, {quoted} b where a.id = 1 and b.id <> 1 order by a.vector <=> b.vector limit 3) near"
            )
            check_nearest(v, v.index_to_key[0], closest)


def test_the_script_without_postgresql(run: feat2vec.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.export("sql", tmp_path / "out", ['a/"tag" №1', "who"])
    text = (tmp_path / "out" / "who.sql").read_text(encoding="utf-8")
    assert "CREATE EXTENSION IF NOT EXISTS vector;" in text
    assert 'CREATE INDEX ON "who" USING hnsw (vector vector_cosine_ops);' in text
    assert "\tline\\nbreak\t[" in text
    (other,) = (path for path in (tmp_path / "out").glob("*.sql") if path.name != "who.sql")
    assert 'CREATE TABLE "a/""tag"" №1" (' in other.read_text(encoding="utf-8")
    monkeypatch.setattr(exports, "MOST_INDEXED", 5)
    run.export("sql", tmp_path / "out", ["who"], force=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARK, "manifest.json", "who.sql"]
    assert "hnsw" not in (tmp_path / "out" / "who.sql").read_text(encoding="utf-8")
    monkeypatch.setattr(exports, "MOST_SQL", 5)
    with pytest.raises(
        UserError, match=r"^sql: pgvector's vectors have up to 5 dimensions, these have 6; use parquet$"
    ):
        run.export("sql", tmp_path / "other")


# --- levels ---------------------------------------------------------------------------------------------------------


def test_a_model_with_ranks_is_exported_at_one_level(ranked: feat2vec.Run, tmp_path: Path) -> None:
    truncate = ranked.schema.model.level_sharing == "truncate"
    facts = ranked.export("npz", tmp_path / "whole")
    every = ranked.vectors("who")
    assert (facts["level"], facts["dimension"]) == ((3, 8) if truncate else (1, 3))
    with np.load(tmp_path / "whole" / "who.npz") as file:
        assert file["keys"].tolist() == every.index_to_key
        expected = every.vectors
        if truncate:  # the vectors of single values
            expected = ranked.embed(pa.table({"who": every.index_to_key}))
        np.testing.assert_array_equal(file["vectors"], expected)
        np.testing.assert_array_equal(file["levels"], every.levels)
    facts = ranked.export("npz", tmp_path / "second", ["who"], level=2)
    some = ranked.vectors("who", level=2)
    assert 0 < len(some) < len(every)
    assert (facts["level"], facts["groups"]["who"]["rows"]) == (2, len(some))
    assert facts["dimension"] == some.vector_size == 6
    with np.load(tmp_path / "second" / "who.npz") as file:
        assert file["keys"].tolist() == some.index_to_key
        np.testing.assert_array_equal(file["vectors"], some.vectors)
    with pytest.raises(UserError, match=r"^level: there is no level 4; the levels are 1 to 3$"):
        ranked.export("npz", tmp_path / "fourth", level=4)


# --- whole or not at all --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_is_whole_or_not_there(
    run: feat2vec.Run,
    tmp_path: Path,
    kind: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    run.export("npz", out, ["who"])
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    dumps = json.dumps

    def fail(facts: Any, **options: Any) -> str:
        if isinstance(facts, dict) and "metric" in facts:
            raise OSError(28, "No space left on device")
        return dumps(facts, **options)

    monkeypatch.setattr(json, "dumps", fail)
    with pytest.raises(OSError, match="No space left"):
        run.export(kind, out, ["who"], force=True)
    with pytest.raises(OSError, match="No space left"):
        run.export(kind, tmp_path / "new", ["who"])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_what_is_in_the_way(run: feat2vec.Run, tmp_path: Path) -> None:
    run.export("parquet", tmp_path / "out", ["who"])
    with pytest.raises(UserError, match=r"out: exists already; choose another folder, or add --force to replace it$"):
        run.export("npz", tmp_path / "out", ["who"])
    run.export("npz", tmp_path / "out", ["who"], force=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARK, "manifest.json", "who.npz"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "empty").mkdir()
    run.export("npz", tmp_path / "empty", ["who"], force=True)
    for mine in (tmp_path, run.folder):
        with pytest.raises(UserError, match=r"is no export, and --force replaces nothing else; choose another folder"):
            run.export("npz", mine, ["who"], force=True)


def test_mistakes(run: feat2vec.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    format_: Any = "parket"
    with pytest.raises(UserError, match=r"^format is one of parquet, .*; received 'parket'; did you mean 'parquet'\?$"):
        run.export(format_, tmp_path / "out")
    with pytest.raises(UserError, match=r"^groups: there is no group 'whom'; did you mean 'who'\?$"):
        run.export("npz", tmp_path / "out", ["whom"])
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"needs faiss, which is not installed: .*; or choose another format"):
        run.export("faiss", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_command(run: feat2vec.Run, tmp_path: Path) -> None:
    out = tmp_path / "words"
    words = ["export", run.folder, "--format", "npz", "--out", out]
    done = command(*words, "--group", "score", "--group", "who", "--normalise")
    assert done.stdout == f"{out}: npz, {len(NAMES) + 9} vectors of 6 dimensions: who, score\n"
    assert not done.stderr
    assert sorted(path.name for path in out.iterdir()) == [MARK, "manifest.json", "score.npz", "who.npz"]
    done = command(*words, code=2)
    assert done.stdout == ""
    assert done.stderr == f"{out}: exists already; choose another folder, or add --force to replace it\n"
