"""What a table's columns hold: every column is profiled over all of its rows, in bounded memory."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Float32s, Floats, Int64s, Ints
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import Lookup
from feat2vec.table.date_forms import DATE_PARTS, DateForms
from feat2vec.table.integrity import DamagedError
from feat2vec.table.keys import DistinctCounter, items_of
from feat2vec.table.number_forms import NumberForms
from feat2vec.table.numbers import dates_of, numbers_of, vectors_of
from feat2vec.table.table import Batch, Stage, Table, stages
from feat2vec.table.types import Kind
from feat2vec.table.written_dates import written_dates

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
SAMPLE_SIZE = 10_000
CODED_ROWS, CODED_VALUES = 50_000, 20_000_000  # of each column, and of all together
PROFILE_STAGE_BYTES = 256 << 20
NO_DATE = np.iinfo(np.int64).min
NUMBER = r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?"
VECTOR = re.compile(rf"\s*[\[(]?\s*(?=\S*\.){NUMBER}(?:[,;\s]+{NUMBER})+\s*[\])]?\s*")
UNCUT_BAG = Lookup(multi=True, max_items=2**31 - 1)
INDEX = re.compile(r"__index_level_\d+__")  # the name that pandas gives an index without one, in Parquet and Arrow
UNREADABLE = (UserError, pa.ArrowInvalid)


@dataclass
class ColumnProfile:
    """What is known of a column after some of its rows.

    Values are read by the functions that the encoder uses, so that what is proposed can be encoded.
    """

    name: str
    type: pa.DataType
    typed: bool
    kind: Kind | None = None  # None until there is a value; "text" is what is neither a number nor a date
    refusal: str = ""  # why the column cannot be used
    rows: int = 0
    missing: int = 0
    absent: int = 0  # rows with NaN or, in text, NA and the like: missing if the column is one of numbers
    absent_keys: int = 0  # distinct values among them
    distinct: int = 0  # values, or items in lists
    sample: list[object] = field(default_factory=list)  # distinct values of the first stage
    fingerprint: blake2b = field(default_factory=blake2b)  # equal for columns that are recodings of one another
    codes: Ints | None = None  # which of its values each of the first rows has, -1 for none
    coded_rows: int = CODED_ROWS  # at most
    coded_keys: pa.Array | None = None  # the values that `codes` counts, of what may be dates
    # Of numbers and dates
    low: float = np.inf
    high: float = -np.inf
    quantiles: Floats | None = None  # at QUANTILES, of the numbers of the first stage's rows
    first_numbers: Floats | None = None  # of the first rows, as many as `codes` are of; NaN for none
    are_integers: bool = True  # whether all numbers are, so far
    date_parts: dict[str, None] | None = field(default_factory=dict)  # `month=5` and so on; None: cannot be told
    written_dates: DateForms = field(init=False)  # in other ways than 2024-01-31
    written_numbers: NumberForms = field(init=False)  # in other ways than 1234.5
    instants: Int64s | None = None  # the dates of the first rows, in microseconds since 1970; NO_DATE where missing
    # Of lists and vectors
    lists_differ: bool = False
    list_lengths: Ints | None = None  # of lists with items, in the first stage that has some
    vector_size: int | None = None
    text_is_vectors: bool = True  # so far

    def __post_init__(self) -> None:
        """Know nothing of dates and of numbers in text yet."""
        self.written_dates = DateForms(self.name)
        self.written_numbers = NumberForms(self.name)

    @property
    def present(self) -> int:
        """The number of rows with a value."""
        return self.rows - self.missing

    @property
    def distinct_share(self) -> float:
        """The number of distinct values over the number of rows with a value."""
        return self.distinct / max(self.present, 1)

    @property
    def is_list(self) -> bool:
        return bool(pa.types.is_nested(self.type))

    @property
    def is_string(self) -> bool:
        return bool(pa.types.is_string(self.type))

    def add_stage(self, stage: Stage) -> pa.Array:
        """Take the rows of a stage into account, and return their distinct values."""
        self.rows += stage.rows
        if self.refusal or pa.types.is_null(self.type):
            self.missing += stage.rows
            return pa.array([], pa.string())
        return self._add_lists(stage) if self.is_list else self._add_values(stage)

    def _add_values(self, stage: Stage) -> pa.Array:
        encoded = stage.column(self.name).cast(self.type).combine_chunks().dictionary_encode()
        keys = encoded.dictionary
        codes = pc.fill_null(encoded.indices, -1).to_numpy()  # [rows], which of the keys
        counts = np.bincount(codes[codes >= 0], minlength=len(keys))  # [keys]
        self.fingerprint.update(codes)
        is_value = np.ones(len(keys), np.bool_)
        if self.is_string:
            not_empty = pc.not_equal(keys, "")
            is_value = not_empty.to_numpy(zero_copy_only=False)
            codes = np.where(np.append(is_value, False)[codes], codes, -1)
            keys, counts = keys.filter(not_empty), counts[is_value]
            self._add_vectors_in_text(stage, keys)
        is_first = self.codes is None
        if self.codes is None:
            self.codes = codes[: self.coded_rows].astype(np.int32)
            self.coded_keys = encoded.dictionary[: int(self.codes.max(initial=-1)) + 1]
        self.missing += stage.rows - int(counts.sum())
        if self.kind != "text" and not pa.types.is_boolean(self.type):
            numbers = self._add_numbers(_stage_of(stage, self.name, keys), keys, counts)
            if is_first and self.kind == "number":
                number_of_code = np.full(len(is_value) + 1, np.nan)  # the last is that of rows without a value
                number_of_code[:-1][is_value] = numbers
                self.first_numbers = number_of_code[self.codes]
        self._add_written_forms(_stage_of(stage, self.name, keys), keys, counts)
        if self.kind != "date" and self.written_dates.best is None:
            self.coded_keys = None
        if not self.sample:
            self.sample = _python_values(keys.take(pa.array(_evenly_spaced(len(keys)))))
        return keys

    def read_instants(self, table: Table) -> None:
        """Read the dates of the first rows, once all rows have said how they are written."""
        best = self.written_dates.best
        if self.codes is None or self.coded_keys is None or (self.kind != "date" and best is None):
            return
        batch = Batch(pa.RecordBatch.from_arrays([self.coded_keys], [self.name]), table.name, 0)
        stage = Stage(table, [batch])
        dates = dates_of(stage, self.name) if best is None else written_dates(stage, self.name, best.form)
        micros = pc.fill_null(dates.cast(pa.int64()), NO_DATE).to_numpy(zero_copy_only=False)  # [keys]
        self.instants = np.append(micros, NO_DATE)[self.codes]
        self.coded_keys = None

    def _add_numbers(self, keys_stage: Stage, keys: pa.Array, counts: Int64s) -> Floats:
        """Read distinct values as numbers or dates, [keys]; if one is neither, the column is text."""
        try:
            numbers, kind = numbers_of(keys_stage, self.name, self.kind, "missing")
        except UNREADABLE as error:
            self.kind = "text"
            if pa.types.is_floating(self.type) or pa.types.is_temporal(self.type):
                self.refusal = _reason_of(error)
            return np.zeros(len(keys))
        is_absent = np.isnan(numbers)
        self.absent += int(counts[is_absent].sum())
        self.absent_keys = max(self.absent_keys, int(is_absent.sum()))
        number_of_key = numbers
        numbers, counts = numbers[~is_absent], counts[~is_absent]
        if not len(numbers):
            return number_of_key
        if kind == "boolean" or (kind == "number" and self._are_codes(keys, numbers)):
            self.kind = "text"
            return number_of_key
        self.kind = kind
        if self.low > self.high:  # the first numbers
            self.quantiles = _quantiles(numbers, counts)
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.are_integers = self.are_integers and bool((numbers == np.floor(numbers)).all())
        if kind == "date" and self.date_parts is not None:
            try:
                parts = items_of(keys_stage, self.name, Lookup(parts=DATE_PARTS))
                self.date_parts |= dict.fromkeys(parts.keys.to_pylist())
            except UNREADABLE:
                self.date_parts = None
        return number_of_key

    def _add_written_forms(self, keys_stage: Stage, keys: pa.Array, counts: Int64s) -> None:
        """See whether distinct values that are none to the type of the column are dates or numbers that are written."""
        if self.kind == "number" and self.are_integers:
            self.written_dates.add_numbers(keys_stage, self.low, self.high)
        elif self.kind == "text" and self.is_string and len(keys):
            self.written_dates.add_texts(keys_stage, keys)
        elif len(keys):
            self.written_dates.give_up()
        if self.kind == "text" and self.is_string and len(keys):
            self.written_numbers.add_texts(keys_stage, keys, counts)
        elif self.kind == "number" and self.is_string:  # of a text file; later rows may have other text
            self.written_numbers.add_plain(counts, self.low, self.high, are_integers=self.are_integers)
        elif self.kind is not None and len(keys):
            self.written_numbers.give_up()

    def _are_codes(self, keys: pa.Array, numbers: Floats) -> bool:
        """Whether numbers are codes: as a float64, 00501 would lose its zeros, and 17 digits the last one."""
        if self.is_string:
            return bool(pc.any(pc.match_substring_regex(keys, r"^\s*[-+]?(0\d|\d{16,}\s*$)")).as_py())
        has_integers = pa.types.is_integer(self.type) or (pa.types.is_decimal(self.type) and self.type.scale == 0)
        return has_integers and bool(np.abs(numbers).max() > 2**53)

    def _add_vectors_in_text(self, stage: Stage, keys: pa.Array) -> None:
        if not self.text_is_vectors or not len(keys):
            return
        if VECTOR.fullmatch(keys[0].as_py()) is None:
            self.text_is_vectors = False
            return
        try:
            _, vectors = vectors_of(_stage_of(stage, self.name, keys), self.name, self.vector_size)
            self.vector_size = vectors.shape[1]
        except UNREADABLE:
            self.text_is_vectors = False

    def _add_lists(self, stage: Stage) -> pa.Array:
        """Read lists of fractions as vectors, and other lists as bags of keys."""
        keys = pa.array([], pa.string())
        items: Float32s | Ints  # [items of all rows]
        try:
            if self._holds_fractions():
                present, vectors = vectors_of(stage, self.name, self.vector_size)
                if len(vectors):
                    self.vector_size = vectors.shape[1]
                lengths, items = present.astype(np.int32) * np.int32(vectors.shape[1]), vectors.reshape(-1)
            else:
                bags = items_of(stage, self.name, UNCUT_BAG)
                lengths, items, keys = bags.lengths, bags.codes, bags.keys
        except UNREADABLE as error:
            self.refusal = _reason_of(error)
            return keys
        lengths_with_items = lengths[lengths > 0]
        self.missing += len(lengths) - len(lengths_with_items)
        if self.list_lengths is None and len(lengths_with_items):
            self.list_lengths = lengths_with_items
        self.lists_differ |= _any_list_differs(lengths_with_items, items)
        return keys.filter(pc.not_equal(keys, ""))

    def _holds_fractions(self) -> bool:
        item_type = self.type.value_type
        return bool(pa.types.is_floating(item_type)) or getattr(item_type, "scale", 0) > 0


class TableProfile(NamedTuple):
    """The columns of a table, and why others cannot be used."""

    columns: list[ColumnProfile]
    left_out: dict[str, str]


def profile_table(table: Table, stage_bytes: int = PROFILE_STAGE_BYTES) -> TableProfile:
    """Read a table once and profile its columns; again without a column that cannot be read, if there is one.

    Args:
        table: to be profiled.
        stage_bytes: how much of the table is held at once.

    Raises:
        UserError: when a text file is not well-formed, or any source is damaged; what else is wrong in a column of
            another source is a reason to leave the column out.

    >>> from feat2vec.table.table import open_table
    >>> films = pa.table({"year": [1960, 1969, None], "title": ["Eve", "Kes", ""]})
    >>> columns, left_out = profile_table(open_table(films))
    >>> [(column.name, column.kind, column.distinct, column.missing) for column in columns]
    [('year', 'number', 2, 1), ('title', 'text', 2, 1)]

    """
    left_out = {name: "the index that pandas wrote beside the rows" for name in table.columns if INDEX.fullmatch(name)}
    while names := [name for name in table.columns if name not in left_out]:
        try:
            columns = _profile_columns(table, names, stage_bytes)
            left_out |= {column.name: _why_nameless(column) for column in columns if column.name == ""}
            return TableProfile([column for column in columns if column.name != ""], left_out)
        except DamagedError:
            raise
        except UserError as error:
            unreadable = [name for name in names if f"column {name!r}" in str(error)]
            if not table.typed or not unreadable:  # in a text file it is the file that is wrong
                raise
            left_out[unreadable[0]] = _reason_of(error)
    return TableProfile([], left_out)


def _why_nameless(column: ColumnProfile) -> str:
    counts_rows = column.kind == "number" and column.are_integers and column.low in (0, 1)
    if counts_rows and column.distinct == column.rows == column.high - column.low + 1:
        return f"an index that pandas wrote beside the rows: {column.low:.0f} to {column.high:.0f}"
    return "its name is empty; give it one to use it"


def _profile_columns(table: Table, names: Sequence[str], stage_bytes: int) -> list[ColumnProfile]:
    columns = [ColumnProfile(name, table.columns[name], table.typed) for name in names]
    for column in columns:
        column.coded_rows = min(CODED_ROWS, CODED_VALUES // len(columns))
    with tempfile.TemporaryDirectory(prefix="feat2vec-") as folder:
        counter = DistinctCounter(folder)
        for stage in stages(table, names, stage_bytes):
            for i, column in enumerate(columns):
                counter.add(i, column.add_stage(stage))
        distinct_counts = counter.counts()
    for i, column in enumerate(columns):
        column.read_instants(table)
        column.distinct = distinct_counts[i]
        if column.kind != "text":
            column.missing += column.absent
            column.distinct -= column.absent_keys
    return columns


def _any_list_differs(lengths: Ints, items: Float32s | Ints) -> bool:
    """Whether lists, none of them empty, differ; `items` are those of all lists, one list after the other."""
    if not len(lengths):
        return False
    if (lengths != lengths[0]).any():
        return True
    lists = items.reshape(-1, lengths[0])  # [lists, items of each]
    return bool((lists != lists[0]).any())


def _python_values(array: pa.Array) -> list[object]:
    """The values as Python's, which has no nanoseconds."""
    if getattr(array.type, "unit", "") == "ns":
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    values: list[object] = array.to_pylist()
    return values


def _stage_of(stage: Stage, name: str, values: pa.Array) -> Stage:
    """A stage whose column `name` holds these values and nothing else."""
    return Stage(stage.table, [Batch(pa.RecordBatch.from_arrays([values], [name]), stage.table.name, 0)])


def _quantiles(numbers: Floats, counts: Int64s) -> Floats:
    """The quantiles of numbers of which each comes so often, at QUANTILES."""
    order = np.argsort(numbers)
    ranks = np.cumsum(counts[order])  # [numbers]
    places = np.searchsorted(ranks, np.array(QUANTILES) * ranks[-1])  # [quantiles]
    quantiles: Floats = numbers[order][np.minimum(places, len(numbers) - 1)]
    return quantiles


def _evenly_spaced(count: int) -> Ints:
    """At most SAMPLE_SIZE of the numbers below `count`."""
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLE_SIZE)).astype(np.int32))


def _reason_of(error: Exception) -> str:
    """The part of a message that does not say where."""
    text = str(error).splitlines()[0]
    return re.sub(r"^.*?column ('[^']*'|\"[^\"]*\"):? ", "", text)
