"""The same rows from every source give the same bytes."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.errors import UserError
from tests.encode.tables import (
    SAME,
    SAME_ROWS,
    SAME_SCHEMA,
    SAME_TYPES,
    as_text,
    csv_of,
    differences,
    json_of,
)


def cast(**kinds: pa.DataType) -> pa.Table:
    kinds_of = {field.name: kinds.get(field.name, field.type) for field in SAME.schema}
    return pa.table({name: SAME[name].combine_chunks().cast(kind) for name, kind in kinds_of.items()})


def texts_as(kind: pa.DataType) -> pa.Table:
    return cast(**{"name": kind, "title": kind, "class": kind})


def pandas_frame(**missing: object) -> pd.DataFrame:
    """Objects with these for missing values."""
    frame = SAME.to_pandas(integer_object_nulls=True)
    for name, value in missing.items():
        objects = [value if row[name] is None else row[name] for row in SAME_ROWS]
        frame[name] = pd.Series(objects, dtype=object)
    return frame


class Stream:
    """The Arrow interface and nothing else."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return SAME.to_reader(max_chunksize=5).__arrow_c_stream__(requested_schema)


FRAMES: dict[str, Callable[[], object]] = {
    "slices": lambda: pa.concat_tables([SAME.slice(0, 7), SAME.slice(7, 1), SAME.slice(8)]),
    "reader": lambda: SAME.to_reader(max_chunksize=3),
    "dataset": lambda: pa.dataset.dataset(SAME),
    "stream": Stream,
    "large": lambda: texts_as(pa.large_string()),
    "view": lambda: texts_as(pa.string_view()),
    "dictionary": lambda: texts_as(pa.dictionary(pa.int8(), pa.string())),
    "dictionaries": lambda: pa.concat_tables(
        [texts_as(pa.dictionary(pa.int32(), pa.large_string())).slice(i, 2).combine_chunks() for i in range(0, 24, 2)]
    ),
    "small numbers": lambda: cast(number=pa.int8(), day=pa.date64()),
    "dictionary of numbers": lambda: cast(number=pa.int64()).set_column(
        1, "number", SAME["number"].combine_chunks().dictionary_encode()
    ),
    "large list": lambda: cast(tags=pa.large_list(pa.large_string()), vector=pa.large_list(pa.float64())),
    "list view": lambda: SAME.set_column(5, "tags", pa.array(SAME["tags"].to_pylist(), pa.list_view(pa.string()))),
    "list of dictionary": lambda: cast(tags=pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "fixed size": lambda: cast(vector=pa.list_(pa.float64(), 3)),
    "binary": lambda: texts_as(pa.binary()),
    "pandas": lambda: SAME.to_pandas(),
    "pandas None": lambda: pandas_frame(name=None, number=None, score=None, seen=None, day=None, tags=None),
    "pandas NaN": lambda: pandas_frame(**dict.fromkeys(["name", "number", "score", "seen", "day", "tags"], np.nan)),
    "pandas NA": lambda: pandas_frame(**dict.fromkeys(["name", "number", "score", "seen", "day", "tags"], pd.NA)),
    "pandas NaT": lambda: pandas_frame(day=pd.NaT, vector=None),
    "pandas nullable": lambda: SAME.to_pandas().convert_dtypes(),
    "pandas categories": lambda: SAME.to_pandas().astype({"name": "category", "title": "category"}),
    "pandas arrow": lambda: SAME.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.DataFrame(SAME),
    "polars lazy": lambda: pl.DataFrame(SAME).lazy(),
    "polars categories": lambda: pl.DataFrame(SAME).with_columns(pl.col("name").cast(pl.Categorical)),
}


FILES: dict[str, Callable[[Path], object]] = {
    "a.parquet": lambda path: pq.write_table(SAME, path),
    "b.parquet": lambda path: pq.write_table(SAME, path, row_group_size=5, use_dictionary=False),
    "a.feather": lambda path: pa.feather.write_feather(SAME, str(path), compression="zstd"),
    "a.arrow": lambda path: pa.feather.write_feather(SAME, str(path), compression="uncompressed"),
    "a.csv": lambda path: path.write_bytes(csv_of(SAME)),
    "a.tsv": lambda path: path.write_bytes(csv_of(SAME, "\t")),
    "a.csv.gz": lambda path: path.write_bytes(gzip.compress(csv_of(SAME))),
    "a.tsv.zst": lambda path: path.write_bytes(pa.Codec("zstd").compress(csv_of(SAME, "\t"), asbytes=True)),
    "pandas.csv": lambda path: as_text(SAME).to_pandas().to_csv(path, index=False),
    "polars.csv": lambda path: pl.DataFrame(as_text(SAME)).write_csv(path),
    "a.jsonl": lambda path: path.write_bytes(json_of(SAME)),
    "a.json": lambda path: path.write_text(json.dumps(SAME_ROWS, default=str, indent=1)),
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(json_of(SAME))),
    "a.ndjson.zst": lambda path: path.write_bytes(pa.Codec("zstd").compress(json_of(SAME), asbytes=True)),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_every_frame_gives_the_same_bytes(make: Callable[[], object], same: Encoded) -> None:
    assert differences(fit(SAME_SCHEMA, make()), same) == {}
    assert same.encoder.encode(make()).rows.tobytes() == same.rows.tobytes()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", FILES)
def test_every_file_gives_the_same_bytes(name: str, same: Encoded, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    assert same.encoder.encode(tmp_path / name).rows.tobytes() == same.rows.tobytes()
    if name in ("pandas.csv", "polars.csv"):  # where 5 is written as 5.0: another key, of a column without a type
        return
    fitted = fit(SAME_SCHEMA, tmp_path / name)
    assert differences(fitted, same) == {}
    assert fitted.encoder.encode(SAME).rows.tobytes() == same.rows.tobytes()


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_folders_and_globs_give_the_same_bytes(ending: str, same: Encoded, tmp_path: Path) -> None:
    write: dict[str, Callable[[pa.Table, Path], object]] = {
        "parquet": pq.write_table,
        "csv": lambda rows, path: path.write_bytes(csv_of(rows)),
        "jsonl": lambda rows, path: path.write_bytes(json_of(rows)),
    }
    for i in range(3):
        write[ending](SAME.slice(8 * i, 8), tmp_path / f"part-{i}.{ending}")
    for source in (tmp_path, f"{tmp_path}/part-*.{ending}"):
        assert differences(fit(SAME_SCHEMA, source), same) == {}


def test_a_tensorflow_dataset_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no null: only text, labels and lists can be missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets as tfds

        importlib.import_module("tensorflow")
    f = tfds.features
    full: list[dict[str, Any]] = [
        {**row, "number": i % 4, "score": i / 8, "seen": i % 3 == 0, "tags": row["tags"] or [], "vector": [0.5, 1.0, i]}
        for i, row in enumerate(SAME_ROWS)
    ]

    features = {
        **{"name": f.Text(), "number": np.int64, "score": np.float64, "seen": np.bool_, "day": f.Text()},
        **{"tags": f.Sequence(f.Text()), "title": f.Text(), "vector": f.Tensor(shape=(3,), dtype=np.float64)},
        "class": f.ClassLabel(names=["no", "perhaps", "yes"]),
    }

    def info(self: Any) -> Any:
        return tfds.core.DatasetInfo(builder=self, features=f.FeaturesDict(features), disable_shuffling=True)

    def examples(_: Any) -> Any:
        for i, row in enumerate(full):
            yield i, {**row, **{name: str(row[name] or "") for name in ("name", "day", "title")}}

    methods = {
        **{
            "VERSION": tfds.core.Version("1.0.0"),
            "__module__": __name__,
            "_info": info,
            "_generate_examples": examples,
        },
        "_split_generators": lambda self, _: {"train": self._generate_examples()},
    }
    builder: Any = type("SameRows", (tfds.core.GeneratorBasedBuilder,), methods)
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    fitted = fit(SAME_SCHEMA, f"tfds:{builder.name}")
    assert differences(fitted, fit(SAME_SCHEMA, pa.Table.from_pylist(full, SAME_TYPES))) == {}


def test_file_names_that_are_not_utf8_are_printed_escaped(tmp_path: Path) -> None:
    schema, rows = os.fsdecode(b"caf\xe9.yaml"), os.fsdecode(b"caf\xe9.csv")
    (tmp_path / schema).write_text("version: 1\ngroups: {a: {column: a}, b: {column: b}}\n")
    (tmp_path / rows).write_text("a,b\nx,y\n")
    command = [sys.executable, "-c", "from feat2vec.cli import main; main()", "check", schema]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == b"caf\\udce9.yaml: no problems, 2 groups, objective nce\n"
    done = subprocess.run([*command, "--data", rows], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"caf\\udce9.csv: its name is not UTF-8: rename the file\n")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_lists_of_nothing_but_null(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{form}"
    if form == "jsonl":
        path.write_text('{"a": [null], "b": "x"}\n{"a": [null, null], "b": "y"}\n')
    else:
        pq.write_table(pa.table({"a": pa.array([[None], [None, None]]), "b": ["x", "y"]}), path)
    groups = {"a": {"column": "a", "extractor": {"type": "lookup", "multi": True}}, "b": {"column": "b"}}
    with pytest.raises(UserError, match="the group 'a' has no value in any row"):
        fit({"version": 1, "groups": groups}, path)
    encoder = fit({"version": 1, "groups": groups}, pa.table({"a": [["p"], ["q"]], "b": ["x", "y"]})).encoder
    (entries,) = encoder.entries(path)
    assert entries["a"].present.tolist() == [False, False]  # bags without an item
