"""The strings that stand for a group's vectors: which one is meant, and what is near to one that is none of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.encode.array_files import Array
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.entry_text import spell
from feat2vec.encode.vocabulary import FIRST
from feat2vec.errors import UserError
from feat2vec.space.geometry import blocks
from feat2vec.table.database import connect

SCANNED = 10  # keys that are looked for one by one


class Names:
    """The strings that stand for a group's vectors."""

    def __init__(self, strings: pa.StringArray) -> None:
        self.strings = strings

    @cached_property
    def every(self) -> list[str]:
        every: list[str] = self.strings.to_pylist()
        return every

    @cached_property
    def _index(self) -> dict[str, int]:
        return {key: i for i, key in reversed(list(enumerate(self.every)))}  # the first of equal ones

    def at(self, some: Sequence[int]) -> list[str]:
        """Some of them."""
        keys: list[str] = self.strings.take(pa.array(some, pa.int64())).to_pylist()
        return keys

    def find(self, key: object) -> int:
        """Where a key is, -1 for nowhere."""
        return self._index.get(text_of(key), -1)


class KeyNames(Names):
    """The keys of a lookup group."""

    def __init__(self, encoder: Encoder, group: str) -> None:
        vocabulary = encoder.codecs[group].vocabulary
        assert vocabulary is not None
        super().__init__(vocabulary.keys)
        self.vocabulary, self.looked_up = vocabulary, 0

    def find(self, key: object) -> int:
        text = text_of(key)
        if "key_to_id" in vars(self.vocabulary) or self.looked_up > SCANNED:
            i = self.vocabulary.key_to_id.get(text, -1)
        else:  # an index of all keys takes longer than to look for a few
            self.looked_up += 1
            i = pc.index(self.vocabulary.keys, pa.scalar(text, pa.string())).as_py()
            i += FIRST if i >= 0 else 0
        return (i if i >= FIRST else int(self.vocabulary.ids(pa.array([text]))[0])) - FIRST


class ValueNames(Names):
    """The values of a group without keys, each of which is spelled when it is shown."""

    def __init__(self, encoder: Encoder, group: str) -> None:
        self.encoder, self.group = encoder, group
        self.entries = encoder.values[group].entries

    def _spell(self, some: Array) -> pa.StringArray:
        encoder = self.encoder
        return spell(encoder.codecs[self.group], encoder.schema.groups[self.group], self.entries[some], some)

    @cached_property
    def strings(self) -> pa.StringArray:
        every = np.arange(len(self.entries))
        return pa.concat_arrays([self._spell(every[some]) for some in blocks(len(every), 1 << 18)])

    def at(self, some: Sequence[int]) -> list[str]:
        keys: list[str] = self._spell(np.array(some, np.int64)).to_pylist()
        return keys

    def find(self, key: object) -> int:
        """By what the key is encoded as, so that a text finds its tokens; else by how a value is spelled."""
        i = self._find_encoded(text_of(key))
        return i if i >= 0 else super().find(key)

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
        rows, width = batch[self.group].rows, self.entries.shape[1]
        if not len(rows) or rows[0, width:].any():
            return -1
        same = np.flatnonzero((self.entries == rows[0, :width]).all(axis=1))
        return int(same[0]) if len(same) else -1


def text_of(key: object) -> str:
    """A key as text that has an encoding; bytes of a file's name may have none."""
    text = str(key).lower() if isinstance(key, (bool, np.bool_)) else str(key)
    return text.encode("utf-8", "replace").decode()


WORDS = r"[^\s,;]+"


def nearest(key: str, keys: Names, total: int) -> str:
    """`; did you mean ...?` for keys that hold the word, or are spelled much like it, with words in any order."""
    word = text_of(key).casefold()
    in_order = " ".join(sorted(re.findall(WORDS, word)))
    known = pa.table({"key": keys.strings[:total], "i": np.arange(total)})
    with connect() as connection:
        connection.register("known", known)
        near = connection.execute(
            "select key from (select key, i, contains(lower(key), $word) holds,"
            " greatest(jaro_winkler_similarity(lower(key), $word), jaro_winkler_similarity(array_to_string("
            " list_sort(regexp_extract_all(lower(key), $words)), ' '), $in_order)) alike from known)"
            " where (holds and $word <> '') or alike > 0.8 order by holds desc, round(alike, 1) desc, i limit 3",
            {"word": word, "words": WORDS, "in_order": in_order},
        ).fetchall()
    if near:
        return f"; did you mean {' or '.join(repr(name) for (name,) in near)}?"
    return f"; it has {total:,}, such as {', '.join(map(repr, keys.at(range(min(3, total)))))}"
