"""A fit that was killed goes on with its finished stages and groups, and ends with the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from feat2vec.encode import encoder as encoder_module
from feat2vec.encode.encoder import Encoded, fit
from feat2vec.encode.finished_steps import FinishedSteps, link_or_copy
from feat2vec.encode.workspace import PieceSizes
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.table.table import Batch, RowPlace, Table, open_table, stages
from tests.encode.tables import (
    EVERY,
    EVERY_ROWS,
    SAME,
    SAME_SCHEMA,
    TABLE,
    as_text,
    differences,
    files_below,
    lookup,
    refuse,
    schema_of,
)

SMALL = PieceSizes(stage_bytes=-1, rows_per_piece=4, rows_per_block=3, held_key_bytes=40)
SHARED = {
    "from": {"column": "bag", "share": "to"},
    "to": {"column": "bag", "extractor": lookup(multi=True)},
    "left": {"column": "votes", "share": "right"},
    "right": {"column": "votes", "extractor": lookup(bins=3)},
    "x": {"column": "score", "share": "y"},
    "y": {"column": "score", "extractor": "numeric"},
    "first": {"column": "key", "share": "second"},
    "second": {"column": "piped", "extractor": "lookup"},
    "levelled": {"column": "seen"},
}
SCHEMAS: dict[str, Schema] = {
    "classes": schema_of(EVERY, objective={"type": "softmax", "target": "piped"}, model={"ranks": [2, 8]}, id="text"),
    "numbers": schema_of(
        {name: EVERY[name] for name in ("key", "bins", "vector")},
        objective={"type": "regression", "target": "score", "weight": "weight"},
    ),
    "text": SAME_SCHEMA,
    "shared": read_schema(
        {
            "version": 1,
            "groups": SHARED,
            "model": {"ranks": [2, 4], "levels": {"columns": {"levelled": "level"}, "counts": [5]}},
        }
    ),
}


class KilledError(BaseException):
    """A process that ends at once."""


@pytest.fixture(
    params=[pytest.param(name, marks=() if name in ("classes", "shared") else pytest.mark.slow) for name in SCHEMAS]
)
def schema(request: pytest.FixtureRequest) -> Schema:
    return SCHEMAS[request.param]


@pytest.fixture
def data(tmp_path: Path, schema: Schema) -> Path:
    """A table in three files."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = pa.Table.from_pylist(EVERY_ROWS, TABLE)
    rows = rows.append_column("level", pa.array([1 + i % 2 for i in range(len(rows))]))
    rows = rows.append_column("weight", pa.array([float(i) for i in range(len(rows))]))
    if schema is SCHEMAS["text"]:
        rows = as_text(SAME)
    for part in range(3):
        third = rows.slice(part * len(rows) // 3, len(rows) // 3)
        if schema is SCHEMAS["text"]:
            pa.csv.write_csv(third, folder / f"{part}.csv")
        else:
            pq.write_table(third, folder / f"{part}.parquet")
    return folder


def killed(target: Any, name: str, calls: int) -> Any:
    """Let a method fail, once it has been called so often."""
    method, done = getattr(target, name), iter(range(calls))

    def failing(*arguments: Any, **options: Any) -> Any:
        if next(done, None) is None:
            raise KilledError
        return method(*arguments, **options)

    return mock.patch.object(target, name, failing)


PLACES = {
    "first stage": (FinishedSteps, "record_stage", 0),
    "second stage": (FinishedSteps, "record_stage", 1),
    "third stage": (FinishedSteps, "record_stage", 2),
    "all stages": (FinishedSteps, "note_all_read", 0),
    "no group": (FinishedSteps, "record_group", 0),
    "some groups": (FinishedSteps, "record_group", 2),
    "rows": (encoder_module, "write_rows", 0),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "place",
    [pytest.param(name, marks=() if name in ("second stage", "some groups") else pytest.mark.slow) for name in PLACES],
)
def test_a_fit_that_was_killed_goes_on(tmp_path: Path, schema: Schema, data: Path, place: str) -> None:
    whole = fit(schema, data, tmp_path / "whole", sizes=SMALL)
    steps, out = tmp_path / "steps", tmp_path / "killed"
    target, name, calls = PLACES[place]
    with killed(target, name, calls), pytest.raises(KilledError):
        fit(schema, data, out, sizes=SMALL, steps=steps)
    finished = len(FinishedSteps(steps).stages)
    assert finished == min(calls if name == "record_stage" else 3, 3)
    assert not out.exists()
    reads: list[str] = []
    with mock.patch.object(Table, "_normal", noted(Table._normal, reads)):
        resumed = fit(schema, data, out, sizes=SMALL, steps=steps)
    assert {Path(read).stem for read in reads} == {"0", "1", "2"} - {str(part) for part in range(finished)}
    assert differences(whole, resumed) == {}
    assert encoder_files(whole, tmp_path / "a") == encoder_files(resumed, tmp_path / "b")
    assert files_below(tmp_path / "whole") == files_below(out)


def noted(method: Any, reads: list[str]) -> Any:
    """The method that casts the rows of a source, with a note of the source."""

    def noting(table: Table, raw: pa.RecordBatch, names: list[str], source: str, first_row: int) -> Any:
        reads.append(source)
        return method(table, raw, names, source, first_row)

    return noting


def encoder_files(encoded: Encoded, folder: Path) -> dict[str, bytes]:
    encoded.encoder.save(folder)
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


def test_a_problem_is_told_with_the_row_of_the_whole_table(tmp_path: Path) -> None:
    schema = schema_of({"a": "a", "b": ("b", "numeric")})
    for part, numbers in enumerate(["1\n2\n", "3\nx\n"]):
        cells = [f"k{part},{number}\n" for number in numbers.split()]
        (tmp_path / f"{part}.csv").write_text("a,b\n" + "".join(cells))
    data, steps = str(tmp_path / "*.csv"), tmp_path / "steps"
    problems = refuse("row 2", lambda: fit(schema, data, tmp_path / "out", sizes=SMALL))
    with killed(FinishedSteps, "record_stage", 1), pytest.raises((KilledError, Exception)):
        fit(schema, data, tmp_path / "out", sizes=SMALL, steps=steps)
    assert len(FinishedSteps(steps).stages) == 1
    assert refuse("row 2", lambda: fit(schema, data, tmp_path / "out", sizes=SMALL, steps=steps)) == problems


def test_a_file_has_a_second_name_or_a_copy(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    link_or_copy(tmp_path / "a", tmp_path / "inside" / "b")
    with mock.patch("os.link", side_effect=OSError):
        link_or_copy(tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "inside" / "b").read_text() == (tmp_path / "c").read_text() == "content"
    assert (tmp_path / "inside" / "b").samefile(tmp_path / "a")
    assert not (tmp_path / "c").samefile(tmp_path / "a")


@pytest.mark.parametrize("place", [(0, 0), (0, 3), (1, 0), (1, 4), (2, 0)])
def test_a_table_is_read_from_a_place_on(tmp_path: Path, place: tuple[int, int]) -> None:
    for part in range(2):
        pq.write_table(pa.table({"x": [10 * part + i for i in range(4)]}), tmp_path / f"{part}.parquet")
    table = open_table(tmp_path)
    batches = list(table.batches(["x"], RowPlace(*place)))
    numbers = [number for batch in batches for number in batch.data.column("x").to_pylist()]
    assert numbers == [10 * part + i for part in range(2) for i in range(4) if (part, i) >= place]
    assert [(batch.part, batch.first_row) for batch in batches] == [(n // 10, n % 10) for n in first_numbers(batches)]
    if batches:
        *_, last = stages(table, ["x"], start=RowPlace(*place))
        assert last.end == RowPlace(1, 4)


def first_numbers(batches: list[Batch]) -> list[int]:
    return [batch.data.column("x")[0].as_py() for batch in batches]
