"""A column's values as keys: single ones, bags, words; what cannot be one is named with its row.

A key is text, and two values have one key only if they are equal:

- Text stays as it stands, in a CSV too, where every value is text: `007`, ` 7`, `7`, `7.0`, `1e5` and `100000` are six
  keys. The empty text is missing, and NA and the like are where all other keys of a CSV's column read as numbers. Only
  `True`, `TRUE` and `true` are one key, in a column of a CSV that holds nothing but truth values.
- Integers and decimals of every size are their digits (9007199254740993), and floats their shortest text; a whole one
  below 2^53 has no point. 5, 5.0 and the decimal 5.00 are the key `5`.
- Dates are 2024-01-31, times 2024-01-31 10:30:00, with six or nine digits of a fraction; midnight is the day.

The vocabulary of a typed column of numbers takes text for a number: `7` and `7.0` from a CSV find the key 7
(`respell`), and no text finds the key of another number, however small the difference. Where the column holds float64,
text may have more digits than it needs: 0.10000000000000001 is how 17 digits write the number with the key 0.1. The
vocabulary of text, as of a CSV, takes a number for its key: the number 7 finds `7`, and neither `7.0` nor `07`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import ItemsSpec, TokensSpec
from feat2vec.table.numbers import dates_of
from feat2vec.table.stages import (
    Ints,
    Kind,
    Stage,
    concat,
    flatten,
    floats_of,
    is_list,
    refuse_first,
    refuse_unless_text,
)

BETWEEN_WORDS = r"[^\p{L}\p{M}\p{N}_]+"
DECIMAL = r"^[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"
LONG = r"^\+?(-?)0*([1-9][0-9]{15,})\.0*$"  # a whole number that float64 may not hold
MANY_DIGITS = r"[0-9](\.?[0-9]){15}|[eE][-+]?[0-9]{3}"  # of a number that float64 may not hold
LARGE = r"^-?[0-9]{12}|e\+"  # of a number that floats and decimals are spelled differently from
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MANY = 2**31 - 1
MOST_DIGITS = 400  # before or after the point: more than any type of number has
NOT_A_KEY = "a key must be finite; write null for a missing one"


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
    most = 1 if not spec.bag else spec.max_items if spec.max_share == 1 else MANY  # frequent keys make room for others
    return _keep(lengths, codes, keys, weights, most)


def tokens_of(stage: Stage, column: str, spec: TokensSpec) -> Items:
    """The tokens of a text group: Unicode words, casefolded."""
    values = stage.column(column)
    refuse_unless_text(stage, column, values, f"{spec.type} needs text")
    lengths, values = _split(values, None)
    codes, keys = _distinct(values)
    keys = pa.array([_fold(key) for key in keys.to_pylist()], pa.string())
    return _keep(lengths, codes, keys, None, spec.max_tokens)


def respell(keys: pa.StringArray, kind: Kind) -> pa.StringArray:
    """Keys from text as a column of that kind spells them: `5.0` is 5 where keys are numbers, `True` is true."""
    if kind == "boolean":
        return pc.utf8_lower(keys)
    if kind not in ("number", "float"):
        return keys
    decimal = pc.match_substring_regex(keys, DECIMAL)
    exact = pc.and_(decimal, pc.match_substring_regex(keys, MANY_DIGITS))
    decimal = pc.and_not(decimal, exact)
    keys = _replace(keys, exact, lambda text: _plain(text) or text)
    return pc.if_else(decimal, spell_floats(pc.cast(pc.if_else(decimal, keys, "0"), pa.float64())), keys)


def respell_large(keys: pa.StringArray) -> pa.StringArray:
    """Large numbers as `respell` spells them in the other way: as floats are spelled, if they were as decimals are."""
    return _replace(keys, pc.match_substring_regex(keys, LARGE), _otherwise)


def respell_rounded(keys: pa.StringArray) -> pa.StringArray:
    """Floats written with more digits than tell them apart, as they are spelled: 0.10000000000000001 is 0.1."""
    return _replace(keys, pc.match_substring_regex(keys, MANY_DIGITS), _shortest)


def _replace(keys: pa.StringArray, where: pa.BooleanArray, spell: Callable[[str], str]) -> pa.StringArray:
    if not pc.any(where).as_py():
        return keys
    where = pc.fill_null(where, False)
    return pc.replace_with_mask(keys, where, pa.array(map(spell, keys.filter(where).to_pylist()), pa.string()))


def _plain(text: str) -> str | None:
    """The digits of a number, as decimals are spelled; None for what is no number, or of more digits than any has."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number:
        return "0"
    if not abs(number.adjusted()) < MOST_DIGITS:
        return None
    digits = f"{number:f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    if number.adjusted() >= -6:
        return digits
    digits = digits.removeprefix("-").lstrip("0.")
    point = "." if len(digits) > 1 else ""
    return f"{'-' if number < 0 else ''}{digits[0]}{point}{digits[1:]}e{number.adjusted()}"


def _otherwise(text: str) -> str:
    plain = _plain(text)
    if plain is None or plain != text:
        return plain or text
    number = float(text)
    if not np.isfinite(number):
        return text
    spelled = str(spell_floats(pa.array([number]))[0].as_py())
    same_whole = number.is_integer() and Decimal(number) == Decimal(text)
    return spelled if same_whole or Decimal(spelled) == Decimal(text) else text


def _shortest(text: str) -> str:
    """A float's spelling, if the text is that very float, rounded to as many digits as the text has."""
    plain = _plain(text)
    if plain is None or not np.isfinite(number := float(plain)):
        return text
    digits = len(plain.partition("e")[0].replace(".", "").strip("-0"))
    if not 16 <= digits < MOST_DIGITS or Decimal(f"{number:.{digits - 1}e}") != Decimal(plain):
        return text
    return str(spell_floats(pa.array([number]))[0].as_py())


