"""JSON files: types come from all rows, and what is wrong is named with its line or row."""

from __future__ import annotations

import codecs
import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from feat2vec.errors import UserError
from feat2vec.table.table import open_table
from tests.table.tables import JSON_LINES, ROWS, column, refuse, rows, write, zstd

JSON_ARRAY = json.dumps(ROWS, default=str, indent=2).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", JSON_LINES),
        ("a.ndjson", codecs.BOM_UTF8 + JSON_LINES),
        ("a[1]*.json", JSON_ARRAY),
        ("a.jsonl.gz", gzip.compress(JSON_LINES, mtime=0)),
        ("a.json.zst", zstd(JSON_ARRAY)),
        ("a.jsonl.zstd", zstd(JSON_LINES)),
    ],
)
def test_json(name: str, content: bytes, tmp_path: Path) -> None:
    """JSON has no dates: they stay the text that they are."""
    table = open_table(write(tmp_path / name, content))
    assert table.typed
    assert rows(table) == [{**row, "day": row["day"] and str(row["day"])} for row in ROWS]


@pytest.mark.parametrize("rows_before", [3, 2**17 + 1])
def test_json_types_come_from_all_the_rows(rows_before: int, tmp_path: Path) -> None:
    early = '{"n": 1, "s": null, "date": "2024-01-01", "id": "550e8400-e29b-41d4-a716-446655440000", "e": []}\n'
    late = '{"n": 2.5, "s": "007", "date": "12:30:00", "id": "1", "e": [], "new": true}\n'
    table = open_table(write(tmp_path / "a.jsonl", early * rows_before + late))
    read = rows(table)
    assert len(read) == rows_before + 1
    assert (table.columns["n"], table.columns["e"]) == (pa.float64(), pa.list_(pa.null()))
    assert read[0] == {
        **{"n": 1.0, "s": None, "date": "2024-01-01", "id": "550e8400-e29b-41d4-a716-446655440000"},
        **{"e": [], "new": None},
    }
    assert read[-1] == {"n": 2.5, "s": "007", "date": "12:30:00", "id": "1", "e": [], "new": True}


def test_large_json_numbers_that_float64_holds_exactly(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 0.5}\n{"a": 100000000000000000000}\n')
    assert column(path) == [0.5, 1e20]


@pytest.mark.parametrize(
    "number",
    [
        *["9007199254740993", "9223372036854775807", "12345678901234567890123456789.1", "0.100000000000000001"],
        *["9007199254740993.0", "9007199254740993e0", "-90071992547409930.0E-1", "1234567890123456.7", "4e-324"],
    ],
)
@pytest.mark.parametrize("row", ['{{"b": "x", "a": {}}}', '{{"a": [1, {}, 0.5]}}'])
def test_json_numbers_that_become_another_are_refused(number: str, row: str, tmp_path: Path) -> None:
    other = '{"a": [1.5]}' if "[" in row else '{"a": 1.5}'
    path = write(tmp_path / "a.jsonl", f"{other}\n{other}\n{row.format(number)}\n")
    refuse(path, rf"a\.jsonl: row 3: column 'a': {number} has more digits than a column with fractions keeps")


def test_json_numbers_that_are_floats(tmp_path: Path) -> None:
    """Floats of programs that write more digits than are needed, and integers of a column without fractions."""
    numbers = ["1.5", "9007199254740992", "0.10000000000000000555", "0.10000000000000001", "3.0000000000000000000"]
    numbers += ["9007199254740992.0", "1234567890123456.8", "0.12345678901234566", "0e-400", "-0.0000000000000000"]
    numbers += ["5.684341886080802e-14", "2.2250738585072014e-308", "5e-324", "1.7976931348623157e308"]
    path = write(tmp_path / "a.jsonl", "".join(f'{{"a": {number}, "id": {2**53 + 1}}}\n' for number in numbers))
    assert column(path, "a") == [float(number) for number in numbers]
    assert column(path, "id") == [2**53 + 1] * len(numbers)


@pytest.mark.parametrize("number", ["1e-400", "-1.234567890123456789e-99999999999999999999", "0." + "0" * 400 + "1"])
def test_json_numbers_that_become_0_are_refused(number: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"a": 0.5}}\n{{"a": {number}}}\n')
    refuse(path, rf"a\.jsonl: row 2: column 'a': {number[:40]} is too small for a float of 64 bits")


