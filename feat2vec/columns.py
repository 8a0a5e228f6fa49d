"""A column's values as keys, numbers or vectors; what cannot be one is named with its row."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.errors import UserError
from feat2vec.specs import ItemsSpec, TokensSpec
from feat2vec.table import Batch, Table

Kind = Literal["text", "number", "boolean", "date"]
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

STAGE_BYTES = 128 << 20
STAGE_ROWS = 1 << 22
BETWEEN_WORDS = r"[^\p{L}\p{M}\p{N}_]+"
DECIMAL = r"^[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"
MISSING_NUMBERS = ("NA", "NaN", "nan", "NULL", "null", "N/A", "None", "<NA>")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Stage:
    """Consecutive batches of a table that are worked on at once."""

    table: Table
    batches: Sequence[Batch]

    @property
    def rows(self) -> int:
        return sum(batch.data.num_rows for batch in self.batches)

    def column(self, name: str) -> pa.ChunkedArray:
        if name not in self.table.columns:  # rows to be encoded may lack columns: all of them are missing
            return pa.chunked_array([pa.nulls(self.rows)])
        chunks = [batch.data.column(name) for batch in self.batches]
        if len({chunk.type for chunk in chunks}) > 1:  # some files have a dictionary, some have none
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
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        raise UserError(f"{self.row(i)}: column {column!r}: received {shown}; {message}")


def stages(table: Table, columns: Sequence[str], max_bytes: int = STAGE_BYTES) -> Iterator[Stage]:
    """The table in stages of bounded size."""
    held: list[Batch] = []
    size = rows = 0
    for batch in table.batches(columns):
        if held and (size + batch.data.nbytes > max_bytes or rows + batch.data.num_rows > STAGE_ROWS):
            yield Stage(table, held)
            held, size, rows = [], 0, 0
        held.append(batch)
        size, rows = size + batch.data.nbytes, rows + batch.data.num_rows
    if held:
        yield Stage(table, held)


# --- keys -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Items:
    """The items of a stage's rows, one after the other."""

    lengths: Ints  # [rows]
    codes: Ints  # [items] which of the keys
    keys: pa.StringArray
    weights: npt.NDArray[np.float32] | None  # [items]
    truncated: int  # rows that had more than max_items


def items_of(stage: Stage, column: str, spec: ItemsSpec) -> Items:
    """The keys of a lookup group."""
    values = stage.column(column)
    if spec.parts:
        return _date_parts(stage, column, spec.parts)
    lengths, values = _unnest(stage, column, values, spec)
    codes, keys = _distinct(values)
    keys = _spell(stage, column, keys)
    if spec.split is not None:
        keys = pa.array([_fold(key) for key in keys.to_pylist()], pa.string()) if spec.split == "words" else _trim(keys)
    weights = None if spec.weights is None else _weights(stage, spec.weights, column, lengths)
    return _keep(lengths, codes, keys, weights, spec.max_items if spec.bag else 1)


def tokens_of(stage: Stage, column: str, spec: TokensSpec) -> Items:
    """The tokens of a text group: Unicode words, casefolded."""
    values = stage.column(column)
    _refuse_unless_text(stage, column, values, f"{spec.type} needs text")
    lengths, values = _split(values, None)
    codes, keys = _distinct(values)
    keys = pa.array([_fold(key) for key in keys.to_pylist()], pa.string())
    return _keep(lengths, codes, keys, None, spec.max_tokens)


def respell(keys: pa.StringArray, kind: Kind) -> pa.StringArray:
    """Keys from text as a column of that kind spells them: `5.0` is 5 where keys are numbers, `True` is true."""
    if kind == "boolean":
        return pc.utf8_lower(keys)
    if kind != "number":
        return keys
    decimal = pc.match_substring_regex(keys, DECIMAL)
    numbers = pc.cast(pc.if_else(decimal, keys, "0"), pa.float64())
    return pc.if_else(decimal, _spell_floats(numbers), keys)


def kind_of_type(type_: pa.DataType) -> Kind:
    """What kind of keys a typed column has."""
    while is_list(type_):
        type_ = type_.value_type
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return "number"
    return "date" if pa.types.is_temporal(type_) else "text"


