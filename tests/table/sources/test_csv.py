"""CSV and TSV files: every value is text, and what is wrong is named with its row."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feat2vec.table.table import open_table
from tests.table.tables import ROWS, column, refuse, rows, write, zstd

CSV = 'id,name,tags\n007,NA,\n,True,x\n1.0,"a ""b""\n, c",""\n'
CSV_ROWS = [
    {"id": "007", "name": "NA", "tags": None},
    {"id": None, "name": "True", "tags": "x"},
    {"id": "1.0", "name": 'a "b"\n, c', "tags": None},
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV.encode()),
        ("a.csv", codecs.BOM_UTF8 + CSV.encode()),
        ("a.csv", CSV.rstrip("\n").encode()),
        ("a.csv", f"\n{CSV}\n\n".encode()),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("a.csv.zst", zstd(CSV.encode())),
        ("a.tsv", CSV.replace(",", "\t").replace("\t c", ", c").encode()),
        ("a.tab.zstd", zstd(CSV.replace(",", "\t").replace("\t c", ", c").encode())),
        *(("a.csv", CSV.replace(",", other).replace(f"{other} c", ", c").encode()) for other in ";\t|"),
    ],
)
def test_csv_is_text(name: str, content: bytes, tmp_path: Path) -> None:
    table = open_table(write(tmp_path / name, content))
    assert not table.typed
    assert table.columns == dict.fromkeys(["id", "name", "tags"], pa.string())
    assert rows(table) == CSV_ROWS
    assert rows(table, ["tags"]) == [{"tags": row["tags"]} for row in CSV_ROWS]


def test_csv_of_the_ten_rows(tmp_path: Path) -> None:
    text = [{name: None if value is None else str(value) for name, value in row.items()} for row in ROWS]
    pd.DataFrame(text).to_csv(tmp_path / "a.csv", index=False)
    assert rows(tmp_path / "a.csv") == text


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), width=st.integers(1, 3), delimiter=st.sampled_from([",", "\t"]), crlf=st.booleans())
def test_csv_gives_back_what_was_written(
    data: st.DataObject, width: int, delimiter: str, crlf: bool, tmp_path: Path
) -> None:
    text = st.text(st.sampled_from("a東 ,;\t\n\"|'\\" + "\r" * crlf), max_size=4)
    table = data.draw(st.lists(st.lists(text, min_size=width, max_size=width), min_size=1, max_size=6))
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\r\n" if crlf else "\n")
    writer.writerows([[f"c{i}" for i in range(width)], *table])
    path = write(tmp_path / ("a.csv" if delimiter == "," else "a.tsv"), stream.getvalue())
    assert [list(row.values()) for row in rows(path)] == [[value or None for value in row] for row in table]


def test_csv_line_ends_and_odd_quotes(tmp_path: Path) -> None:
    assert column(write(tmp_path / "crlf.csv", 'a,b\r\n1,"x\r\ny"\r\n2,5" disc\r\n'), "b") == ["x\r\ny", '5" disc']
    assert column(write(tmp_path / "cr.csv", "a,b\r1,x\r")) == ["1"]
    assert column(write(tmp_path / "one.csv", 'a\nx\n\n""\ny\n')) == ["x", None, None, "y"]
    assert column(write(tmp_path / "index.csv", ",a\n0,x\n")) == ["x"]
    assert column(write(tmp_path / "quoted.csv", '"a;b",c\n1,2\n'), "a;b") == ["1"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("a,b\n1,2\n1,2,3\n", r"a\.csv: row 2: expected 2 fields, received 3: .*double quotes"),
        ('a,b\n"1\n1",2\n\n1\n', r"a\.csv: row 2: expected 2 fields, received 1"),
        (b"a,b\n1,2\n3,caf\xe9\n", r"a\.csv: row 2: column 'b' is not UTF-8: b'caf\\xe9': save it as UTF-8"),
        (b"a,b\n1,2\n3,x\0\n", r"a\.csv: row 2: column 'b' holds a NUL byte"),
        ('a,b\n1,2\n3,"x\n4,5\n', r"a\.csv: row 2: a quote is opened and never closed"),
        ('a,b\n1,2\n"3,x\n4,5', r"a\.csv: row 2: a quote is opened and never closed"),
        ('a,b\n1,2\n3,"x\n' + "4,5\n" * 3_000_000, r"a\.csv: row 2: a quote is opened and never closed"),
        (
            'a,b\n1,2\n3,"' + "é" * 10_000_000 + '"\n4,5\n',
            r"a\.csv: row 2: has 20,000,001 bytes, 20,000,000 of them in column 'b', and 8,388,608 can be read",
        ),
        ("a,b\n1,2\n".encode("utf-16"), r"a\.csv: is UTF-16, expected UTF-8"),
        (b"caf\xe9,b\n1,2\n", r"a\.csv: header: is not UTF-8 \(byte 4 is 0xe9\)"),
        (b"a\0,b\n1,2\n", r"a\.csv: header: holds a NUL byte"),
        ('"a,b\n1,2\n', r"a\.csv: header: a quote is opened and never closed"),
        ("a,b,a\n1,2,3\n", r"a\.csv: two columns are called 'a'"),
        ("", r"a\.csv: is empty: expected a header line"),
        ("a,b\n", r"a\.csv: has no rows"),
    ],
)
def test_csv_errors(content: str | bytes, match: str, tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.csv", content), match)


def test_names_of_columns_that_are_no_names(tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.csv", "a," + "x" * 200_000 + "\n1,2\n"), "header: field larger than field limit")
