"""Raw strings and numbers to entries inside a TensorFlow graph: what codecs, keys and numbers do, without feat2vec.

A reader stands for a group. Its inputs are one tensor a column; the entries that it makes are those of `Encoder`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from feat2vec.encode.codecs import Codec, ItemsCodec, NumbersCodec, VectorCodec, binned
from feat2vec.encode.scaling import ColumnScale
from feat2vec.encode.vocabulary import FIRST, PADDING, UNSEEN, Vocabulary
from feat2vec.errors import UserError
from feat2vec.export.graph_words import Words, trimmed
from feat2vec.model.large_variables import are_aside
from feat2vec.schema.extractor_options import ItemsSpec, Lookup, TokensSpec
from feat2vec.schema.options import Group
from feat2vec.table.keys import DECIMAL, LONG, MANY_DIGITS, WEEKDAYS, spell_floats
from feat2vec.table.stages import MISSING_NUMBERS

LARGEST = 1 << 30  # bytes of a group's keys; more were never tried
DATE = (
    r"^\s*(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d)(?::(\d\d)(?::(\d\d(?:\.\d{1,6})?))?)?)?"
    r"(?:Z|([-+])(\d\d)(?::?(\d\d))?)?\s*$"
)
FRACTION = r"-?[0-9]+\.[0-9]+(e-[0-9][0-9])?"
DAY, HOUR, MINUTE = 86_400_000_000, 3_600_000_000, 60_000_000  # in microseconds


@dataclass(frozen=True)
class Input:
    """A tensor that stands for a column."""

    column: str
    dtype: str
    shape: tuple[int | None, ...]
    form: str  # of its values
    missing: str  # how a missing one is written


def reader(name: str, codec: Codec, group: Group) -> Reader:
    """What reads a group's columns."""
    if isinstance(codec, ItemsCodec):
        if codec.vocabulary.keys.nbytes > LARGEST:
            size = f"{codec.vocabulary.keys.nbytes / 2**30:.1f} GB of keys"
            raise UserError(f"the group {name!r} has {size}, more than a saved model holds; export the other groups")
        if codec.edges or getattr(group.extractor, "bins", None):
            return BinsReader(codec, group)
        return ItemsReader(codec, group)
    if isinstance(codec, NumbersCodec):
        return NumbersReader(codec)
    if isinstance(codec, VectorCodec):
        return VectorReader(codec, group)
    raise UserError(f"the group {name!r} is encoded by {type(codec).__name__}, which no graph can do; leave it out")


IS_TEXT, IS_NUMBER = "text", "a number; a boolean is 1 or 0"
IS_DATE = "a date, as 2024-01-31, 2024-01-31 10:30:00 or 2024-01-31T10:30:00+02:00"
FORMS = {
    "boolean": "true or false",
    "number": "a number as text",
    "float": "a number as text",
    "date": "a date, as 2024-01-31 or 2024-01-31 10:30:00",
}


class Reader(tf.Module):  # type: ignore[misc]
    """The base: `inputs` in the order in which the call takes them."""

    inputs: list[Input]

    def __call__(self, *columns: Any) -> Any:
        """Entries [batch, width]: padded ids, or numbers that are NaN where the group is missing."""
        raise NotImplementedError


# --- keys -----------------------------------------------------------------------------------------------------------