def _unnest(stage: Stage, column: str, values: pa.ChunkedArray, spec: ItemsSpec) -> tuple[Ints, pa.ChunkedArray]:
    """How many items each row has, and the items."""
    if is_list(values.type):
        if not spec.bag:
            raise UserError(f"{stage.row(0)}: column {column!r} holds lists ({values.type}); set `multi: true`")
        if is_list(values.type.value_type):
            raise UserError(f"{stage.row(0)}: column {column!r} holds lists of lists ({values.type}); flatten it first")
        lengths, values = _flatten(values)
        if spec.split is None:
            return lengths, values
        _refuse_unless_text(stage, column, values, "only text can be split")
        parts, values = _split(values, None if spec.split == "words" else spec.split)
        bags = np.repeat(np.arange(len(lengths)), lengths)
        return np.bincount(bags, weights=parts, minlength=len(lengths)).astype(np.int32), values
    if spec.split is None:
        lengths = _concat([pc.is_valid(chunk).cast(pa.int32()) for chunk in values.chunks])
        return lengths, pa.chunked_array([chunk.drop_null() for chunk in values.chunks], values.type)
    _refuse_unless_text(stage, column, values, "only text can be split")
    return _split(values, None if spec.split == "words" else spec.split)


def _split(values: pa.ChunkedArray, delimiter: str | None) -> tuple[Ints, pa.ChunkedArray]:
    """Text to its parts, at a delimiter or (None) into Unicode words."""
    parts = [
        pc.split_pattern(text, delimiter) if delimiter else pc.split_pattern_regex(_normal(text), BETWEEN_WORDS)
        for text in (chunk.cast(pa.string()) for chunk in values.chunks)
    ]
    return _flatten(pa.chunked_array(parts, pa.list_(pa.string())))


def _normal(text: pa.StringArray) -> pa.StringArray:
    """Text in NFC: in NFD some signs that separate words end with a mark, which is part of one."""
    return text if pc.all(pc.string_is_ascii(text)).as_py() else pc.utf8_normalize(text, "NFC")


def _flatten(values: pa.ChunkedArray) -> tuple[Ints, pa.ChunkedArray]:
    lengths = _concat([pc.fill_null(pc.list_value_length(chunk), 0).cast(pa.int32()) for chunk in values.chunks])
    return lengths, pa.chunked_array([chunk.flatten() for chunk in values.chunks], values.type.value_type)


