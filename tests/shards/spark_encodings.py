"""Encodes tables by Spark and by DuckDB, and prints where the two differ: a process of its own, as it starts Java.

`python -m tests.shards.spark_encodings FOLDER every same`, or `FOLDER killed`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import feat2vec
from feat2vec.shards.encoded_folder import MANIFEST
from feat2vec.shards.spark_fit import SparkFit
from tests.encode.tables import EVERY_ROWS, EVERY_SCHEMA, SAME, SAME_SCHEMA, arrow, csv_of
from tests.training.tables import LABELLED, SCHEMA, table


def write_every(folder: Path) -> Any:
    """Typed columns of all kinds, in three files; one group is a vector that is sorted as one blob."""
    rows = arrow(EVERY_ROWS).append_column(
        "wide", [[[float(j % (i % 3 + 1)) - 1 for j in range(20)] for i in range(30)]]
    )
    piped = pa.array(["a", "b", None] * 10)
    rows = rows.set_column(rows.column_names.index("piped"), "piped", piped)
    for part, (start, size) in enumerate([(0, 7), (7, 3), (10, 20)]):
        pq.write_table(rows.slice(start, size), folder / f"{part}.parquet")
    data = EVERY_SCHEMA.model_dump(mode="json")
    data["model"] = {"dim": 4}
    data["groups"]["wide"] = {"column": "wide", "extractor": "vector"}
    return data


def write_same(folder: Path) -> Any:
    """The same as text without types, in CSV files."""
    for part in range(2):
        (folder / f"{part}.csv").write_bytes(csv_of(SAME.slice(part * 12, 12)))
    return SAME_SCHEMA


def write_people(folder: Path) -> Any:
    """Lookups, a bag and a target, with rows that have none, and joint sets of groups."""
    rows = table(3000)
    good = pa.array([None if i % 17 == 3 else value for i, value in enumerate(rows["good"].to_pylist())], pa.int64())
    rows = rows.set_column(rows.column_names.index("good"), "good", good)
    for part in range(3):
        pq.write_table(rows.slice(part * 1000, 1000), folder / f"{part}.parquet")
    groups = {name: SCHEMA["groups"][name] for name in ("who", "tags")}
    groups["who"] = {"column": "who", "extractor": {"type": "lookup", "min_count": 30}}
    return {**LABELLED, "groups": groups}


def write_noise(folder: Path) -> Any:
    """Rows with a joint set of groups, in one file."""
    pq.write_table(table(500), folder / "0.parquet")
    groups = {name: SCHEMA["groups"][name] for name in ("who", "place")}
    groups["more"] = {"column": "tags", "extractor": {"type": "lookup", "multi": True, "max_share": 0.2}}
    return {**SCHEMA, "groups": groups, "noise": {"joint": [["who", "place"]]}}


TABLES = {"every": write_every, "same": write_same, "people": write_people, "noise": write_noise}


class KilledError(BaseException):
    """A process that ends at once: nothing is tidied up."""


def go_on_after_a_kill(folder: Path) -> dict[str, list[str]]:
    """Encode by Spark with a kill in between: what differs from DuckDB's, and the steps that were not done again."""
    (folder / "rows").mkdir()
    schema, rows = write_people(folder / "rows"), str(folder / "rows")
    kept: list[str] = []
    whole = feat2vec.encode_table(schema, rows, folder / "whole")
    step, write_pieces, groups_before = SparkFit._step, SparkFit._pieces, iter(range(1))

    def failing(*arguments: Any) -> Any:
        if next(groups_before, None) is None:
            raise KilledError
        return write_pieces(*arguments)

    def noting(fit: SparkFit, name: str, query: str) -> Path:
        if (fit.steps / name / "_SUCCESS").exists():
            kept.append(name)
        return step(fit, name, query)

    with mock.patch.object(SparkFit, "_pieces", failing), contextlib.suppress(KilledError):
        feat2vec.encode_table(schema, rows, folder / "out", engine="spark")
    with mock.patch.object(SparkFit, "_step", noting):
        out = feat2vec.encode_table(schema, rows, folder / "out", engine="spark", resume=True)
    is_same = (out / MANIFEST).read_bytes() == (whole / MANIFEST).read_bytes()
    return {"killed": [] if is_same else ["manifest"], "kept": kept}


def main(folder: Path, names: list[str]) -> None:
    """Print, by the name of each table, what differs in the manifests; these hold the digests of all files."""
    different: dict[str, list[str]] = go_on_after_a_kill(folder) if names == ["killed"] else {}
    for name in names if names != ["killed"] else ():
        rows = folder / name
        rows.mkdir()
        schema = TABLES[name](rows)
        manifests = []
        for engine in ("duckdb", "spark"):
            out = feat2vec.encode_table(schema, str(rows), folder / f"{name}-{engine}", engine=engine)
            manifests.append(json.loads((out / MANIFEST).read_text()))
        first, second = manifests
        parts = first["parts"] | second["parts"]
        different[name] = [part for part in parts if first["parts"].get(part) != second["parts"].get(part)]
        different[name] += [key for key in first if key not in ("parts", "digest") and first[key] != second[key]]
    sys.stdout.write(json.dumps(different) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
