"""The strings that stand for a group's vectors: the position of a key, and the keys near to an unknown one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Array
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.entry_text import spell
from feat2vec.encode.vocabulary import FIRST
from feat2vec.errors import UserError
from feat2vec.space.geometry import blocks
from feat2vec.table.database import connect

MAX_SCANS = 10  # keys that are looked for by a scan; for more an index of all keys is made
VALUES_PER_BLOCK = 1 << 18  # that are spelled at a time
WORDS = r"[^\s,;]+"


class Names:
    """The strings that stand for vectors, by position."""

    def __init__(self, strings: pa.StringArray) -> None:
        self.strings = strings

    @cached_property
    def all_strings(self) -> list[str]:
        """Every string, in order."""
        all_strings: list[str] = self.strings.to_pylist()
        return all_strings

    @cached_property
    def _position_of_string(self) -> dict[str, int]:
        positions: dict[str, int] = {}
        for position, string in enumerate(self.all_strings):
            positions.setdefault(string, position)
        return positions

    def at(self, positions: Sequence[int]) -> list[str]:
        """The strings at some positions."""
        strings: list[str] = self.strings.take(pa.array(positions, pa.int64())).to_pylist()
        return strings

    def find(self, key: object) -> int:
        """The position of a key, -1 if there is none."""
        return self._position_of_string.get(text_of(key), -1)


class KeyNames(Names):
    """The keys of a lookup group."""

    def __init__(self, encoder: Encoder, group: str) -> None:
        vocabulary = encoder.codecs[group].vocabulary
        assert vocabulary is not None
        super().__init__(vocabulary.keys)
        self.vocabulary, self.scans = vocabulary, 0

    def find(self, key: object) -> int:
        text = text_of(key)
        has_index = "key_to_id" in vars(self.vocabulary)  # a cached property
        if has_index or self.scans > MAX_SCANS:
            id_ = self.vocabulary.key_to_id.get(text, -1)
        else:  # to make an index of all keys takes longer than to look for a few
            self.scans += 1
            position = pc.index(self.vocabulary.keys, pa.scalar(text, pa.string())).as_py()
            id_ = position + FIRST if position >= 0 else -1
        if id_ < FIRST:  # the key may be written in another way, as 5.0 for 5
            id_ = int(self.vocabulary.ids(pa.array([text]))[0])
        return id_ - FIRST


class ValueNames(Names):
    """The values of a group without keys, each of which is spelled when it is shown."""

    def __init__(self, encoder: Encoder, group: str) -> None:
        self.encoder, self.group = encoder, group
        self.entries = encoder.values[group].entries

    def _spelled(self, positions: Array) -> pa.StringArray:
        codec, options = self.encoder.codecs[self.group], self.encoder.schema.groups[self.group]
        return spell(codec, options, self.entries[positions], positions)

    @cached_property
    def strings(self) -> pa.StringArray:
        positions = np.arange(len(self.entries))
        return pa.concat_arrays([self._spelled(positions[rows]) for rows in blocks(len(positions), VALUES_PER_BLOCK)])

    def at(self, positions: Sequence[int]) -> list[str]:
        strings: list[str] = self._spelled(np.array(positions, np.int64)).to_pylist()
        return strings

    def find(self, key: object) -> int:
        """The value that the key is encoded as, so that a text finds its tokens; else the one that is spelled so."""
        position = self._find_encoded(text_of(key))
        return position if position >= 0 else super().find(key)

    def _find_encoded(self, text: str) -> int:
        columns = self.encoder.schema.groups[self.group].columns
        if len(columns) > 1:
            return -1
        value: object = text
        if self.encoder.codecs[self.group].vocabulary is None:
            with suppress(ValueError):
                value = float(text)
        try:
            (batch,) = self.encoder.entries(pa.table({columns[0]: [value]}))
        except UserError:  # no value of this group's type
            return -1
        entries, width = batch[self.group].rows, self.entries.shape[1]  # [0 or 1, width of the new entry]
        if not len(entries) or entries[0, width:].any():
            return -1
        is_equal = (self.entries == entries[0, :width]).all(axis=1)
        positions = np.flatnonzero(is_equal)
        return int(positions[0]) if len(positions) else -1


def text_of(key: object) -> str:
    """A key as text that can be encoded; the bytes of a file's name may not be UTF-8.

    >>> text_of(True), text_of(5), text_of("Ozu")
    ('true', '5', 'Ozu')
    """
    text = str(key).lower() if isinstance(key, (bool, np.bool_)) else str(key)
    return text.encode("utf-8", "replace").decode()


def nearest(key: str, names: Names, total: int) -> str:
    """The end of a message that a key is unknown: `; did you mean ...?`, or some of the first `total` keys.

    Near are keys that hold the word, or are spelled much like it, with words in any order.
    """
    word = text_of(key).casefold()
    words_in_order = " ".join(sorted(re.findall(WORDS, word)))
    known = pa.table({"key": names.strings[:total], "i": np.arange(total)})
    with connect() as connection:
        connection.register("known", known)
        near = connection.execute(
            "select key from (select key, i, contains(lower(key), $word) holds,"
            " greatest(jaro_winkler_similarity(lower(key), $word), jaro_winkler_similarity(array_to_string("
            " list_sort(regexp_extract_all(lower(key), $words)), ' '), $in_order)) alike from known)"
            " where (holds and $word <> '') or alike > 0.8 order by holds desc, round(alike, 1) desc, i limit 3",
            {"word": word, "words": WORDS, "in_order": words_in_order},
        ).fetchall()
    if near:
        return f"; did you mean {' or '.join(repr(name) for (name,) in near)}?"
    return f"; it has {total:,}, such as {', '.join(map(repr, names.at(range(min(3, total)))))}"
