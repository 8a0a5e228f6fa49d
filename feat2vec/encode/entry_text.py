"""Entries as text that a person can read and type: what stands for a value that is no key.

A text is its tokens, a number the roundest one that encodes to the same entry, several columns `score=7.5, votes=12`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.encode.array_files import Array
from feat2vec.encode.codecs import Codec, ItemsCodec, NumbersCodec
from feat2vec.encode.scaling import ColumnScale
from feat2vec.encode.vocabulary import FIRST, PADDING, UNSEEN
from feat2vec.schema.extractor_options import TokensSpec
from feat2vec.schema.options import Group
from feat2vec.table.keys import spell_floats
from feat2vec.table.stages import Floats

NOT_SEEN = "<unseen>"  # no token: it has signs that separate words
SHOWN = 4  # numbers of a vector


def spell(codec: Codec, group: Group, entries: Array, numbers: npt.NDArray[Any]) -> pa.StringArray:
    """Each entry's text; `numbers` are those of the values, which tell long vectors apart."""
    if isinstance(codec, ItemsCodec):
        return _items(codec, entries, " " if isinstance(group.extractor, TokensSpec) else ", ")
    if isinstance(codec, NumbersCodec):
        return _columns(codec, entries)
    return _vector(entries, numbers)


def earlier(words: pa.StringArray) -> npt.NDArray[np.int64]:
    """How many of the words before each one are the same.

    >>> earlier(pa.array(["a", "b", "a", "a"])).tolist()
    [0, 0, 1, 2]
    """
    codes = pc.dictionary_encode(words).indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    place = np.empty(len(codes), np.int64)
    place[order] = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    return place


def distinct(names: pa.StringArray) -> pa.StringArray:
    """Names that differ: of rows with one name, the second is called `name #2`.

    >>> distinct(pa.array(["a", "b", "a"])).to_pylist()
    ['a', 'b', 'a #2']
    """
    number = earlier(names) + 1
    suffixes = pc.binary_join_element_wise(" #", pa.array(number).cast(pa.string()), "")
    return pc.binary_join_element_wise(names, pc.if_else(pa.array(number > 1), suffixes, ""), "")


def _items(codec: ItemsCodec, entries: Array, between: str) -> pa.StringArray:
    ids = entries[:, : codec.items] if codec.weighted else entries
    there = ids != PADDING
    flat = ids[there]
    keys = codec.vocabulary.keys.take(pa.array(flat - FIRST, mask=flat == UNSEEN))
    words = pc.fill_null(keys, NOT_SEEN)
    if codec.weighted:
        weights = np.ascontiguousarray(entries[:, codec.items :]).view(np.float32)[there]
        words = pc.binary_join_element_wise(words, spell_floats(pa.array(weights)), ":")
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), words), between)


def _columns(codec: NumbersCodec, entries: Array) -> pa.StringArray:
    count = len(codec.columns)
    told = iter(entries[:, count:].T)
    parts = []
    for i, column in enumerate(codec.columns):
        text = _numbers(column, entries[:, i])
        if column.indicator:
            text = pc.if_else(pa.array(next(told) != 0), "missing", text)
        parts.append(text if count == 1 else pc.binary_join_element_wise(f"{column.column}=", text, ""))
    return parts[0] if count == 1 else pc.binary_join_element_wise(*parts, ", ")


def _numbers(column: ColumnScale, scaled: Array) -> pa.StringArray:
    """The roundest number or date that is scaled to the same."""
    exact = column.invert(scaled.astype(np.float64))
    found = exact.copy()
    todo = np.arange(len(exact))
    is_date = column.kind == "date"
    for step in (1, 24, 1440, 86_400) if is_date else range(18):  # parts of a day; a whole number, then more digits
        some = exact[todo]
        rounded = np.round(some * step) / step if is_date else _significant(some, step) if step else np.round(some)
        with np.errstate(all="ignore"):  # a number above -1 may be rounded to -1, whose logarithm is none
            same = column.apply(rounded).astype(np.float32) == scaled[todo]
        found[todo[same]] = rounded[same]
        todo = todo[~same]
    if is_date:
        micros = pa.array(np.round(found * 86_400e6).astype(np.int64)).cast(pa.timestamp("us"))
        whole = pc.replace_substring_regex(micros.cast(pa.string()), r"\.000000$", "")
        return pc.replace_substring_regex(whole, r" 00:00:00$", "")
    return spell_floats(pa.array(found + 0.0))


def _significant(numbers: Floats, digits: int) -> Floats:
    """Numbers rounded to some digits."""
    size = np.floor(np.log10(np.abs(numbers), out=np.zeros_like(numbers), where=numbers != 0))
    places = digits - 1 - size  # dividing by a power of ten is exact where multiplying by its inverse is not
    up, down = 10.0 ** np.clip(places, 0, 300), 10.0 ** np.clip(-places, 0, 300)
    rounded: Floats = np.round(numbers * up / down) / up * down
    return rounded


def _vector(entries: Array, numbers: npt.NDArray[Any]) -> pa.StringArray:
    shown = [spell_floats(pa.array(np.round(part.astype(np.float64), 4))) for part in entries[:, :SHOWN].T]
    text = pc.binary_join_element_wise(*shown, ", ")
    rest = ", ..." if entries.shape[1] > SHOWN else ""
    return pc.binary_join_element_wise("[", text, f"{rest}] #", pa.array(numbers + 1).cast(pa.string()), "")
