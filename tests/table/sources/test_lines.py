"""Files of plain text, a row for each line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from feat2vec.table.table import open_table
from tests.table.tables import S, column, refuse, write, zstd


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_lines_of_text(name: str, tmp_path: Path) -> None:
    text = '\ufeffThe cat\r\n\nsat, on "it"\tand é'.encode()
    pack = {"gz": lambda each: gzip.compress(each, mtime=0), "zst": zstd}.get(name.split(".")[-1], bytes)
    path = write(tmp_path / name, pack(text))
    assert open_table(path).columns == {"text": S}
    assert column(path, "text") == ["The cat", None, 'sat, on "it"\tand é']


def test_lines_that_cannot_be_read(tmp_path: Path) -> None:
    refuse(
        write(tmp_path / "a.txt", b"ab\nc\xe9\n"), r"a.txt: row 2: is not UTF-8 \(byte 2 is 0xe9\): save it as UTF-8"
    )
    refuse(write(tmp_path / "b.txt", b""), "b.txt: has no rows")
    refuse(write(tmp_path / "c.txt.gz", gzip.compress(b"word " * 99)[:-12]), "c.txt.gz: cannot be read: .*whole")


def test_lines_of_text_are_read_in_batches_of_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", ("x" * 2**23 + "\n") * 10)
    assert len(list(open_table(path).batches())) > 1