class Keys(tf.Module):  # type: ignore[misc]
    """A vocabulary as hash tables: keys to ids, 1 for a key that is not there, 0 for one that counts as none.

    The rules are those of `keys.py`. Numbers of a typed column come as float64, and are found by their bits. Where they
    are parts of a text, or some key is no float64, as long ids are, they come as text; `5.0` is 5 then (`respell`).
    A fraction of 16 digits or more is found only as the key is written: 0.12345678901234567, without zeros at its end;
    that of a float64 also as C writes it with 17 digits, 0.10000000000000001 for 0.1.
    """

    def __init__(self, vocabulary: Vocabulary, *, text: bool, form: str | None = None) -> None:
        super().__init__()
        self.boolean, number = vocabulary.kind == "boolean", vocabulary.kind in ("number", "float")
        keys = pa.concat_arrays([vocabulary.keys, pa.array(vocabulary.too_frequent, pa.string())])
        ids = np.append(np.arange(FIRST, len(vocabulary)), [PADDING] * len(vocabulary.too_frequent)).astype(np.int64)
        self.float = vocabulary.kind == "float"
        self.text = text or not number
        self.by_text: Any = None
        self.by_number: Any = None
        self.by_digits: Any = None  # of whole numbers that float64 may not hold, written with a point
        if number:
            floats = pc.cast(keys, pa.float64())
            exact = pc.equal(spell_floats(floats), keys).to_numpy(zero_copy_only=False)
            bits = np.append(floats.to_numpy()[exact], np.nan).view(np.int64)  # a table needs a key
            self.by_number = KeyTable(bits, np.append(ids[exact], UNSEEN))
            self.text |= not exact.all()
            if self.text:
                known: dict[str, int] = {}
                large = np.abs(floats.to_numpy()) >= 1e15
                # a long id before a float of its size
                for at in [*np.flatnonzero(large & ~exact), *np.flatnonzero(large & exact)]:
                    digits = _digits(keys[int(at)].as_py())
                    if digits is not None:
                        known.setdefault(digits, int(ids[at]))
                self.by_digits = KeyTable(tf.constant(["", *known], tf.string), np.array([UNSEEN, *known.values()]))
        if self.text:
            none = MISSING_NUMBERS if vocabulary.kind in ("number", "float", "numeral") else ()
            words = ["", *none, *(pc.utf8_normalize(keys, form) if form else keys).to_pylist()]
            self.by_text = KeyTable(tf.constant(words, tf.string), np.append([PADDING] * (1 + len(none)), ids))

    def __call__(self, keys: Any) -> Any:
        """The ids [keys] of keys [keys]."""
        if self.by_text is None:
            return self._of_numbers(keys)
        if self.boolean:
            keys = tf.strings.lower(keys)
        ids = tf.cast(self.by_text.lookup(keys), tf.int32)
        if self.by_number is None:
            return ids
        as_written = ids
        long = tf.strings.regex_full_match(keys, LONG)
        by_digits = tf.cast(self.by_digits.lookup(tf.strings.regex_replace(keys, LONG, r"\1\2")), tf.int32)
        ids = tf.where(long, by_digits, ids)
        exact = tf.strings.regex_full_match(keys, f".*({MANY_DIGITS}).*")  # which float64 may not tell from others
        decimal = tf.strings.regex_full_match(keys, DECIMAL) & ~long & ~exact
        numbers = tf.strings.to_number(tf.where(decimal, keys, "0"), tf.float64)
        ids = tf.where(decimal, self._of_numbers(numbers), ids)
        if self.float:
            written = exact & tf.strings.regex_full_match(keys, FRACTION)
            numbers = tf.strings.to_number(tf.where(written, keys, "0"), tf.float64)
            written &= tf.strings.as_string(numbers, precision=17, shortest=True) == keys
            ids = tf.where(written, self._of_numbers(numbers), ids)
        return tf.where(as_written == UNSEEN, ids, as_written)

    def _of_numbers(self, numbers: Any) -> Any:
        bits = tf.bitcast(numbers + tf.constant(0, tf.float64), tf.int64)  # -0 and 0 are one number
        return tf.cast(self.by_number.lookup(bits), tf.int32)


def _digits(key: str) -> str | None:
    """A key that is a whole number of many digits as its digits: 1e+20 is one too."""
    number = float(key)
    if not math.isfinite(number) or number != math.floor(number) or abs(number) < 1e15:
        return None
    return key if key.removeprefix("-").isdecimal() else str(int(number))


class KeyTable(tf.Module):  # type: ignore[misc]
    """A hash table from keys to ids, UNSEEN for others, whose keys and ids are variables.

    TensorFlow's own initializer takes constants, which it copies several times while a model is saved, as they are
    part of its graph. Within `tables_aside` the table is left empty: it is filled when the saved model is loaded.
    """

    def __init__(self, keys: Any, ids: Any) -> None:
        super().__init__()
        self.keys = tf.Variable(keys, trainable=False)
        self.ids = tf.Variable(tf.constant(ids, tf.int64), trainable=False)
        self.table = tf.lookup.StaticHashTable(_FromVariables(self.keys, self.ids), UNSEEN)

    def lookup(self, keys: Any) -> Any:
        """The ids of keys, int64."""
        return self.table.lookup(keys)


