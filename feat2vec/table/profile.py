"""What a table's columns hold: every column is profiled over all of its rows, in bounded memory."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import Lookup
from feat2vec.table.database import connect
from feat2vec.table.keys import items_of
from feat2vec.table.numbers import numbers_of, vectors_of
from feat2vec.table.stages import Ints, Kind, Stage, stages
from feat2vec.table.table import Batch, Table

Part = Literal["year", "month", "day", "weekday", "hour"]
SAMPLE, STAGE_BYTES = 10_000, 256 << 20
NUMBER = r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?"
VECTOR = re.compile(rf"\s*[\[(]?\s*(?=\S*\.){NUMBER}(?:[,;\s]+{NUMBER})+\s*[\])]?\s*")
PARTS: tuple[Part, ...] = ("year", "month", "day", "weekday", "hour")
EVERY = Lookup(multi=True, max_items=2**31 - 1)
UNREADABLE = (UserError, pa.ArrowInvalid)


@dataclass
class Column:
    """What is known of a column after some of its rows."""

    name: str
    type: pa.DataType
    typed: bool
    kind: Kind | None = None  # None until there is a value; "text" is what is neither a number nor a date
    rows: int = 0
    missing: int = 0
    absent: int = 0  # rows with NaN or, in text, NA and the like: missing if the column is one of numbers
    absent_keys: int = 0
    distinct: int = 0  # values, or items in lists
    varies: bool = False  # whether lists differ
    low: float = np.inf
    high: float = -np.inf
    middle: float = 0.0  # the median of the first stage's distinct numbers
    whole: bool = True
    parts: dict[str, None] | None = field(default_factory=dict)  # `month=5` and so on; None if they cannot be told
    size: int | None = None  # of vectors
    lengths: Any = None  # of the first stage's lists
    sample: list[Any] = field(default_factory=list)  # some of the first stage's distinct values
    vector: bool = True  # whether text is vectors, so far
    codes: Any = field(default_factory=blake2b)  # columns that are recodings of one another have the same
    refused: str = ""

    @property
    def present(self) -> int:
        return self.rows - self.missing

    @property
    def share(self) -> float:
        return self.distinct / max(self.present, 1)

    def see(self, stage: Stage) -> pa.Array:
        """Take in some rows, and return their distinct values."""
        self.rows += stage.rows
        if self.refused or pa.types.is_null(self.type):
            self.missing += stage.rows
            return pa.array([], pa.string())
        if pa.types.is_nested(self.type):
            return self._see_lists(stage)
        encoded = stage.column(self.name).cast(self.type).combine_chunks().dictionary_encode()
        keys, codes = encoded.dictionary, pc.fill_null(encoded.indices, -1).to_numpy()
        self.codes.update(codes)
        counts = np.bincount(codes[codes >= 0], minlength=len(keys))
        if pa.types.is_string(self.type):
            full = pc.not_equal(keys, "")
            keys, counts = keys.filter(full), counts[full.to_numpy(zero_copy_only=False)]
            self._see_vectors(stage, keys)
        self.missing += stage.rows - int(counts.sum())
        if self.kind != "text" and not pa.types.is_boolean(self.type):
            self._see_numbers(_only(stage, self.name, keys), keys, counts)
        self.sample = self.sample or _values(keys.take(pa.array(_thin(len(keys)))))
        return keys

    def _see_numbers(self, only: Stage, keys: pa.Array, counts: Any) -> None:
        try:
            numbers, kind = numbers_of(only, self.name, self.kind, "missing")
        except UNREADABLE as error:
            self.kind = "text"
            if pa.types.is_floating(self.type) or pa.types.is_temporal(self.type):
                self.refused = _reason(error)
            return
        gone = np.isnan(numbers)
        self.absent += int(counts[gone].sum())
        self.absent_keys = max(self.absent_keys, int(gone.sum()))
        some = numbers[~gone]
        if not len(some):
            return
        if kind == "boolean" or (kind == "number" and self._codes(keys, some)):
            self.kind = "text"
            return
        self.kind = kind
        self.middle = float(np.median(some)) if self.low > self.high else self.middle
        self.low, self.high = min(self.low, float(some.min())), max(self.high, float(some.max()))
        self.whole = self.whole and bool((some == np.floor(some)).all())
        if kind == "date" and self.parts is not None:
            try:
                self.parts |= dict.fromkeys(items_of(only, self.name, Lookup(parts=PARTS)).keys.to_pylist())
            except UNREADABLE:
                self.parts = None

    def _codes(self, keys: pa.Array, numbers: Any) -> bool:
        """Whether numbers are codes: as a float64, 00501 would lose its zeros, and 17 digits the last one."""
        if pa.types.is_string(self.type):
            return bool(pc.any(pc.match_substring_regex(keys, r"^\s*[-+]?(0\d|\d{16,}\s*$)")).as_py())
        whole = pa.types.is_integer(self.type) or (pa.types.is_decimal(self.type) and self.type.scale == 0)
        return whole and bool(np.abs(numbers).max() > 2**53)

    def _see_vectors(self, stage: Stage, keys: pa.Array) -> None:
        if not self.vector or not len(keys):
            return
        self.vector = VECTOR.fullmatch(keys[0].as_py()) is not None
        try:
            if self.vector:
                self.size = vectors_of(_only(stage, self.name, keys), self.name, self.size)[1].shape[1]
        except UNREADABLE:
            self.vector = False

    def _see_lists(self, stage: Stage) -> pa.Array:
        keys = pa.array([], pa.string())
        flat: Any
        try:
            if pa.types.is_floating(self.type.value_type) or getattr(self.type.value_type, "scale", 0) > 0:
                present, vectors = vectors_of(stage, self.name, self.size)
                self.size = vectors.shape[1] if len(vectors) else self.size
                lengths, flat = present.astype(np.int32) * np.int32(vectors.shape[1]), vectors.reshape(-1)
            else:
                items = items_of(stage, self.name, EVERY)
                lengths, flat, keys = items.lengths, items.codes, items.keys
        except UNREADABLE as error:
            self.refused = _reason(error)
            return keys
        some = lengths[lengths > 0]
        self.missing += len(lengths) - len(some)
        self.lengths = some if self.lengths is None else self.lengths
        if len(some):
            self.varies |= bool((some != some[0]).any() or (flat.reshape(-1, some[0]) != flat[: some[0]]).any())
        return keys.filter(pc.not_equal(keys, ""))


class _Distinct:
    """How many distinct values columns have; from a second stage on DuckDB counts their hashes, and spills to disk."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.first: dict[int, pa.Array] = {}
        self.connection: Any = None

    def add(self, column: int, keys: pa.Array) -> None:
        """Count the distinct values of a stage."""
        if column not in self.first:
            self.first[column] = keys
            return
        if self.connection is None:
            self.connection = connect(self.folder, file=Path(self.folder) / "distinct.duckdb", memory="1GB")
            self.connection.execute("create table seen (c int, h ubigint)")
            for known, first in self.first.items():
                self._insert(known, first)
        self._insert(column, keys)

    def counts(self) -> Mapping[int, int]:
        """How many distinct values each column has."""
        if self.connection is None:
            return {column: len(keys) for column, keys in self.first.items()}
        query = "select c, count(*) from (select distinct c, h from seen) group by c"
        counts = dict(self.connection.sql(query).fetchall())
        self.connection.close()
        return defaultdict(int, counts)

    def _insert(self, column: int, keys: pa.Array) -> None:
        keys = keys.cast(pa.string()) if pa.types.is_decimal(keys.type) else keys  # DuckDB has none of 76 digits
        self.connection.register("keys", pa.table({"key": keys}))
        self.connection.execute(f"insert into seen select {column}, hash(key) from keys")
        self.connection.unregister("keys")


