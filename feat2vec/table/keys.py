"""Items of columns: how values of text, numbers and lists become keys; the number of distinct ones."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Float32s, Ints
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import ItemsSpec, TokensSpec
from feat2vec.table.database import connect
from feat2vec.table.numbers import concat, dates_of, flatten, floats_of
from feat2vec.table.spelling import spell_decimals, spell_floats, spell_times
from feat2vec.table.table import Stage, refuse_first, refuse_unless_text
from feat2vec.table.types import is_list
from feat2vec.table.written_dates import written_dates

if TYPE_CHECKING:
    import duckdb


BETWEEN_WORDS = r"[^\p{L}\p{M}\p{N}_]+"
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
UNLIMITED = 2**31 - 1
NOT_A_KEY = "a key must be finite; write null for a missing one"


@dataclass(frozen=True)
class Items:
    """The items of a stage's rows, one row after the other.

    Attributes:
        lengths: the number of items of each row, [rows].
        codes: the key of each item, as an index into `keys`, [items].
        keys: the distinct keys; some may be the key of no item.
        weights: of each item, if the group has weights, [items].
        truncated: the number of rows that had more than `max_items` items.

    """

    lengths: Ints
    codes: Ints
    keys: pa.StringArray
    weights: Float32s | None
    truncated: int


def items_of(stage: Stage, column: str, spec: ItemsSpec) -> Items:
    """Return the keys of a lookup group.

    Raises:
        UserError: when a value cannot be a key, or weights do not fit the items.

    """
    if spec.parts:
        return _date_parts(stage, column, spec.parts, spec.dates)
    lengths, values = _items_of_rows(stage, column, spec)
    codes, distinct_values = _distinct(values)
    keys = _spell(stage, column, distinct_values)
    if spec.split == "words":
        keys = _fold(keys)
    elif spec.split is not None:
        keys = pc.utf8_trim_whitespace(keys)
    weights = None if spec.weights is None else _weights(stage, spec.weights, column, lengths)
    return _without_empty_items(lengths, codes, keys, weights, _most_items(spec))


def tokens_of(stage: Stage, column: str, spec: TokensSpec) -> Items:
    """Return the tokens of a text group: Unicode words, casefolded.

    Raises:
        UserError: when the column does not hold text.

    """
    text = stage.column(column)
    refuse_unless_text(stage, column, text, f"{spec.type} needs text")
    lengths, words = _split(text, None)
    codes, distinct_words = _distinct(words)
    return _without_empty_items(lengths, codes, _fold(distinct_words), None, spec.max_tokens)


def _most_items(spec: ItemsSpec) -> int:
    """The number of items of a row that are kept; with `max_share`, that is decided when frequent keys are left out."""
    if not spec.bag:
        return 1
    return spec.max_items if spec.max_share == 1 else UNLIMITED


def _items_of_rows(stage: Stage, column: str, spec: ItemsSpec) -> tuple[Ints, pa.ChunkedArray]:
    """Return the number of items of each row, [rows], and the items, [items]."""
    values = stage.column(column)
    if is_list(values.type):
        return _items_of_lists(stage, column, values, spec)
    if spec.split is not None:
        refuse_unless_text(stage, column, values, "only text can be split")
        return _split(values, _delimiter(spec))
    if not values.null_count:
        return np.broadcast_to(np.int32(1), len(values)), values
    lengths = concat([pc.is_valid(chunk).cast(pa.int32()) for chunk in values.chunks])
    return lengths, pa.chunked_array([chunk.drop_null() for chunk in values.chunks], values.type)


def _items_of_lists(stage: Stage, column: str, lists: pa.ChunkedArray, spec: ItemsSpec) -> tuple[Ints, pa.ChunkedArray]:
    if not spec.bag:
        raise UserError(f"{stage.row(0)}: column {column!r} holds lists ({lists.type}); set `multi: true`")
    if is_list(lists.type.value_type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds lists of lists ({lists.type}); flatten it first")
    lengths, values = flatten(lists)  # [rows], [values]
    if spec.split is None:
        return lengths, values
    refuse_unless_text(stage, column, values, "only text can be split")
    items_of_values, items = _split(values, _delimiter(spec))  # [values], [items]
    rows_of_values = np.repeat(np.arange(len(lengths)), lengths)  # [values]
    items_of_rows = np.bincount(rows_of_values, weights=items_of_values, minlength=len(lengths))
    return items_of_rows.astype(np.int32), items


def _delimiter(spec: ItemsSpec) -> str | None:
    return None if spec.split == "words" else spec.split


def _split(values: pa.ChunkedArray, delimiter: str | None) -> tuple[Ints, pa.ChunkedArray]:
    """Split text at a delimiter or, for None, into Unicode words: the number of items of each text, and the items."""
    lists = []
    for chunk in values.chunks:
        text = chunk.cast(pa.string())
        if delimiter:
            lists.append(pc.split_pattern(text, delimiter))
        else:
            lists.append(pc.split_pattern_regex(_composed(text), BETWEEN_WORDS))
    return flatten(pa.chunked_array(lists, pa.list_(pa.string())))


def _composed(text: pa.StringArray) -> pa.StringArray:
    """Text in NFC: in NFD some signs that separate words end with a mark, which is part of a word."""
    return text if pc.all(pc.string_is_ascii(text)).as_py() else pc.utf8_normalize(text, "NFC")


def _distinct(values: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Return indices into the distinct values, -1 for null, and the distinct values."""
    if pa.types.is_null(values.type):  # of which Arrow makes one value that is null
        return np.full(len(values), -1, np.int32), pa.array([], pa.string())
    values = values.unify_dictionaries() if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    codes = concat([pc.fill_null(chunk.indices.cast(pa.int32()), -1) for chunk in values.chunks])
    return codes, values.chunk(0).dictionary if values.num_chunks else pa.array([], pa.string())