class _FromVariables(tf.lookup.KeyValueTensorInitializer):  # type: ignore[misc]
    """Fills a hash table with what two variables hold at that time."""

    def __init__(self, keys: Any, ids: Any) -> None:
        self.keys, self.ids = keys, ids
        super().__init__(keys[:0], ids[:0])

    def initialize(self, table: Any) -> Any:
        """Fill the table."""
        if are_aside() and tf.executing_eagerly():
            return None
        return tf.raw_ops.LookupTableImportV2(
            table_handle=table.resource_handle, keys=self.keys.value(), values=self.ids.value()
        )


class ItemsReader(Reader):
    """Keys, bags of keys and words, date parts, texts."""

    def __init__(self, codec: ItemsCodec, group: Group) -> None:
        super().__init__()
        spec, (column, *_) = group.extractor, group.columns
        assert isinstance(spec, (ItemsSpec, TokensSpec))
        self.codec, self.is_text = codec, isinstance(spec, TokensSpec)
        items = spec if isinstance(spec, ItemsSpec) else Lookup(split="words", max_items=spec.max_tokens)
        self.parts: tuple[str, ...] = items.parts
        self.split, many, weights = items.split, items.multi, items.weights
        all_ = items.parts or items.max_share < 1  # frequent keys make room for others
        self.first = 1 if not items.bag else None if all_ else items.max_items
        self.words = Words() if self.split == "words" and not self.parts else None
        self.keys = Keys(
            codec.vocabulary, text=bool(self.parts or self.split), form="NFD" if self.words is not None else None
        )
        shape = (None, None) if many else (None,)
        form = IS_TEXT if self.split else IS_DATE if self.parts else FORMS.get(codec.vocabulary.kind, IS_TEXT)
        written = ("string", shape, form, "empty") if self.keys.text else ("float64", shape, "a number", "NaN")
        self.inputs = [Input(column, *written)]
        if weights is not None:
            self.inputs.append(
                Input(weights, "float32", (None, None), "an item's weight", "any, where the item is missing")
            )

    def __call__(self, *columns: Any) -> Any:
        values, *weights = columns
        items = tf.ragged.boolean_mask(*self._items(values))
        weights = [tf.ragged.boolean_mask(given, _there(values)) for given in weights]
        items, *weights = (_first(some, self.first) for some in (items, *weights))
        ids = items.with_values(self.keys(items.values))
        kept = ids.with_values(ids.values != PADDING)
        ids, *weights = (_first(tf.ragged.boolean_mask(some, kept), self.codec.max_items) for some in (ids, *weights))
        if not self.is_text and not weights:
            ids = ids.to_tensor(PADDING)
            return tf.pad(ids, [[0, 0], [0, tf.maximum(1 - tf.shape(ids)[1], 0)]])
        shape = [None, self.codec.items]  # the layer is built for it
        if not weights:
            return ids.to_tensor(PADDING, shape=shape)
        (flat,) = (finite(part.values, self.inputs[1].column) for part in weights)
        padded = ids.with_values(flat).to_tensor(0.0, shape=shape)
        return tf.concat([ids.to_tensor(PADDING, shape=shape), tf.bitcast(padded, tf.int32)], axis=1)

    def _items(self, values: Any) -> tuple[Any, Any]:
        """The items of each row, dense or ragged, and which of them are there."""
        if self.parts:
            return date_parts(*timestamps(values, self.inputs[0].column), self.parts)
        items = values if values.shape.rank == 2 else values[:, None]
        if self.split is None:
            return items, _there(items)
        flat = tf.reshape(items, [-1])
        parts = self.words(flat) if self.words is not None else trimmed(tf.strings.split(flat, self.split))
        lengths = tf.reduce_sum(tf.reshape(parts.row_lengths(), tf.shape(items)), axis=1)
        bags = tf.RaggedTensor.from_row_lengths(parts.values, lengths)
        return bags, bags.with_values(_there(bags.values))