def profile_table(table: Table) -> tuple[list[Column], dict[str, str]]:
    """The table's columns, and why others cannot be used."""
    left_out: dict[str, str] = {
        name: "its name is empty; give it one to use it" for name in table.columns if name == ""
    }
    while names := [name for name in table.columns if name not in left_out]:
        try:
            return _read(table, names), left_out
        except UserError as error:
            bad = [name for name in names if f"column {name!r}" in str(error)]
            if not table.typed or not bad:  # in a text file it is the file that is wrong
                raise
            left_out[bad[0]] = _reason(error)
    return [], left_out


def _read(table: Table, names: Sequence[str]) -> list[Column]:
    columns = [Column(name, table.columns[name], table.typed) for name in names]
    with tempfile.TemporaryDirectory(prefix="feat2vec-") as folder:
        distinct = _Distinct(folder)
        for stage in stages(table, names, STAGE_BYTES):
            for i, column in enumerate(columns):
                distinct.add(i, column.see(stage))
        counts = distinct.counts()
    for i, column in enumerate(columns):
        column.distinct = counts[i]
        if column.kind != "text":
            column.missing += column.absent
            column.distinct -= column.absent_keys
    return columns


def _values(array: pa.Array) -> list[Any]:
    """Values as Python's, which has no nanoseconds."""
    if getattr(array.type, "unit", "") == "ns":
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    values: list[Any] = array.to_pylist()
    return values


def _only(stage: Stage, name: str, values: pa.Array) -> Stage:
    """These values as if they were all of the column's rows."""
    return Stage(stage.table, [Batch(pa.RecordBatch.from_arrays([values], [name]), stage.table.name, 0)])


def _thin(count: int) -> Ints:
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.int32))


def _reason(error: Exception) -> str:
    """The part of a message that does not say where."""
    text = str(error).splitlines()[0]
    return re.sub(r"^.*?column ('[^']*'|\"[^\"]*\"):? ", "", text)
