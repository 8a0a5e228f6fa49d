"""Memory, threads, full disks and interruptions."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pytest

import feat2vec
from feat2vec.encode import encoder as encoder_module
from feat2vec.encode import value_tables
from feat2vec.encode import workspace as workspace_module
from feat2vec.encode.arrays_on_disk import ArrayFile
from feat2vec.encode.codecs.items_fit import ItemsFit
from feat2vec.encode.encoder import fit
from feat2vec.encode.targets import TargetFiles
from feat2vec.encode.workspace import DEFAULT_SIZES, PieceSizes, Workspace, new_workspace
from feat2vec.table.table import Stage, open_table, stages
from tests.encode.tables import (
    SAME,
    SAME_SCHEMA,
    TableInBatches,
    differences,
    files_below,
    lookup,
    numeric,
    refuse,
    schema_of,
)


@pytest.mark.slow
def test_spilling(tmp_path: Path) -> None:
    """A table that is larger than DuckDB's memory."""
    count = 1_500_000
    random = np.random.default_rng(0)
    keys = pa.array(random.integers(0, 10**6, count)).cast(pa.string())
    long = pa.compute.binary_join_element_wise(keys, "a title that is long enough to take some memory", "-")
    rows = pa.table({"title": long, "x": random.normal(size=count), "y": random.normal(size=count)})
    schema = schema_of({"title": "title", "xy": (["x", "y"], "numeric"), "ranks": ("x", numeric(scale="quantile"))})
    small = fit(schema, rows, tmp_path / "small", memory="150MB")
    large = fit(schema, rows, tmp_path / "large", memory="2GB")
    assert differences(small, large) == {}
    assert len(small.values["title"].entries) == len(set(keys.to_pylist()))


def test_too_little_memory() -> None:
    random = np.random.default_rng(0)
    rows = pa.table({"a": random.integers(0, 10**9, 300_000).astype(str), "b": random.normal(size=300_000)})
    schema, batches = schema_of({"a": "a", "b": ("b", "numeric")}), TableInBatches(rows, 10_000)
    sizes = PieceSizes(stage_bytes=-1, rows_per_piece=10_000, rows_per_block=10_000, held_key_bytes=80_000)
    problems = refuse("memory is too little", lambda: fit(schema, batches, None, "1MB", sizes=sizes))
    assert problems == ["1MB of memory is too little to encode this table; raise it"]


def memory_limit(workspace: Workspace) -> Any:
    """What DuckDB may hold, as it says itself."""
    [(limit,)] = workspace.connection.cursor().sql("select current_setting('memory_limit')").fetchall()
    return limit


def test_duckdb_may_hold_less_for_a_while(tmp_path: Path) -> None:
    with new_workspace(tmp_path / "out", "256MiB", DEFAULT_SIZES) as workspace:
        assert memory_limit(workspace) == "128.0 MiB"
        with workspace.less_in_database():
            assert memory_limit(workspace) == "64.0 MiB"
        assert memory_limit(workspace) == "128.0 MiB"
        with pytest.raises(KeyError), workspace.less_in_database():
            raise KeyError
        assert memory_limit(workspace) == "128.0 MiB"


def test_duckdb_holds_less_for_a_while(tmp_path: Path) -> None:
    """What it holds beyond the lower bound is written to disk."""
    held = "select sum(memory_usage_bytes), sum(temporary_storage_bytes) from duckdb_memory()"
    with new_workspace(tmp_path / "out", "64MiB", DEFAULT_SIZES) as workspace:
        workspace.connection.execute("create table t as select hash(range) h from range(3_000_000)")
        [(before, _)] = workspace.connection.sql(held).fetchall()
        assert 20 << 20 < before <= 32 << 20
        with workspace.less_in_database():
            [(within, spilled)] = workspace.connection.sql(held).fetchall()
            assert within <= 16 << 20 < within + spilled
            [(rows,)] = workspace.connection.sql("select count(distinct h) from t where h % 7 = 0").fetchall()
        assert rows > 400_000


