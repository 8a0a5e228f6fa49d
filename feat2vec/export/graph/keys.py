"""A vocabulary inside a TensorFlow graph: keys to ids, by hash tables. The rules are those of `feat2vec.table.keys`."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.encode.vocabulary import FIRST, PADDING, UNSEEN, Vocabulary
from feat2vec.export.graph.dates import instants
from feat2vec.model.large_variables import are_aside
from feat2vec.model.pair_scores import Tensor
from feat2vec.table.spelling import DECIMAL, LONG, MANY_DIGITS, NUMBER, spell_floats
from feat2vec.table.types import KINDS_WITH_MISSING_WORDS, MISSING_NUMBERS

FRACTION = r"-?[0-9]+\.[0-9]+(e-[0-9][0-9])?"
LARGE = 1e15  # whole numbers of this size and more are also found by their digits


class KeyTable(tf.Module):  # type: ignore[misc]
    """A hash table from keys to ids, UNSEEN for other keys, whose keys and ids are variables.

    TensorFlow's own initializer takes constants, which it copies several times while a model is saved, as they are
    part of its graph. Within `tables_aside` the table is left empty: it is filled when the saved model is loaded.
    """

    def __init__(self, keys: Tensor | Array, ids: Array) -> None:
        super().__init__()
        self.keys = tf.Variable(keys, trainable=False)
        self.ids = tf.Variable(tf.constant(ids, tf.int64), trainable=False)
        self.table = tf.lookup.StaticHashTable(_FromVariables(self.keys, self.ids), UNSEEN)

    def lookup(self, keys: Tensor) -> Tensor:
        """The ids of keys, int32."""
        return tf.cast(self.table.lookup(keys), tf.int32)


class _FromVariables(tf.lookup.KeyValueTensorInitializer):  # type: ignore[misc]
    """Fills a hash table with what two variables hold when the table is made."""

    def __init__(self, keys: tf.Variable, ids: tf.Variable) -> None:
        self.keys, self.ids = keys, ids
        super().__init__(keys[:0], ids[:0])

    def initialize(self, table: tf.lookup.StaticHashTable) -> Tensor | None:
        """Fill the table."""
        if are_aside() and tf.executing_eagerly():
            return None
        return tf.raw_ops.LookupTableImportV2(
            table_handle=table.resource_handle, keys=self.keys.value(), values=self.ids.value()
        )


class GraphVocabulary(tf.Module):  # type: ignore[misc]
    """Keys to ids: UNSEEN for a key that is not in the vocabulary, PADDING for one that counts as missing.

    Numbers of a typed column come as float64 and are found by their bits. Where they are parts of a text, or some key
    is no float64, as long ids are, they come as text; `5.0` is 5 then (see `respell` in `feat2vec.table.keys`).
    A fraction of 16 digits or more is found only as the key is written: 0.12345678901234567, without zeros at its end;
    that of a float64 also as C writes it with 17 digits, 0.10000000000000001 for 0.1. Beside keys of float32 numbers
    are rounded.

    Args:
        vocabulary: The keys and what kind of values they are.
        as_text: Whether numbers come as text although every key is a float64.
        form: The Unicode form of texts, such as "NFD"; None is that of the keys.

    """

    def __init__(self, vocabulary: Vocabulary, *, as_text: bool, form: str | None = None) -> None:
        super().__init__()
        is_number = vocabulary.kind in ("number", "float", "float32")
        self.is_boolean = vocabulary.kind == "boolean"
        self.is_float = vocabulary.kind == "float"
        self.is_float32 = vocabulary.kind == "float32"
        self.by_text: KeyTable | None = None
        self.by_number: KeyTable | None = None
        self.by_instant: KeyTable | None = None
        self.by_digits: KeyTable | None = None  # of whole numbers that float64 may not hold, written with a point

        keys = pa.concat_arrays([vocabulary.keys, pa.array(vocabulary.too_frequent, pa.string())])
        padding = [PADDING] * len(vocabulary.too_frequent)
        ids = np.append(np.arange(FIRST, len(vocabulary)), padding).astype(np.int64)
        self.takes_text = as_text or not is_number
        if is_number:
            numbers = pc.cast(keys, pa.float64())
            if self.is_float32:
                numbers = numbers.cast(pa.float32(), safe=False)
            is_exact = pc.equal(spell_floats(numbers), keys).to_numpy(zero_copy_only=False)
            values: Array = numbers.to_numpy().astype(np.float64)
            bits = np.append(values[is_exact], np.nan).view(np.int64)  # NaN, as a table needs a key
            self.by_number = KeyTable(bits, np.append(ids[is_exact], UNSEEN))
            self.takes_text |= not is_exact.all()
            if self.takes_text:
                self.by_digits = _table_by_digits(keys, ids, values, is_exact)
        if vocabulary.kind == "date":
            self.by_instant = _table_by_instants(vocabulary)
        if self.takes_text:
            missing = MISSING_NUMBERS if vocabulary.kind in KINDS_WITH_MISSING_WORDS else ()
            texts = ["", *missing, *(pc.utf8_normalize(keys, form) if form else keys).to_pylist()]
            self.by_text = KeyTable(tf.constant(texts, tf.string), np.append([PADDING] * (1 + len(missing)), ids))

    def __call__(self, keys: Tensor) -> Tensor:
        """The ids [keys] of keys [keys], which are strings if `takes_text`, else float64."""
        if self.by_text is None:
            return self._ids_of_numbers(keys)
        if self.is_boolean:
            keys = tf.where(self.by_text.lookup(keys) == PADDING, "", tf.strings.lower(keys))  # NA is missing, na a key
        ids_as_written = self.by_text.lookup(keys)
        if self.by_instant is not None:
            return tf.where(ids_as_written == UNSEEN, self.by_instant.lookup(instants(keys)), ids_as_written)
        if self.by_number is None:
            return ids_as_written
        return tf.where(ids_as_written == UNSEEN, self._ids_of_numerals(keys, ids_as_written), ids_as_written)

    def _ids_of_numerals(self, keys: Tensor, ids: Tensor) -> Tensor:
        """The ids of numbers that are written in another way than the keys; other texts keep the given ids."""
        if self.is_float32:
            is_number = tf.strings.regex_full_match(keys, NUMBER)
            numbers = tf.strings.to_number(tf.where(is_number, keys, "0"), tf.float64)
            return tf.where(is_number, self._ids_of_numbers(numbers), ids)
        assert self.by_digits is not None
        is_long = tf.strings.regex_full_match(keys, LONG)
        ids = tf.where(is_long, self.by_digits.lookup(tf.strings.regex_replace(keys, LONG, r"\1\2")), ids)
        has_many_digits = tf.strings.regex_full_match(keys, f".*({MANY_DIGITS}).*")  # float64 may not tell it apart
        is_decimal = tf.strings.regex_full_match(keys, DECIMAL) & ~is_long & ~has_many_digits
        numbers = tf.strings.to_number(tf.where(is_decimal, keys, "0"), tf.float64)
        ids = tf.where(is_decimal, self._ids_of_numbers(numbers), ids)
        if self.is_float:
            is_fraction = has_many_digits & tf.strings.regex_full_match(keys, FRACTION)
            numbers = tf.strings.to_number(tf.where(is_fraction, keys, "0"), tf.float64)
            is_as_c_writes_it = tf.strings.as_string(numbers, precision=17, shortest=True) == keys
            ids = tf.where(is_fraction & is_as_c_writes_it, self._ids_of_numbers(numbers), ids)
        return ids

    def _ids_of_numbers(self, numbers: Tensor) -> Tensor:
        assert self.by_number is not None
        bits = _bits(numbers)
        if self.is_float32:
            bits_of_rounded = _bits(_rounded_to_float32(numbers))
            bits = tf.where(bits_of_rounded == 0, bits, bits_of_rounded)  # what is not 0 is not found by it
        return self.by_number.lookup(bits)


def _bits(numbers: Tensor) -> Tensor:
    """The bits of float64s, those of 0 for -0. TensorFlow computes with subnormal numbers as if they were 0."""
    bits = tf.bitcast(numbers, tf.int64)
    return tf.where(bits == tf.int64.min, tf.zeros_like(bits), bits)


def _rounded_to_float32(numbers: Tensor) -> Tensor:
    """Float64s that are the nearest float32s, also where these are subnormal, which a cast makes 0."""
    rounded = tf.cast(tf.cast(numbers, tf.float32), tf.float64)
    least_float32 = 2.0**-149
    is_subnormal = tf.abs(numbers) < np.finfo(np.float32).tiny
    return tf.where(is_subnormal, tf.round(numbers / least_float32) * least_float32, rounded)


def _table_by_instants(vocabulary: Vocabulary) -> KeyTable | None:
    """The ids of dates by the time that they tell; None if no key is a date, as of parts of dates."""
    known, ids = vocabulary.ids_of_instants
    id_of_instant = dict(zip(reversed(known.to_pylist()), reversed(ids.tolist()), strict=True))  # the first key counts
    if not id_of_instant:
        return None
    return KeyTable(tf.constant(["", *id_of_instant], tf.string), np.array([UNSEEN, *id_of_instant.values()]))


def _table_by_digits(keys: pa.StringArray, ids: Array, numbers: Array, is_exact: Array) -> KeyTable:
    """The ids of large whole numbers by their digits."""
    is_large = np.abs(numbers) >= LARGE
    id_of_digits: dict[str, int] = {}
    # an inexact key, such as a long id, has precedence over a float of its size
    for position in [*np.flatnonzero(is_large & ~is_exact), *np.flatnonzero(is_large & is_exact)]:
        digits = _digits_of(keys[int(position)].as_py())
        if digits is not None:
            id_of_digits.setdefault(digits, int(ids[position]))
    return KeyTable(tf.constant(["", *id_of_digits], tf.string), np.array([UNSEEN, *id_of_digits.values()]))


def _digits_of(key: str) -> str | None:
    """A key that is a large whole number as its digits; 1e+20 is one too."""
    number, exact_number = float(key), Decimal(key)
    if not math.isfinite(number) or exact_number != exact_number.to_integral_value() or abs(number) < LARGE:
        return None
    return key if key.removeprefix("-").isdecimal() else str(int(number))
