"""Paths, globs and folders; files that are missing, damaged or compressed."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.table.tables import ARROW, JSON_LINES, ROWS, column, refuse, rows, write, zstd


def write_arrow_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


FILES: dict[str, Callable[[pa.Table, Path], None]] = {
    "a.parquet": pq.write_table,
    "b.pq": lambda table, path: pq.write_table(table, path, row_group_size=4, compression="zstd"),
    "c.feather": lambda table, path: pa.feather.write_feather(table, str(path)),
    "d.arrow": write_arrow_stream,
    "e.ipc": lambda table, path: pa.feather.write_feather(table, str(path), compression="uncompressed"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_typed_file_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    FILES[name](ARROW, tmp_path / name)
    assert rows(tmp_path / name) == ROWS
    assert rows(str(tmp_path / name), ["day", "title"]) == [{"day": row["day"], "title": row["title"]} for row in ROWS]


def test_a_truncated_gzip(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = "a,b\n" + "".join(f"{n},{n}\n" for n in rng.integers(0, 2**60, 1000))
    refuse(write(tmp_path / "a.csv.gz", gzip.compress(noise.encode())[:-50]), r"a\.csv\.gz: cannot be read: .*whole")
    refuse(write(tmp_path / "a.jsonl.gz", gzip.compress(JSON_LINES)[:-30]), r"a\.jsonl\.gz: cannot be read: .*whole")


def test_folders_and_globs(tmp_path: Path) -> None:
    for i, name in enumerate(["b.parquet", "a.parquet", "more/c.parquet"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": [i]}), tmp_path / name)
    for name in ["_SUCCESS", ".hidden", "_log/x.json", ".git/y"]:
        write(tmp_path / name, "no data")
    assert column(tmp_path) == [1, 0, 2]
    assert column(f"{tmp_path}/*.parquet") == [1, 0]
    assert column(f"{tmp_path}/**/*.parquet") == [1, 0, 2]


def test_a_glob_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.csv", "a\nx\n")
    monkeypatch.chdir(tmp_path)
    assert column("*.csv") == ["x"]


def test_an_empty_name_is_no_device() -> None:
    refuse("", "received '', which names no table")


def test_what_is_neither_file_nor_folder_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    refuse(tmp_path / "pipe.csv", r"pipe\.csv: is neither a file nor a folder, but a device, a pipe or a socket")
    (tmp_path / "link.csv").symlink_to("nowhere")
    refuse(tmp_path / "link.csv", r"link\.csv: is a link to nowhere, which is no file or folder: check the path")


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("data/film.csv", r"film\.csv: no such file or folder; did you mean 'films\.csv'"),
        ("nowhere/a.csv", "no such file: the folder .*nowhere does not exist"),
        ("data/*.parquet", "no file matches: check the pattern"),
        ("empty", "the folder has no data files"),
        ("mixed", r"mixed: holds files of more than one format: .*a\.csv is CSV and .*b\.jsonl is JSON"),
        ("a.zip", r"(?s)a\.zip: unknown format '\.zip': unpack it\nknown: \.arrow"),
        ("a.cvs", r"(?s)a\.cvs: unknown format '\.cvs'; did you mean '\.csv'.*known: \.arrow"),
        ("a.xlsx", r"(?s)a\.xlsx: unknown format '\.xlsx'.*known: \.arrow"),
        ("a.parquet.gz", r"a\.parquet\.gz: Parquet cannot be read compressed as a whole: decompress it"),
        ("text.parquet", r"text\.parquet: cannot be read as Parquet: .*\nis it whole"),
        ("half.parquet", r"half\.parquet: cannot be read as Parquet"),
        ("none.parquet", r"none\.parquet: cannot be read as Parquet"),
        ("text.arrow", r"text\.arrow: cannot be read as Arrow"),
        ("none.arrow", r"none\.arrow: cannot be read as Arrow"),
        ("half.arrow", r"half\.arrow: cannot be read as Arrow"),
        ("old.feather", r"old\.feather: is Feather version 1"),
        ("rowless.parquet", r"rowless\.parquet: has no rows: a table needs at least one"),
        ("dataset:artwork", "dataset:artwork: no bundled dataset 'artwork'; did you mean 'artworks'"),
    ],
)
def test_file_errors(name: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in [
        "data/films.csv",
        "mixed/a.csv",
        "mixed/b.jsonl",
        "a.xlsx",
        "a.zip",
        "a.cvs",
        "a.parquet.gz",
        "text.parquet",
        "text.arrow",
    ]:
        write(tmp_path / path, "a,b\n1,2\n")
    for path in ["empty/.hidden", "none.parquet", "none.arrow"]:
        write(tmp_path / path, "")
    write(tmp_path / "old.feather", b"FEA1....")
    pq.write_table(ARROW.slice(0, 0), "rowless.parquet")
    pq.write_table(ARROW, "whole.parquet")
    pa.feather.write_feather(ARROW, "whole.arrow")
    for form in ("parquet", "arrow"):
        write(tmp_path / f"half.{form}", Path(f"whole.{form}").read_bytes()[:-100])
    refuse(name, match)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("pack", [lambda content: gzip.compress(content, mtime=0), zstd], ids=["gz", "zst"])
@pytest.mark.parametrize(
    ("name", "head", "unit", "match"),
    [
        ("a.csv", "a,b\n1,", "x", "row 1: a value or a line is longer than 16,777,216 characters"),
        ("a.csv", 'a,b\n1,2\n1,"', "x" * 999 + "\n", "row 2: a value or a line is longer than 16,777,216 characters"),
        ("a.csv", "a,b", "x", "header: is longer than 4,194,304 bytes"),
        ("a.tsv", "a\tb\n1\t", "x", "row 1: a value or a line is longer"),
        ("a.jsonl", '{"a": "', "x", "line 1: is longer than 16,777,216 bytes"),
        ("a.json", '[{"a": "', "x", "cannot be read as JSON"),
        ("a.txt", "a\nb", "x", "row 2: is longer than 16,777,216 bytes"),
    ],
)
def test_lines_that_are_longer_than_memory(
    pack: Callable[[bytes], bytes], name: str, head: str, unit: str, match: str, tmp_path: Path
) -> None:
    """A small file that would be 40 MB: refused before its line is held; Python's allocations are what is measured."""
    ending = ".zst" if pack is zstd else ".gz"
    path = write(tmp_path / (name + ending), pack((head + unit * (40_000_000 // len(unit)) + "\n").encode()))
    assert Path(path).stat().st_size < 100_000
    tracemalloc.start()
    try:
        refuse(path, match)
        assert tracemalloc.get_traced_memory()[1] < 150_000_000
    finally:
        tracemalloc.stop()