def _spell(stage: Stage, column: str, values: pa.Array) -> pa.StringArray:
    """Return distinct values as keys."""
    if pa.types.is_floating(values.type):
        if not pc.all(pc.is_finite(values)).as_py():
            refuse_first(stage, column, lambda item: item is not None and not np.isfinite(item), NOT_A_KEY)
        return spell_floats(values)
    if pa.types.is_decimal(values.type):
        return spell_decimals(values)
    if pa.types.is_timestamp(values.type):
        return spell_times(values)
    return values.cast(pa.string())


def _fold(words: pa.StringArray) -> pa.StringArray:
    """Return words casefolded, in NFC."""
    folded = [word and unicodedata.normalize("NFC", word.casefold()) for word in words.to_pylist()]
    return pa.array(folded, pa.string())


def _without_empty_items(
    lengths: Ints, codes: Ints, keys: pa.StringArray, weights: Float32s | None, most_items: int
) -> Items:
    """Drop null and empty items, then all but the first `most_items` of each row."""
    keep = codes >= 0  # [items]
    for empty_key in np.flatnonzero(pc.equal(keys, "").to_numpy(zero_copy_only=False)):
        keep &= codes != empty_key
    if not keep.all():
        rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)  # [items]
        lengths = np.bincount(rows[keep], minlength=len(lengths)).astype(np.int32)
        codes, weights = codes[keep], None if weights is None else weights[keep]
    truncated = int((lengths > most_items).sum())
    if truncated:
        first_items = np.cumsum(lengths, dtype=np.int64) - lengths  # [rows]
        position = np.arange(len(codes)) - np.repeat(first_items, lengths)  # [items], of an item in its row
        keep = position < most_items
        lengths = np.minimum(lengths, np.int32(most_items))
        codes, weights = codes[keep], None if weights is None else weights[keep]
    return Items(lengths, codes, keys, weights, truncated)