def _there(values: Any) -> Any:
    return values != "" if values.dtype == tf.string else ~tf.math.is_nan(values)


def _first(items: Any, most: int | None) -> Any:
    return items if most is None else items[:, :most]


class BinsReader(Reader):
    """Numbers as the bin they fall into."""

    def __init__(self, codec: ItemsCodec, group: Group) -> None:
        super().__init__()
        self.ids, self.edges = codec.vocabulary.ids(binned(np.zeros(0), codec.edges).keys), codec.edges
        self.inputs = [_number_input(group.columns[0], codec.kind)]

    def __call__(self, *columns: Any) -> Any:
        (numbers,) = (_numbers(column, self.inputs[0].column) for column in columns)
        bins = tf.searchsorted(tf.constant(self.edges, tf.float64), numbers, side="right")
        return tf.where(tf.math.is_nan(numbers), PADDING, tf.gather(tf.constant(self.ids), bins))[:, None]


# --- numbers --------------------------------------------------------------------------------------------------------


def _number_input(column: str, kind: str | None) -> Input:
    if kind == "date":
        return Input(column, "string", (None,), IS_DATE, "empty")
    return Input(column, "float64", (None,), IS_NUMBER, "NaN")


def _numbers(column: Any, name: str) -> Any:
    """A column of numbers, or of dates, as days since 1970; NaN where missing."""
    if column.dtype == tf.string:
        micros, there = timestamps(column, name)
        return tf.where(there, tf.cast(micros, tf.float64) / DAY, np.nan)
    absent = tf.math.is_nan(column)
    return tf.where(absent, column, finite(tf.where(absent, tf.zeros_like(column), column), name))


def finite(numbers: Any, name: str) -> Any:
    """The same numbers, if they are finite."""
    return tf.debugging.assert_all_finite(numbers, f"{name}: numbers must be finite")


class NumbersReader(Reader):
    """Scaled numbers, then indicators of missing ones."""

    def __init__(self, codec: NumbersCodec) -> None:
        super().__init__()
        self.columns = codec.columns
        self.inputs = [_number_input(column.column, column.kind) for column in codec.columns]

    def __call__(self, *columns: Any) -> Any:
        scales = self.columns
        numbers = [_numbers(column, scale.column) for column, scale in zip(columns, scales, strict=True)]
        absent = [tf.math.is_nan(column) for column in numbers]
        missing = tf.reduce_all(tf.stack(absent, axis=1), axis=1, keepdims=True)
        scaled = [_scale(scale, column) for scale, column in zip(scales, numbers, strict=True)]
        told = [tf.cast(column, tf.float64) for scale, column in zip(scales, absent, strict=True) if scale.indicator]
        names = ", ".join(scale.column for scale in scales)
        rows = finite(tf.cast(tf.stack([*scaled, *told], axis=1), tf.float32), names)
        return tf.where(missing, np.float32(np.nan), rows)


def _scale(scale: ColumnScale, numbers: Any) -> Any:
    """`ColumnScale.apply`."""
    filled = tf.where(tf.math.is_nan(numbers), tf.constant(scale.fill, tf.float64), numbers)
    if scale.scale in ("standard", "minmax"):
        return (filled - scale.knots[0]) / scale.knots[1]
    if scale.scale == "log1p":
        tf.debugging.assert_greater(
            filled, tf.constant(-1, tf.float64), f"{scale.column}: log1p needs numbers above -1"
        )
        return tf.math.log1p(filled)
    if scale.scale == "quantile":
        knots, levels = np.array(scale.knots), np.linspace(0, 1, len(scale.knots))
        return (_interpolate(filled, knots, levels) - _interpolate(-filled, -knots[::-1], -levels[::-1])) / 2
    return filled