def _unnest(stage: Stage, column: str, values: pa.ChunkedArray, spec: ItemsSpec) -> tuple[Ints, pa.ChunkedArray]:
    """How many items each row has, and the items."""
    if is_list(values.type):
        if not spec.bag:
            raise UserError(f"{stage.row(0)}: column {column!r} holds lists ({values.type}); set `multi: true`")
        if is_list(values.type.value_type):
            raise UserError(f"{stage.row(0)}: column {column!r} holds lists of lists ({values.type}); flatten it first")
        lengths, values = flatten(values)
        if spec.split is None:
            return lengths, values
        refuse_unless_text(stage, column, values, "only text can be split")
        parts, values = _split(values, None if spec.split == "words" else spec.split)
        bags = np.repeat(np.arange(len(lengths)), lengths)
        return np.bincount(bags, weights=parts, minlength=len(lengths)).astype(np.int32), values
    if spec.split is None:
        if not values.null_count:
            return np.broadcast_to(np.int32(1), len(values)), values
        lengths = concat([pc.is_valid(chunk).cast(pa.int32()) for chunk in values.chunks])
        return lengths, pa.chunked_array([chunk.drop_null() for chunk in values.chunks], values.type)
    refuse_unless_text(stage, column, values, "only text can be split")
    return _split(values, None if spec.split == "words" else spec.split)


def _split(values: pa.ChunkedArray, delimiter: str | None) -> tuple[Ints, pa.ChunkedArray]:
    """Text to its parts, at a delimiter or (None) into Unicode words."""
    parts = [
        pc.split_pattern(text, delimiter) if delimiter else pc.split_pattern_regex(_normal(text), BETWEEN_WORDS)
        for text in (chunk.cast(pa.string()) for chunk in values.chunks)
    ]
    return flatten(pa.chunked_array(parts, pa.list_(pa.string())))


def _normal(text: pa.StringArray) -> pa.StringArray:
    """Text in NFC: in NFD some signs that separate words end with a mark, which is part of one."""
    return text if pc.all(pc.string_is_ascii(text)).as_py() else pc.utf8_normalize(text, "NFC")


def _distinct(values: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Codes into the distinct values, -1 for null."""
    if pa.types.is_null(values.type):  # of which Arrow makes one value that is null
        return np.full(len(values), -1, np.int32), pa.array([], pa.string())
    values = values.unify_dictionaries() if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    codes = concat([pc.fill_null(chunk.indices.cast(pa.int32()), -1) for chunk in values.chunks])
    return codes, values.chunk(0).dictionary if values.num_chunks else pa.array([], pa.string())


def _spell(stage: Stage, column: str, keys: pa.Array) -> pa.StringArray:
    """Distinct values as keys."""
    if pa.types.is_floating(keys.type):
        bad = keys.filter(pc.invert(pc.is_finite(keys)))
        if len(bad):
            refuse_first(stage, column, lambda item: item is not None and not np.isfinite(item), NOT_A_KEY)
        return spell_floats(keys)
    if pa.types.is_decimal(keys.type):
        return _spell_decimals(keys)
    if pa.types.is_timestamp(keys.type):
        text = pc.replace_substring_regex(keys.cast(pa.string()), r"(\.[0-9]{6})000(Z?)$", r"\1\2")  # of nanoseconds
        whole = pc.replace_substring_regex(text, r"\.000000(Z?)$", r"\1")
        return pc.replace_substring_regex(whole, r" 00:00:00$", "")  # midnight is the day, as in a text of the table
    return keys.cast(pa.string())


def spell_floats(numbers: pa.Array) -> pa.StringArray:
    """The shortest text of each number; a whole one has no point."""
    whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), 2.0**53))
    as_int = pc.cast(pc.if_else(whole, numbers, 0.0), pa.int64())
    return pc.if_else(whole, as_int.cast(pa.string()), numbers.cast(pa.string()))


def _spell_decimals(numbers: pa.Array) -> pa.StringArray:
    """All digits of each number, less zeros at the end of a fraction: as floats are spelled."""
    text = pc.ascii_lower(numbers.cast(pa.string()))
    text = pc.replace_substring_regex(text, r"^(-?[0-9]+)\.0+$", r"\1")
    text = pc.replace_substring_regex(text, r"(\.[0-9]*[1-9])0+($|e)", r"\1\2")
    text = pc.replace_substring_regex(text, r"^(-?[0-9]+)\.0+e", r"\1e")
    return pc.replace_substring_regex(text, r"^0e.*$", "0")


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
    own, numbers = flatten(values)
    if (own != lengths).any():
        row = int(np.flatnonzero(own != lengths)[0])
        stage.refuse(row, column, values[row].as_py(), f"{lengths[row]} weights are needed, one an item of {beside!r}")
    flat = concat([floats_of(chunk, pa.float32()) for chunk in numbers.chunks], np.float32)
    if not np.isfinite(flat).all():
        rows = np.repeat(np.arange(len(lengths)), lengths)
        row = int(rows[np.flatnonzero(~np.isfinite(flat))[0]])
        stage.refuse(row, column, values[row].as_py(), "weights must be finite numbers")
    return flat + np.float32(0)  # -0 and 0 are one weight


def _date_parts(stage: Stage, column: str, parts: Sequence[str]) -> Items:
    """A bag of `part=value` keys."""
    dates = dates_of(stage, column)
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