@pytest.mark.parametrize("number", ["1e400", "-1.5E+309", "1e99999999999999999999"])
@pytest.mark.parametrize("other", ["0.5", "7"])
def test_json_numbers_that_become_infinite_are_refused(number: str, other: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"a": {other}}}\n{{"a": {number}}}\n')
    refuse(path, rf"a\.jsonl: row 2: column 'a': {re.escape(number)} is too large for a float of 64 bits")


def test_json_numbers_of_columns_that_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 0.5, "b": 1}\n{"a": 9007199254740993, "b": 2}\n')
    assert column(path, "b") == [1, 2]
    table = open_table(path)
    for columns in (["b"], ["a", "b"], ["a"]):
        if "a" in columns:
            refuse(table, r"row 2: column 'a': 9007199254740993 has more digits", columns)
        else:
            assert len(rows(table, columns)) == 2


def test_json_keys_that_differ_in_case(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"A": 1, "a": "x"}\n')
    assert rows(path, ["A"]) == [{"A": 1}]
    assert rows(path, ["a"]) == [{"a": "x"}]
    refuse(path, "'A' and 'a' differ only in case")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"a": 1}\n{"a": 2\n{"a": 3}\n', r"a\.jsonl: line 2: is not JSON"),
        ('{"a": 1}\n\n5\n', r"a\.jsonl: line 3: expected an object, received 5"),
        (b'{"a": "x"}\n{"a": "\xff"}\n', r"line 2: is not UTF-8: b'.*\\xff"),
        ('{"a": 1}\n{"a": 18446744073709551615}\n', "line 2: column 'a': 18446744073709551615 does not fit 64 bits"),
        (
            '{"a": 1.5, "b": "1180591620717411303424, 5"}\n{"a": 1180591620717411303425}\n',
            "row 2: column 'a': 1180591620717411303425 does not fit 64 bits: write it as a string",
        ),
        ('{"a": 1}\n{"a": 9223372036854775808}\n', "line 2: column 'a': 9223372036854775808 does not fit 64 bits"),
        (
            '[{"a": [1]},\n{"a": [9223372036854775809, 0.5]}]',
            "row 2: column 'a': 9223372036854775809 does not fit 64 bits",
        ),
        ('{"a": 1}\n{"a": [1]}\n', "column 'a' is of type mixed kinds of value"),
        ('{"a": {"b": 1}}\n', "column 'a' is of type objects, which cannot be used"),
        ('{"a": [{"b": 1}]}\n', "column 'a' is of type list of objects"),
        ('[{"a": 1}', "cannot be read as JSON, one object a line or one array of objects"),
        ("", "has no rows"),
        ("{}\n", "has no columns"),
        ("[[1], {}]", "not every row is an object"),
        ("[]", "has no rows"),
    ],
)
def test_json_errors(content: str | bytes, match: str, tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.jsonl", content), match)


DEEP = "[" * 1000 + "1" + "]" * 1000


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"a": 1}\n{"a": ' + DEEP + "}\n", "line 2: is nested too deeply|line 2: column 'a': is nested too deeply"),
        ('{"a": 1}\n{"a": ' + '{"b":' * 1000 + "1" + "}" * 1000 + "}\n", "line 2: .*is nested too deeply"),
        ('{"a": ' + "[" * 125 + "1" + "]" * 125 + "}\n", "line 1: column 'a': is nested too deeply"),
        ('[{"a": 1},\n{"a": ' + DEEP + "}]", "is nested too deeply"),
        ('{"a": 1}\n{"a": "\\ud800"}\n', "line 2: column 'a': holds half of a surrogate pair, which is no text"),
        ('[{"a": 1}, {"b": 2, "a": ["\\udfff"]}]', "row 2: column 'a': holds half of a surrogate pair"),
        ('{"a": 0.5}\n{"a": ' + "9" * 400 + "}\n", r"row 2: column 'a': 9{40}\.\.\. does not fit 64 bits"),
        ('{"a": 0.5}\n{"a": -' + "9" * 9000 + "}\n", r"row 2: column 'a': -9+\.\.\. does not fit 64 bits"),
    ],
    ids=["list", "object", "list of 125", "array", "surrogate", "surrogate in an array", "400 digits", "9,000 digits"],
)
def test_json_that_no_table_holds(content: str, match: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", content)
    with pytest.raises(UserError, match=match) as caught:
        rows(path)
    assert all(len(line.replace(path, "")) <= 200 for line in str(caught.value).splitlines())
