"""Entries as text that a person can read and type: what stands for a value that is no key.

A text is its tokens, a number the roundest one that encodes to the same entry, several columns `score=7.5, votes=12`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Array, Floats, Int64s, Integers
from feat2vec.encode.codecs import Codec, ItemsCodec, NumbersCodec
from feat2vec.encode.codecs.numbers import ColumnScale, numbers_checked
from feat2vec.encode.vocabulary import FIRST, PADDING, UNSEEN
from feat2vec.schema.extractor_options import NumbersSpec, TokensSpec
from feat2vec.schema.options import Group
from feat2vec.table.spelling import spell_floats
from feat2vec.table.table import Stage

NOT_SEEN = "<unseen>"  # no token: it has signs that separate words
SHOWN_NUMBERS = 4  # of a vector
PARTS_OF_A_DAY = (1, 24, 1440, 86_400)  # to which dates are rounded: days, hours, minutes, seconds
MOST_DIGITS = 17  # of a float64


def spell(codec: Codec, group: Group, entries: Array, value_ids: Integers) -> pa.StringArray:
    """Each entry's text; `value_ids` are those of the entries, which tell long vectors apart."""
    if isinstance(codec, ItemsCodec):
        return _spell_items(codec, entries, " " if isinstance(group.extractor, TokensSpec) else ", ")
    if isinstance(codec, NumbersCodec):
        return _spell_columns(codec, entries)
    return _spell_vectors(entries, value_ids)


def occurrences_before(words: pa.StringArray) -> Int64s:
    """How many of the words before a word are the same, for each word.

    >>> occurrences_before(pa.array(["a", "b", "a", "a"])).tolist()
    [0, 0, 1, 2]
    """
    codes = pc.dictionary_encode(words).indices.to_numpy()
    order = np.argsort(codes, kind="stable")  # equal words stand together, in their order
    first_of_word = np.flatnonzero(np.diff(codes[order], prepend=-1))
    word_counts = np.diff(np.append(first_of_word, len(codes)))
    occurrences = np.empty(len(codes), np.int64)
    occurrences[order] = np.arange(len(codes)) - np.repeat(first_of_word, word_counts)
    return occurrences


def distinct_names(names: pa.StringArray) -> pa.StringArray:
    """Names that differ: of rows with one name, the second is called `name #2`.

    >>> distinct_names(pa.array(["a", "b", "a"])).to_pylist()
    ['a', 'b', 'a #2']
    """
    number = occurrences_before(names) + 1
    suffixes = pc.binary_join_element_wise(" #", pa.array(number).cast(pa.string()), "")
    return pc.binary_join_element_wise(names, pc.if_else(pa.array(number > 1), suffixes, ""), "")


def _spell_items(codec: ItemsCodec, entries: Array, separator: str) -> pa.StringArray:
    ids = entries[:, : codec.items] if codec.weighted else entries
    is_item = ids != PADDING
    item_ids = ids[is_item]
    keys = codec.vocabulary.keys.take(pa.array(item_ids - FIRST, mask=item_ids == UNSEEN))
    words = pc.fill_null(keys, NOT_SEEN)
    if codec.weighted:
        weights = np.ascontiguousarray(entries[:, codec.items :]).view(np.float32)[is_item]
        words = pc.binary_join_element_wise(words, spell_floats(pa.array(weights)), ":")
    offsets = np.concatenate([[0], np.cumsum(is_item.sum(axis=1))]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words), separator)


def _spell_columns(codec: NumbersCodec, entries: Array) -> pa.StringArray:
    count = len(codec.columns)
    indicators = iter(entries[:, count:].T)  # of the columns that have one
    texts = []
    for i, column in enumerate(codec.columns):
        text = _spell_numbers(column, entries[:, i])
        if column.indicator:
            text = pc.if_else(pa.array(next(indicators) != 0), "missing", text)
        texts.append(text if count == 1 else pc.binary_join_element_wise(f"{column.column}=", text, ""))
    return texts[0] if count == 1 else pc.binary_join_element_wise(*texts, ", ")