def _interpolate(numbers: Any, knots: Any, levels: Any) -> Any:
    """`np.interp`."""
    at = tf.searchsorted(tf.constant(knots), numbers, side="right") - 1
    at = tf.clip_by_value(at, 0, len(knots) - 2)
    widths = np.diff(knots)
    slopes = np.divide(np.diff(levels), widths, out=np.zeros_like(widths), where=widths > 0)
    inside = tf.gather(levels, at) + tf.gather(slopes, at) * (numbers - tf.gather(knots, at))
    inside = tf.where(numbers < knots[0], levels[0], inside)
    return tf.where(numbers >= knots[-1], levels[-1], inside)


class VectorReader(Reader):
    """A pretrained vector as it is."""

    def __init__(self, codec: VectorCodec, group: Group) -> None:
        super().__init__()
        self.inputs = [Input(group.columns[0], "float32", (None, codec.width), "a vector", "NaN")]

    def __call__(self, *columns: Any) -> Any:
        (vectors,) = columns
        missing = tf.reduce_all(tf.math.is_nan(vectors), axis=1, keepdims=True)
        return tf.where(
            missing, vectors, finite(tf.where(missing, tf.zeros_like(vectors), vectors), self.inputs[0].column)
        )


# --- dates ----------------------------------------------------------------------------------------------------------


def timestamps(texts: Any, name: str) -> tuple[Any, Any]:
    """Microseconds since 1970 of dates such as 2024-01-31 or 2024-01-31T10:30:00+02:00, and which are there."""
    there = tf.strings.strip(texts) != ""
    texts = tf.where(there, texts, "1970-01-01")
    message = f"{name}: dates such as 2024-01-31 or 2024-01-31 10:30:00 are needed"
    good = tf.strings.regex_full_match(texts, DATE)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(good), [message])]):
        texts = tf.identity(texts)

    def number(group: int, dtype: Any = tf.int64) -> Any:
        return tf.strings.to_number(tf.strings.regex_replace(texts, DATE, f"0\\{group}"), dtype)

    year, month, day = number(1), number(2), number(3)
    days = _days(year, month, day)
    real = tf.reduce_all([year == (found := _civil(days))[0], month == found[1], day == found[2]], axis=0)
    seconds = tf.cast(tf.round(number(6, tf.float64) * 1e6), tf.int64)  # in microseconds
    west = tf.strings.regex_replace(texts, DATE, r"\7") == "-"
    east = (number(8) * 60 + number(9)) * tf.where(west, tf.constant(-1, tf.int64), 1)  # minutes
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(real), [message])]):
        return days * DAY + number(4) * HOUR + (number(5) - east) * MINUTE + seconds, there


def date_parts(micros: Any, there: Any, parts: Sequence[str]) -> tuple[Any, Any]:
    """`part=value` keys [batch, parts], and which are there."""
    days = micros // DAY
    year, month, day = _civil(days)
    values = {"year": year, "quarter": (month + 2) // 3, "month": month, "day": day, "hour": micros // HOUR % 24}
    weekday = tf.gather(tf.constant(WEEKDAYS), (days + 3) % 7)  # 1970 began on a Thursday
    spelled = {**{part: tf.strings.as_string(value) for part, value in values.items()}, "weekday": weekday}
    keys = tf.stack([tf.strings.join([f"{part}=", spelled[part]]) for part in parts], axis=1)
    return keys, tf.repeat(there[:, None], len(parts), axis=1)


# Years begin in March here, so that a leap day ends one; 400 years have 146,097 days.


def _days(year: Any, month: Any, day: Any) -> Any:
    year = tf.where(month <= 2, year - 1, year)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719_468


def _civil(days: Any) -> tuple[Any, Any, Any]:
    """Year, month and day."""
    days += 719_468
    era, days = days // 146_097, days % 146_097
    of_era = (days - days // 1460 + days // 36_524 - days // 146_096) // 365
    of_year = days - (365 * of_era + of_era // 4 - of_era // 100)
    shifted = (5 * of_year + 2) // 153  # months since March
    month = tf.where(shifted < 10, shifted + 3, shifted - 9)
    year = era * 400 + of_era + tf.cast(month <= 2, tf.int64)
    return year, month, of_year - (153 * shifted + 2) // 5 + 1