@pytest.mark.parametrize(("held", "releases"), [(95 << 20, 0), (97 << 20, 1)])
def test_free_memory_is_returned_once_most_is_held(
    held: int, releases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = mock.Mock()
    monkeypatch.setattr(workspace_module, "process_memory", {"RssAnon": held}.__getitem__)
    monkeypatch.setattr(workspace_module, "release_memory", released)
    table_stages = list(stages(open_table(SAME), ["name"]))
    with new_workspace(tmp_path / "out", "128MiB", DEFAULT_SIZES) as workspace:
        assert list(workspace.bounded(table_stages)) == table_stages
    assert released.call_count == releases * len(table_stages)


def test_every_stage_of_a_fit_and_of_an_encoding_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = mock.Mock()
    monkeypatch.setattr(Workspace, "return_free_memory", lambda _: looked())
    rows, sizes = TableInBatches(SAME, 5), PieceSizes(stage_bytes=-1)
    encoder = fit(SAME_SCHEMA, rows, sizes=sizes).encoder
    of_fit = looked.call_count
    assert of_fit > 1
    encoder.encode(rows, sizes=sizes)
    assert looked.call_count == 2 * of_fit


def test_sizes_follow_from_memory_and_groups() -> None:
    assert DEFAULT_SIZES.within(64 << 30, 1) == DEFAULT_SIZES
    sizes = PieceSizes(stage_bytes=7 << 20, held_key_bytes=1 << 20)
    assert sizes.within(512 << 20, 3) == sizes
    assert DEFAULT_SIZES.within(512 << 20, 3) == replace(DEFAULT_SIZES, stage_bytes=32 << 20, held_key_bytes=16 << 20)
    assert DEFAULT_SIZES.within(512 << 20, 128).held_key_bytes == 1 << 20
    assert DEFAULT_SIZES.within(1, 1) == replace(DEFAULT_SIZES, stage_bytes=1, held_key_bytes=0)


def test_a_fit_has_the_sizes_of_its_memory_and_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def within(sizes: PieceSizes, database_bytes: int, groups: int) -> PieceSizes:
        asked.append((database_bytes, groups))
        return sizes

    monkeypatch.setattr(PieceSizes, "within", within)
    fit(SAME_SCHEMA, SAME, memory="40MB")
    assert asked == [(20_000_000, len(SAME_SCHEMA.groups))]


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    encoded = fit(SAME_SCHEMA, SAME)
    for call in (lambda: fit(SAME_SCHEMA, SAME, out), lambda: encoded.encoder.encode(SAME, out)):
        refuse("out: exists already; remove it or choose another folder", call)
    assert files_below(tmp_path) == {"out/mine.txt"}


PLACES: dict[str, list[tuple[Any, str]]] = {
    "reading": [(encoder_module, "stages")],
    "staging": [(ItemsFit, "stage"), (value_tables.StagedEntries, "stage")],
    "targets": [(TargetFiles, "finish")],
    "numbering": [(value_tables, "number_entries")],
    "writing": [(encoder_module, "write_rows")],
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("place", PLACES)
def test_interruptions_leave_nothing_behind(
    error: type[BaseException], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = schema_of(
        {"name": "name", "tags": ("tags", lookup(multi=True)), "numbers": (["number", "score"], "numeric")}
    )
    encoder = fit(schema, SAME).encoder
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()

    def fail(*_: object, **__: object) -> None:
        raise error(place)

    def fail_late(*arguments: Any, **__: object) -> Iterator[Stage]:
        yield from stages(*arguments)
        raise error(place)

    for target, name in PLACES[place]:
        monkeypatch.setattr(target, name, fail_late if name == "stages" else fail)
    for out in (tmp_path / "out", None):
        with pytest.raises(error, match=place):
            fit(schema, SAME, out)
        with pytest.raises(error, match=place):
            encoder.encode(SAME, out)
    assert files_below(tmp_path) == set()
    assert os.listdir(tmp_path) == ["temporary"]
    assert os.listdir(tmp_path / "temporary") == []


def test_memory_is_a_size(tmp_path: Path) -> None:
    encoder = fit(SAME_SCHEMA, SAME).encoder
    wrong: list[Any] = [
        "lots", "-1GB", "0", "0GB", "0.0 MB", "", "GB", "1", "-1", "1GB; select 1", "1e9", "nan GB", "1_0GB", "٣GB",
        "100%", "none", "1PB", None, 10**9, b"1GB", float("inf"), "9" * 400 + "GB",
    ]  # fmt: skip
    for memory in wrong:
        shown = repr(memory) if len(repr(memory)) <= 60 else f"{repr(memory)[:57]}..."
        for call in (
            lambda: fit(SAME_SCHEMA, SAME, tmp_path / "out", memory),  # noqa: B023
            lambda: encoder.encode(SAME, None, memory),  # noqa: B023
            lambda: feat2vec.train(SAME_SCHEMA, SAME, tmp_path / "out", memory=memory),  # noqa: B023
        ):
            assert refuse(None, call) == [f"memory must be a size such as 1GB; received {shown}"]
    assert os.listdir(tmp_path) == []
    for memory in ("64MB", "0.1 GB", "100mib", " 90000000 bytes", "1GB"):
        assert len(fit(SAME_SCHEMA, SAME, None, memory)) == len(SAME)
    for memory in ("1 B", "1KB"):
        refuse("memory is too little to encode this table", lambda: fit(SAME_SCHEMA, SAME, None, memory))  # noqa: B023


@pytest.mark.parametrize("temporary", [False, True])
def test_a_full_disk_is_told_with_the_folder_and_a_remedy(
    temporary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a write has it: it knows no name

    monkeypatch.setattr(ArrayFile, "append", fail)
    with pytest.raises(OSError, match="No space left on device; make room, or choose another folder") as caught:
        fit(SAME_SCHEMA, SAME, None if temporary else tmp_path / "out")
    assert caught.value.filename == str(tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value.strerror).endswith("another folder by TMPDIR" if temporary else "another folder")
    assert os.listdir(tmp_path) == []


WAITING = """
import signal, sys
from feat2vec import cli
from feat2vec.encode import encoder
def wait(*_):
    print("waiting", flush=True)
    signal.pause()
encoder.write_rows = wait
cli.main()
"""


def test_sigterm_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("version: 1\ngroups: {a: {column: a}, b: {column: b}}\n")
    (tmp_path / "a.csv").write_text("a,b\nx,y\n")
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-c", WAITING, "check", "a.yaml", "--data", "a.csv"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        assert len(os.listdir(tmp_path / "temporary")) == 1
        process.terminate()
    assert process.returncode == 143
    assert os.listdir(tmp_path / "temporary") == []


def test_the_folder_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    fit(SAME_SCHEMA, SAME, tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)