def _spell_numbers(column: ColumnScale, scaled: Array) -> pa.StringArray:
    numbers = roundest_numbers(column, scaled)
    return _spell_dates(numbers) if column.kind == "date" else spell_floats(pa.array(numbers))


def roundest_numbers(column: ColumnScale, scaled: Array) -> Floats:
    """The roundest numbers, or days since 1970, that are scaled to the same: [entries]."""
    is_date = column.kind == "date"
    exact = column.invert(scaled.astype(np.float64))
    roundest = exact.copy()
    todo = np.arange(len(exact))  # the entries whose roundest number is not known yet
    for precision in PARTS_OF_A_DAY if is_date else range(MOST_DIGITS + 1):
        rounded = _round_dates(exact[todo], precision) if is_date else _round_numbers(exact[todo], precision)
        with np.errstate(all="ignore"):  # a number above -1 may be rounded to -1, which has no logarithm
            is_same = column.apply(rounded).astype(np.float32) == scaled[todo]
        roundest[todo[is_same]] = rounded[is_same]
        todo = todo[~is_same]
    numbers: Floats = roundest + 0.0  # no number is -0
    return numbers


def _round_dates(days: Floats, parts: int) -> Floats:
    """Days since 1970, rounded to a part of a day."""
    return np.round(days * parts) / parts


def _round_numbers(numbers: Floats, digits: int) -> Floats:
    """Numbers rounded to significant digits; for 0 digits, to whole numbers."""
    if not digits:
        return np.round(numbers)
    magnitude = np.floor(np.log10(np.abs(numbers), out=np.zeros_like(numbers), where=numbers != 0))
    places = digits - 1 - magnitude
    # Dividing by a power of ten is exact where multiplying by its inverse is not.
    up, down = 10.0 ** np.clip(places, 0, 300), 10.0 ** np.clip(-places, 0, 300)
    rounded: Floats = np.round(numbers * up / down) / up * down
    return rounded


def _spell_dates(days: Floats) -> pa.StringArray:
    """Days since 1970 as dates; midnight is the day."""
    micros = pa.array(np.round(days * 86_400e6).astype(np.int64)).cast(pa.timestamp("us"))
    whole_seconds = pc.replace_substring_regex(micros.cast(pa.string()), r"\.000000$", "")
    return pc.replace_substring_regex(whole_seconds, r" 00:00:00$", "")


def text_beyond_range(codec: NumbersCodec, group: Group, stage: Stage, row: int) -> str | None:
    """A row's own numbers as text, where one of them lies beyond those of training, of which it counts as the nearest.

    Args:
        codec: The group's codec.
        group: The group.
        stage: Holds the row.
        row: Which of its rows.

    Returns:
        The text; None if the row has no such number.

    """
    assert isinstance(group.extractor, NumbersSpec)
    texts, is_beyond = [], False
    for column in codec.columns:
        number = numbers_checked(stage, column.column, group.extractor, column.kind)[0][row : row + 1]  # [1]
        if column.scale == "quantile" and not np.isnan(number[0]):
            is_beyond |= not column.knots[0] <= number[0] <= column.knots[-1]
        spelled = _spell_dates(number) if column.kind == "date" else spell_floats(pa.array(number))
        text = "missing" if np.isnan(number[0]) else str(spelled[0].as_py())
        texts.append(text if len(codec.columns) == 1 else f"{column.column}={text}")
    return ", ".join(texts) if is_beyond else None


def _spell_vectors(entries: Array, value_ids: Integers) -> pa.StringArray:
    """The first numbers of each vector, and its value's number."""
    columns = entries[:, :SHOWN_NUMBERS].T
    numbers = [spell_floats(pa.array(np.round(column.astype(np.float64), 4))) for column in columns]
    text = pc.binary_join_element_wise(*numbers, ", ")
    rest = ", ..." if entries.shape[1] > SHOWN_NUMBERS else ""
    return pc.binary_join_element_wise("[", text, f"{rest}] #", pa.array(value_ids + 1).cast(pa.string()), "")
