"""`split`: a table's rows as two files, those to learn from and those to measure on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Bools, Floats
from feat2vec.errors import UserError, naming_arguments
from feat2vec.table.date_forms import DateForms, DatesOfForm
from feat2vec.table.numbers import NEEDED, NEEDED_OF_TYPED, days_of, numbers_of, trimmed
from feat2vec.table.rewriting import Rewriting, rewriting
from feat2vec.table.table import Table, open_table, stages
from feat2vec.table.types import Kind, is_list, is_text
from feat2vec.table.written_dates import written_dates
from feat2vec.writing import folder_place, new_folder, refuse_inputs_inside, signed_parquet

if TYPE_CHECKING:
    import pyarrow.parquet as pq

KIND = "split"  # of the folder, as its mark says
TRAIN, TEST = "train.parquet", "test.parquet"
BYTES_PER_ROW_GROUP = 32 << 20  # at least
REMEDY = "--by: takes a column of dates or numbers"
ColumnKind: TypeAlias = Kind | Literal["time"]  # a time of day is one of some first day


@dataclass(frozen=True)
class SplitRows:
    """The two files of `split`, and what is in them.

    Attributes:
        train: The file of the rows to learn from.
        test: The file of the rows to measure on.
        train_rows: How many rows the first has.
        test_rows: How many rows the second has.
        first_test_value: The lowest value of the column `by` among the test rows, as text; None without `by`.
        without_value: How many rows have no value in the column `by`; they are among the training rows.
        left_out: Columns that cannot be written, such as those of Python objects of several types.

    Example:
        >>> parts = feat2vec.split(films, "by-year", by="year")
        >>> parts.test.name, parts.first_test_value
        ('test.parquet', '1974')

    """

    train: Path
    test: Path
    train_rows: int
    test_rows: int
    first_test_value: str | None = None
    without_value: int = 0
    left_out: tuple[str, ...] = ()


class _TestRows(NamedTuple):
    """Which rows [rows] are test rows, and what `SplitRows` says of the column that they were chosen by."""

    is_test: Bools
    first_value: str | None = None
    without_value: int = 0


def split(
    data: object,
    out: str | Path,
    test: float = 0.2,
    by: str | None = None,
    seed: int = 0,
    *,
    force: bool = False,
) -> SplitRows:
    """Write a table's rows as two Parquet files, train.parquet and test.parquet, in the order of the table.

    Types are kept, also those that feat2vec does not read. Of a CSV, columns whose text follows from its numbers are
    written as numbers, and the others as text; feat2vec reads the text of all of them again, as it reads the CSV.

    Args:
        data: The table: a file, a folder, a frame, `dataset:NAME`, ...
        out: The folder that is made.
        test: The share of the rows that the test part has.
        by: A column of dates or numbers: the rows with the latest values are the test part. Rows of one value stay on
            one side, so that the share may differ; rows without a value are training rows. None draws at random.
        seed: Of the random draw.
        force: Replace an earlier split.

    Returns:
        The files, and how many rows they have.

    Raises:
        UserError: Something is wrong with an argument, the table or the place.

    Example:
        >>> parts = feat2vec.split(films, "parts", test=0.25)
        >>> parts.train_rows, parts.test_rows
        (45, 15)

    """
    with naming_arguments():
        return write_split(data, out, test, by, seed, force=force)


def write_split(data: object, out: str | Path, test: float, by: str | None, seed: int, *, force: bool) -> SplitRows:
    """`split`, whose messages name the options of the command."""
    if isinstance(test, bool) or not isinstance(test, (int, float)) or not 0 < test < 1:
        raise UserError(f"--test: expected a share of the rows between 0 and 1, such as 0.2; received {test!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UserError(f"--seed: expected a whole number from 0; received {seed!r}")
    place, table = folder_place(out, KIND, force=force), open_table(data)
    refuse_inputs_inside([place.path], table.files)
    written = rewriting(table)
    if not written.columns:
        raise UserError(f"{table.name}: has no column of a type that can be written")
    chosen = _random_rows(written, test, seed) if by is None else _latest_rows(table, by, test)
    with new_folder(place) as folder:
        _write_parts(written, chosen.is_test, folder)
    test_rows = int(chosen.is_test.sum())
    return SplitRows(
        place.path / TRAIN,
        place.path / TEST,
        len(chosen.is_test) - test_rows,
        test_rows,
        chosen.first_value,
        chosen.without_value,
        written.left_out,
    )


def _random_rows(written: Rewriting, share: float, seed: int) -> _TestRows:
    """A random draw, the same as that of a recipe's `split: {test: share, seed: seed}`."""
    table = written.table
    total = sum(batch.data.num_rows for batch in table.batches(written.columns[:1]))
    test_rows = round(share * total)
    if not 0 < test_rows < total:
        raise UserError(f"{table.name}: has {total} rows; {share:g} of them leave none on one side; give more rows")
    is_test = np.zeros(total, np.bool_)
    is_test[np.random.default_rng(seed).permutation(total)[:test_rows]] = True
    return _TestRows(is_test)


