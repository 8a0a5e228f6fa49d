"""Counting on Spark writes the bytes that DuckDB writes; what it needs and lacks is said in a sentence."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import dump_document
from feat2vec.shards.spark_fit import refuse_what_spark_lacks
from feat2vec.shards.spark_session import java_version
from feat2vec.shards.spark_tasks import CountKeys, bytes_of, sortable, words_of_bytes
from feat2vec.table.table import open_table
from tests.commands import feat2vec
from tests.encode.tables import refuse
from tests.training.tables import SCHEMA, table

LONGEST = 900  # seconds of a whole test: Java starts slowly on a busy machine
DEFAULTS = "spark.sql.shuffle.partitions 3\nspark.default.parallelism 2\nspark.driver.memory 1g\n"


def encode_by_both(folder: Path, master: str, *names: str) -> dict[str, list[str]]:
    """Where the encodings of both engines differ, by the names of tables."""
    settings = folder / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(DEFAULTS)
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "SPARK_MASTER": master, "SPARK_CONF_DIR": str(settings), "PYTHONPATH": paths}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    words = [sys.executable, "-m", "tests.shards.spark_encodings", str(folder), *names]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 0, done.stderr[-4000:]
    differences: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return differences


needs_spark = pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="needs pyspark and Java 17")


@pytest.mark.slow
@needs_spark
@pytest.mark.parametrize("name", ["every", "same", "people", "noise"])
def test_spark_on_two_threads_writes_the_bytes_of_duckdb(tmp_path: Path, name: str) -> None:
    assert encode_by_both(tmp_path, "local[2]", name) == {name: []}


@pytest.mark.slow
@needs_spark
def test_steps_that_are_finished_are_not_done_again(tmp_path: Path) -> None:
    found = encode_by_both(tmp_path, "local[2]", "killed")
    assert found == {"killed": [], "kept": ["counts", "g0-entries", "g1-entries", "g1-values"]}


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A standalone master and two workers on loopback; the address of the master."""
    import pyspark

    port, children = free_port(), []
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    address = f"spark://127.0.0.1:{port}"
    ports = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = ["org.apache.spark.deploy.master.Master", *ports, "--port", str(port)]
    worker = ["org.apache.spark.deploy.worker.Worker", *ports, "--cores", "1", "--memory", "1g", address]
    try:
        for name, words in (("master", master), ("first", worker), ("second", worker)):
            log = (folder / f"{name}.log").open("w")
            own = ["--work-dir", str(folder / name)] if words is worker else []
            command = [program, *words[:-1], *own, words[-1]]
            children.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
            log.close()
        wait_for_workers(folder / "master.log", 2)
        yield address
    finally:
        for child in reversed(children):
            child.terminate()
        for child in children:
            try:
                child.wait(timeout=30)
            except subprocess.TimeoutExpired:
                child.kill()


def wait_for_workers(log: Path, count: int, longest: float = 240) -> None:
    """Wait until a master has said that so many workers are registered."""
    ends = time.monotonic() + longest
    while log.read_text().count("Registering worker") < count:
        assert time.monotonic() < ends, log.read_text()[-2000:]
        time.sleep(0.5)


@pytest.mark.slow
@needs_spark
def test_a_master_and_two_workers_write_the_bytes_of_duckdb(tmp_path: Path) -> None:
    with cluster(tmp_path) as address:
        assert encode_by_both(tmp_path, address, "people") == {"people": []}
    for name in ("first", "second"):  # both have worked
        assert list((tmp_path / name).glob("app-*/*/stderr")), (tmp_path / f"{name}.log").read_text()[-2000:]


# --- what is missing ------------------------------------------------------------------------------------------------


@pytest.fixture
def people(tmp_path: Path) -> Path:
    pq.write_table(table(20), tmp_path / "people.parquet")
    (tmp_path / "people.yaml").write_text(dump_document(SCHEMA))
    return tmp_path


def message(folder: Path) -> str:
    words = ("encode", "people.yaml", "--data", "people.parquet", "--out", "encoded", "--engine", "spark")
    done = feat2vec(*words, folder=folder, code=2)
    assert len(done.stderr.splitlines()) == 1
    assert not list(folder.glob("encoded*"))
    return done.stderr


def test_without_pyspark_a_sentence_says_what_to_install(people: Path) -> None:
    with mock.patch.object(importlib.util, "find_spec", return_value=None):
        assert "spark needs PySpark: pip install 'feat2vec[spark]'" in message(people)


@pytest.mark.parametrize(
    ("version", "received"), [(None, "none was found"), ('openjdk version "11.0.2" 2019-01-15', "is version 11")]
)
def test_without_java_17_a_sentence_says_so(
    people: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, received: str
) -> None:
    (people / "java" / "bin").mkdir(parents=True)
    if version is not None:
        java = people / "java" / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(people / "java"))
    with mock.patch.object(importlib.util, "find_spec", return_value=object()):
        printed = message(people)
    assert "spark needs Java 17 or later" in printed
    assert received in printed


def test_versions_of_java(tmp_path: Path) -> None:
    for text, version in (('version "1.8.0_292"', 8), ('version "17.0.15"', 17), ("nothing", None)):
        program = tmp_path / "java"
        program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
        program.chmod(0o755)
        assert java_version(str(program)) == version


def test_rows_that_workers_cannot_read_are_refused() -> None:
    refuse(
        "reads files that all its workers see",
        lambda: refuse_what_spark_lacks(read_schema(SCHEMA), open_table(table(5))),
    )


# --- the tasks, without Spark ---------------------------------------------------------------------------------------


def test_entries_are_sorted_as_unsigned_words() -> None:
    import numpy as np

    words = np.array([[1, 2**63, 255, 256], [7, 0, 2**64 - 1, 5]], np.uint64)  # [words, rows]
    entries = sortable(words)
    order = sorted(range(4), key=lambda row: entries[row].tobytes())
    assert order == sorted(range(4), key=lambda row: tuple(words[:, row].tolist()))
    np.testing.assert_array_equal(words_of_bytes(entries, 2), words)
    as_arrow = pa.array([row.tobytes() for row in entries], pa.binary())
    np.testing.assert_array_equal(bytes_of(pa.chunked_array([as_arrow, as_arrow.slice(1, 2)]), 16)[4:], entries[1:3])


def test_what_is_wrong_in_a_part_comes_back_as_a_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[["a"]], None]}), tmp_path / "0.parquet")
    schema = read_schema({**SCHEMA, "groups": {name: {"column": "x"} for name in ("a", "b")}})
    task = CountKeys(str(tmp_path), tuple(schema.groups.values()), ("x",))
    found: list[Any] = [batch.to_pylist() for batch in task(iter([pa.record_batch({"place": [0]})]))]
    assert found[0][0]["kind"] == "problem"
    assert "column 'x'" in found[0][0]["key"]