def _weights(stage: Stage, column: str, items_column: str, lengths: Ints) -> Float32s:
    """Return the weights of all items, [items]; `lengths` are the numbers of items of the rows."""
    lists = stage.column(column)
    if not is_list(lists.type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {lists.type}; weights need a list of numbers a row")
    weight_counts, numbers = flatten(lists)  # [rows], [items]
    if (weight_counts != lengths).any():
        row = int(np.flatnonzero(weight_counts != lengths)[0])
        needed = f"{lengths[row]} weights are needed, one an item of {items_column!r}"
        stage.refuse(row, column, lists[row].as_py(), needed)
    weights = concat([floats_of(chunk, pa.float32()) for chunk in numbers.chunks], np.float32)
    if not np.isfinite(weights).all():
        rows = np.repeat(np.arange(len(lengths)), lengths)  # [items]
        row = int(rows[np.flatnonzero(~np.isfinite(weights))[0]])
        stage.refuse(row, column, lists[row].as_py(), "weights must be finite numbers")
    return weights + np.float32(0)  # -0 and 0 are one weight


def _date_parts(stage: Stage, column: str, parts: Sequence[str], form: str | None) -> Items:
    """Return bags of `part=value` keys, one for each part of each date."""
    dates = dates_of(stage, column) if form is None else written_dates(stage, column, form)
    is_present = pc.is_valid(dates).to_numpy(zero_copy_only=False)  # [rows]
    lengths = is_present.astype(np.int32) * np.int32(len(parts))
    present = dates.drop_null()
    codes_of_parts: list[Ints] = []  # [present rows] for each part
    keys: list[str] = []
    for part in parts:
        numbers = pc.day_of_week(present) if part == "weekday" else getattr(pc, part)(present)
        encoded = numbers.dictionary_encode()
        codes_of_parts.append(encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32) + len(keys))
        for number in encoded.dictionary.to_pylist():
            keys.append(f"{part}={WEEKDAYS[number] if part == 'weekday' else number}")
    codes = np.stack(codes_of_parts, axis=1).reshape(-1)  # [present rows * parts], row by row
    return Items(lengths, codes, pa.array(keys, pa.string()), None, 0)


MEMORY = "1GB"  # that DuckDB holds before it spills


class DistinctCounter:
    """Counts the distinct values of columns, stage by stage.

    The values of a first stage are held as they are. From the second stage on DuckDB holds hashes of them, and spills
    to disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     counter = DistinctCounter(folder)
    ...     counter.add(0, pa.array(["a", "b"]))
    ...     counter.add(0, pa.array(["b", "c"]))
    ...     counter.counts()[0]
    3

    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._first_keys: dict[int, pa.Array] = {}
        self._connection: duckdb.DuckDBPyConnection | None = None

    def add(self, column: int, keys: pa.Array) -> None:
        """Add the distinct values of a column in one stage."""
        if column not in self._first_keys:
            self._first_keys[column] = keys
            return
        if self._connection is None:
            self._connection = connect(self._folder, file=Path(self._folder) / "distinct.duckdb", memory=MEMORY)
            self._connection.execute("create table seen (c int, h ubigint)")
            for first_column, first_keys in self._first_keys.items():
                self._insert(self._connection, first_column, first_keys)
        self._insert(self._connection, column, keys)

    def counts(self) -> Mapping[int, int]:
        """Return the number of distinct values of each column; nothing can be added afterwards."""
        if self._connection is None:
            return {column: len(keys) for column, keys in self._first_keys.items()}
        query = "select c, count(*) from (select distinct c, h from seen) group by c"
        counts = dict(self._connection.sql(query).fetchall())
        self._connection.close()
        return defaultdict(int, counts)

    @staticmethod
    def _insert(connection: duckdb.DuckDBPyConnection, column: int, keys: pa.Array) -> None:
        keys = keys.cast(pa.string()) if pa.types.is_decimal(keys.type) else keys  # DuckDB has none of 76 digits
        connection.register("keys", pa.table({"key": keys}))
        connection.execute(f"insert into seen select {column}, hash(key) from keys")
        connection.unregister("keys")