def _latest_rows(table: Table, column: str, share: float) -> _TestRows:
    """The rows with the highest values, all that are at least as high as the bound that is nearest to the share."""
    numbers, kind = _numbers(table, column)
    ascending = np.sort(numbers[~np.isnan(numbers)])
    if not len(ascending) or ascending[0] == ascending[-1]:
        value = "no value" if not len(ascending) else f"one value, {_value_text(ascending[0], kind)},"
        raise UserError(f"{table.name}: column {column!r} has {value} in all rows; name another for --by")
    wanted = share * len(ascending)
    bounds, first_places = np.unique(ascending, return_index=True)
    rows_from_bound = len(ascending) - first_places[1:]  # [bounds - 1]; all rows are no test part
    nearest_bound = bounds[1:][np.abs(rows_from_bound - wanted).argmin()]
    with np.errstate(invalid="ignore"):
        is_test: Bools = numbers >= nearest_bound
    return _TestRows(is_test, _value_text(nearest_bound, kind), int(np.isnan(numbers).sum()))


def _numbers(table: Table, column: str) -> tuple[Floats, ColumnKind]:
    """A column of dates or numbers, as `numbers_of` reads it, or `written_dates`: [rows], NaN where missing."""
    if column in table.columns and is_list(table.columns[column]):
        raise UserError(f"{table.name}: column {column!r} holds lists", REMEDY)
    kind: Kind | None = None
    parts: list[Floats] = []
    try:
        for stage in stages(table, [column]):
            numbers, kind_of_stage = numbers_of(stage, column, kind, nan="missing")
            if not np.isnan(numbers).all():
                kind = kind_of_stage
            parts.append(numbers)
    except UserError as error:
        dates = _dates_of_form(table, column)
        if dates is None:
            raise UserError(*map(_without_extractors, error.problems), REMEDY) from None
        parts = [days_of(written_dates(stage, column, dates.form)) for stage in stages(table, [column])]
        return np.concatenate(parts), "date" if dates.has_days else "time"
    return np.concatenate(parts), kind or "number"


def _dates_of_form(table: Table, column: str) -> DatesOfForm | None:
    """In which way all texts of a column are dates, as `init` finds it; None if there is none."""
    if column not in table.columns or not is_text(table.columns[column]):
        return None
    forms = DateForms(column)
    for stage in stages(table, [column]):
        texts = trimmed(stage, stage.column(column).combine_chunks()).drop_null()
        if len(texts):
            forms.add_texts(stage, texts)
    return forms.best


def _without_extractors(problem: str) -> str:
    """A problem of `numbers_of`, which says what a schema can do, as one of a column to split by."""
    for needed in (NEEDED, NEEDED_OF_TYPED):
        if problem.endswith(needed):
            return problem.removesuffix(needed) + "a number or a date is needed"
    return problem


def _value_text(number: float, kind: ColumnKind) -> str:
    """A number, or the date that it stands for."""
    if kind not in ("date", "time"):
        return f"{number:.15g}"
    moment = np.datetime64(round(number * 86_400_000_000), "us")
    if kind == "time":
        return str(moment.astype("datetime64[s]")).partition("T")[2]
    return str(moment.astype("datetime64[D]") if number == int(number) else moment.astype("datetime64[s]"))


# --- the files ------------------------------------------------------------------------------------------------------


def _write_parts(written: Rewriting, is_test: Bools, folder: Path) -> None:
    """Write both files in one pass over the table."""
    columns = written.columns
    schema = written.schema([written.field(name) for name in columns])
    first_row = 0
    with _part_file(folder / TRAIN, schema) as train_file, _part_file(folder / TEST, schema) as test_file:
        for batch in written.table.batches(columns):
            arrays = [written.column(name, batch.data.column(name)) for name in columns]
            rows = pa.Table.from_arrays(arrays, schema=schema)
            is_test_row = is_test[first_row : first_row + len(rows)]
            train_file.add(rows.filter(pa.array(~is_test_row)))
            test_file.add(rows.filter(pa.array(is_test_row)))
            first_row += len(rows)


@dataclass
class _PartFile:
    """A Parquet file, whose rows are collected until they are enough for a row group."""

    writer: pq.ParquetWriter
    collected: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Write rows, now or later."""
        self.collected.append(rows)
        if sum(part.nbytes for part in self.collected) > BYTES_PER_ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write what is collected."""
        rows = pa.concat_tables(self.collected) if self.collected else None
        if rows is not None and len(rows):
            self.writer.write_table(rows)
        self.collected.clear()


@contextmanager
def _part_file(path: Path, schema: pa.Schema) -> Iterator[_PartFile]:
    with signed_parquet(path, schema) as writer:
        part_file = _PartFile(writer)
        yield part_file
        part_file.flush()


__all__ = ["SplitRows", "split", "write_split"]