def _distinct(values: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Codes into the distinct values, -1 for null."""
    values = values.unify_dictionaries() if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    codes = _concat([pc.fill_null(chunk.indices.cast(pa.int32()), -1) for chunk in values.chunks])
    return codes, values.chunk(0).dictionary if values.num_chunks else pa.array([], pa.string())


def _spell(stage: Stage, column: str, keys: pa.Array) -> pa.StringArray:
    """Distinct values as keys."""
    if pa.types.is_floating(keys.type):
        bad = keys.filter(pc.invert(pc.is_finite(keys)))
        if len(bad):
            _refuse_first(stage, column, lambda item: item is not None and not np.isfinite(item), NOT_A_KEY)
        return _spell_floats(keys)
    if pa.types.is_timestamp(keys.type):
        whole = pc.replace_substring_regex(keys.cast(pa.string()), r"\.000000(Z?)$", r"\1")
        return pc.replace_substring_regex(whole, r" 00:00:00$", "")  # midnight is the day, as in a text of the table
    return keys.cast(pa.string())


def _spell_floats(numbers: pa.Array) -> pa.StringArray:
    whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), 2.0**53))
    as_int = pc.cast(pc.if_else(whole, numbers, 0.0), pa.int64())
    return pc.if_else(whole, as_int.cast(pa.string()), numbers.cast(pa.string()))


def _fold(word: str | None) -> str | None:
    return word and unicodedata.normalize("NFC", word.casefold())


def _trim(keys: pa.StringArray) -> pa.StringArray:
    return pc.utf8_trim_whitespace(keys)


def _keep(
    lengths: Ints, codes: Ints, keys: pa.StringArray, weights: npt.NDArray[np.float32] | None, most: int
) -> Items:
    """Drop null and empty items, then all but the first `most` of a row."""
    empty = np.flatnonzero(pc.equal(keys, "").to_numpy(zero_copy_only=False))
    keep = codes >= 0
    for code in empty:
        keep &= codes != code
    if not keep.all():
        rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
        lengths = np.bincount(rows[keep], minlength=len(lengths)).astype(np.int32)
        codes, weights = codes[keep], None if weights is None else weights[keep]
    truncated = int((lengths > most).sum())
    if truncated:
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        keep = np.arange(len(codes)) - np.repeat(starts, lengths) < most
        lengths = np.minimum(lengths, np.int32(most))
        codes, weights = codes[keep], None if weights is None else weights[keep]
    return Items(lengths, codes, keys, weights, truncated)


def _weights(stage: Stage, column: str, beside: str, lengths: Ints) -> npt.NDArray[np.float32]:
    """A weight for each item."""
    values = stage.column(column)
    if not is_list(values.type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; weights need a list of numbers a row")
    own, numbers = _flatten(values)
    if (own != lengths).any():
        row = int(np.flatnonzero(own != lengths)[0])
        stage.refuse(row, column, values[row].as_py(), f"{lengths[row]} weights are needed, one an item of {beside!r}")
    flat = _concat([_floats(chunk, pa.float32()) for chunk in numbers.chunks], np.float32)
    if not np.isfinite(flat).all():
        rows = np.repeat(np.arange(len(lengths)), lengths)
        row = int(rows[np.flatnonzero(~np.isfinite(flat))[0]])
        stage.refuse(row, column, values[row].as_py(), "weights must be finite numbers")
    return flat + np.float32(0)  # -0 and 0 are one weight


def _date_parts(stage: Stage, column: str, parts: Sequence[str]) -> Items:
    """A bag of `part=value` keys."""
    dates = _dates(stage, column)
    valid = pc.is_valid(dates)
    lengths = valid.to_numpy(zero_copy_only=False).astype(np.int32) * np.int32(len(parts))
    present = dates.drop_null()
    columns: list[Ints] = []
    keys: list[str] = []
    for part in parts:
        number = pc.day_of_week(present) if part == "weekday" else getattr(pc, part)(present)
        encoded = number.dictionary_encode()
        columns.append(encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32) + len(keys))
        values = encoded.dictionary.to_pylist()
        keys += [f"{part}={WEEKDAYS[value] if part == 'weekday' else value}" for value in values]
    codes = np.stack(columns, axis=1).reshape(-1)  # [present rows, parts], row by row
    return Items(lengths, codes, pa.array(keys, pa.string()), None, 0)


# --- numbers --------------------------------------------------------------------------------------------------------


def numbers_of(stage: Stage, column: str, kind: Kind | None = None, nan: str = "error") -> tuple[Floats, Kind]:
    """A column as numbers, NaN where missing. Dates are days since 1970; `kind` is what text was read as before."""
    values = stage.column(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
    if _is_text(values.type):
        return _numbers_from_text(stage, column, values, kind)
    if pa.types.is_null(values.type):
        return np.full(len(values), np.nan), kind or "number"
    if kind is not None and (kind == "date") != bool(pa.types.is_temporal(values.type)):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; the training rows had {kind}s")
    if pa.types.is_temporal(values.type):
        return _days(values.cast(pa.timestamp("us", getattr(values.type, "tz", None)))), "date"
    if not (pa.types.is_boolean(values.type) or kind_of_type(values.type) == "number") or is_list(values.type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; a number is needed")
    if pa.types.is_floating(values.type) and nan == "error":
        _refuse_first(stage, column, lambda number: number is not None and number != number, NOT_A_NUMBER)
    numbers = _concat([_floats(chunk, pa.float64()) for chunk in values.chunks], np.float64)
    _refuse_infinite(stage, column, numbers)
    return numbers, "boolean" if pa.types.is_boolean(values.type) else "number"


NOT_A_KEY = "a key must be finite; write null for a missing one"
NOT_A_NUMBER = "write null for a missing number, or set `nan: missing`"


def _numbers_from_text(stage: Stage, column: str, values: pa.ChunkedArray, kind: Kind | None) -> tuple[Floats, Kind]:
    text = _trimmed(stage, values.combine_chunks())
    present = text.drop_null()
    if not len(present):
        return np.full(len(text), np.nan), kind or "number"
    if kind is None:
        kind = _kind_of_text(present[0].as_py())
    if kind == "date":
        return _days(_dates_from_text(stage, column, text)), kind
    if stage.table.typed:
        row = int(np.flatnonzero(pc.is_valid(text).to_numpy(zero_copy_only=False))[0])
        stage.refuse(row, column, text[row].as_py(), "a number is needed, and the column holds text; cast it")
    if kind == "boolean":
        text = pc.replace_substring_regex(pc.replace_substring_regex(text, "^(?i:true)$", "1"), "^(?i:false)$", "0")
    numbers = _parse(stage, column, text, lambda part: part.cast(pa.float64()), "a number is needed")
    flat = pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False)
    _refuse_infinite(stage, column, np.where(pc.is_valid(text).to_numpy(zero_copy_only=False), flat, 0.0))
    return flat, kind


def _trimmed(stage: Stage, values: pa.Array) -> pa.Array:
    """Text of numbers or dates, null where it says that one is missing."""
    text = pc.utf8_trim_whitespace(values.cast(pa.string()))
    absent = [""] if stage.table.typed else ["", *MISSING_NUMBERS]
    return pc.if_else(pc.is_in(text, pa.array(absent)), pa.scalar(None, pa.string()), text)


def _kind_of_text(text: str) -> Kind:
    if text.casefold() in ("true", "false"):
        return "boolean"
    for type_ in (pa.timestamp("us"), pa.timestamp("us", "UTC")):  # without a zone, and with one
        try:
            pa.array([text]).cast(type_)
        except pa.ArrowInvalid:
            continue
        return "date"
    return "number"


def _dates(stage: Stage, column: str) -> pa.Array:
    """A column as timestamps."""
    values = stage.column(column).combine_chunks()
    if pa.types.is_dictionary(values.type) or _is_text(values.type):
        return _dates_from_text(stage, column, _trimmed(stage, values))
    if pa.types.is_temporal(values.type):  # a time zone's hours are those of UTC, as text can tell no more
        return values.cast(pa.timestamp("us", "UTC" if getattr(values.type, "tz", None) else None))
    if pa.types.is_null(values.type):
        return values.cast(pa.timestamp("us"))
    raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; a date is needed")


def _dates_from_text(stage: Stage, column: str, text: pa.Array) -> pa.Array:
    zoned = pc.match_substring_regex(text, r":\d\d(\.\d+)?(Z|[-+]\d\d:?\d\d)$")
    type_ = pa.timestamp("us", "UTC") if pc.any(zoned).as_py() else pa.timestamp("us")
    return _parse(stage, column, text, lambda part: part.cast(type_), "a date such as 2024-01-31 is needed")


def _days(dates: pa.Array | pa.ChunkedArray) -> Floats:
    micros = pc.cast(dates, pa.int64()).cast(pa.float64(), safe=False)
    days: Floats = pc.fill_null(pc.divide(micros, 86_400e6), float("nan")).to_numpy(zero_copy_only=False)
    return days


def _parse(stage: Stage, column: str, text: pa.Array, parse: Callable[[pa.Array], pa.Array], message: str) -> pa.Array:
    """Parse all of the text, or name the first row that cannot be parsed."""
    try:
        return parse(text)
    except pa.ArrowInvalid:
        low, high = 0, len(text)  # text[:low] parses, text[:high] does not
        while high - low > 1:
            middle = (low + high) // 2
            try:
                parse(text[low:middle])
                low = middle
            except pa.ArrowInvalid:
                high = middle
        stage.refuse(low, column, text[low].as_py(), message)


def _refuse_infinite(stage: Stage, column: str, numbers: Floats) -> None:
    bad = np.flatnonzero(np.isinf(numbers))
    if len(bad):
        stage.refuse(int(bad[0]), column, float(numbers[bad[0]]), "numbers must be finite")


# --- vectors --------------------------------------------------------------------------------------------------------


def vectors_of(stage: Stage, column: str, size: int | None) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float32]]:
    """Which rows have a vector, and the vectors [present rows, size]."""
    values = stage.column(column)
    if _is_text(values.type):
        plain = pc.utf8_trim(values.cast(pa.string()), "[]() \t")
        lengths, parts = _split_numbers(pc.if_else(pc.equal(plain, ""), pa.scalar(None, pa.string()), plain))
        flat = _parse_items(stage, column, parts, lengths)
    elif is_list(values.type) and (kind_of_type(values.type) == "number" or pa.types.is_null(values.type.value_type)):
        lengths, parts = _flatten(values)
        flat = _concat([_floats(part, pa.float32()) for part in parts.chunks], np.float32)
    elif pa.types.is_null(values.type):
        return np.zeros(len(values), np.bool_), np.zeros((0, size or 0), np.float32)
    else:
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; a list of numbers is needed")
    present = lengths > 0
    if size is None and present.any():
        size = int(lengths[present][0])
    wrong = np.flatnonzero(present & (lengths != size))
    if len(wrong):
        row = int(wrong[0])
        stage.refuse(row, column, values[row].as_py(), f"a vector of {size} numbers is needed, this has {lengths[row]}")
    vectors = flat.reshape(-1, size or 1)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        row = int(np.flatnonzero(present)[bad[0]])
        stage.refuse(row, column, values[row].as_py(), "a vector's numbers must be finite")
    return present, vectors


def _split_numbers(text: pa.ChunkedArray) -> tuple[Ints, pa.ChunkedArray]:
    parts = [pc.split_pattern_regex(chunk, r"[,;\s]+") for chunk in text.chunks]
    return _flatten(pa.chunked_array(parts, pa.list_(pa.string())))


def _parse_items(stage: Stage, column: str, parts: pa.ChunkedArray, lengths: Ints) -> npt.NDArray[np.float32]:
    try:
        return _concat([part.cast(pa.float64()).cast(pa.float32()) for part in parts.chunks], np.float32)
    except pa.ArrowInvalid:
        good = np.array([_is_number(part) for part in parts.to_pylist()])
        row = int(np.repeat(np.arange(len(lengths)), lengths)[np.flatnonzero(~good)[0]])
        stage.refuse(row, column, stage.column(column)[row].as_py(), "a list of numbers is needed")


def _is_number(text: str) -> bool:
    try:
        pa.array([text]).cast(pa.float32())
    except pa.ArrowInvalid:
        return False
    return True


# --- types ----------------------------------------------------------------------------------------------------------


def is_list(type_: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or (pa.types.is_dictionary(type_) and pa.types.is_string(type_.value_type)))


def _refuse_unless_text(stage: Stage, column: str, values: pa.ChunkedArray, message: str) -> None:
    if not _is_text(values.type) and not pa.types.is_null(values.type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; {message}")


def _refuse_first(stage: Stage, column: str, bad: Callable[[float | None], bool], message: str) -> None:
    """Name the first row with a bad number, if there is one; lists are looked into."""
    values = stage.column(column)
    flat = values.combine_chunks().flatten() if is_list(values.type) else values
    if not pc.any(pc.invert(pc.is_finite(flat))).as_py():
        return
    for row, value in enumerate(values.to_pylist()):
        for item in value if isinstance(value, list) else (value,):
            if bad(item):
                stage.refuse(row, column, item, message)


def _floats(numbers: pa.Array, type_: pa.DataType) -> pa.Array:
    """Numbers as floats, the nearest ones, NaN for null."""
    return pc.fill_null(numbers.cast(type_, safe=False), float("nan"))


def _concat(arrays: Sequence[pa.Array], dtype: npt.DTypeLike = np.int32) -> npt.NDArray[Any]:
    if not arrays:
        return np.zeros(0, dtype)
    return np.concatenate([array.to_numpy(zero_copy_only=False) for array in arrays]).astype(dtype, copy=False)
