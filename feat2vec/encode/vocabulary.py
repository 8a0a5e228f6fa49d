"""Keys and their ids: 0 is padding or missing, 1 is unseen, the rest by descending count, then key.

Where the rows tell the levels of keys, ids are by descending level first; see `vocabulary_fit.VocabularyFit.by_levels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Int8s, Int64s, Ints
from feat2vec.encode.arrays_on_disk import ROWS_PER_PIECE, read_parquet
from feat2vec.schema.levels import Levels
from feat2vec.table.spelling import instants, respell, respell_float32, respell_large, respell_rounded
from feat2vec.table.types import KINDS_WITH_MISSING_WORDS, MISSING_NUMBERS, Kind

PADDING, UNSEEN, FIRST = 0, 1, 2  # ids; FIRST is that of the most frequent key
FEW_KEYS = 16  # keys are few if the vocabulary has more than this many times as many
SCANS_BEFORE_INDEX = 10  # searches for a few keys before an index of the vocabulary is worth its memory
KEYS_AT_ONCE = 1 << 20  # of the vocabulary that are compared with others at a time
COLUMNS = pa.schema({"key": pa.string(), "id": pa.int32(), "count": pa.int64(), "level": pa.int8()})
KEY_COUNTS = pa.schema({"key": pa.string(), "n": pa.int64()})

Counts = Int64s


class Vocabulary:
    """The keys of a group or of its tokens.

    Args:
        keys: The keys in the order of their ids, which begin with `FIRST`.
        counts: How often each key occurs in the training rows, [keys].
        unseen: How often keys that are too rare occur in the training rows.
        kind: How text is spelled as a key.
        too_frequent: Keys that are treated as missing.
        levels: The level of each key, from 1, [keys], where the training rows tell it; then ids are by descending level
            first. None where it follows from the counts.

    """

    def __init__(
        self,
        keys: pa.StringArray,
        counts: Counts,
        unseen: int = 0,
        kind: Kind = "text",
        too_frequent: Sequence[str] = (),
        levels: Int8s | None = None,
    ) -> None:
        self.keys = keys
        self.levels = levels
        self.counts = counts
        self.unseen = unseen
        self.kind: Kind = kind
        self.too_frequent = list(too_frequent)
        self.scans = 0  # how often keys were searched for without an index

    def __len__(self) -> int:
        """One more than the largest id."""
        return len(self.keys) + FIRST

    @cached_property
    def key_to_id(self) -> dict[str, int]:
        return {key: i for i, key in enumerate(self.keys.to_pylist(), start=FIRST)}

    def key(self, id_: int) -> str | None:
        """The key of an id; None for padding and unseen."""
        return None if id_ < FIRST else str(self.keys[id_ - FIRST].as_py())

    def ids(self, keys: pa.StringArray) -> Ints:
        """The ids of keys, [keys].

        UNSEEN stands for a key that is not in the vocabulary, PADDING for null, for a key that is too frequent and, in
        a vocabulary of numbers or truth values, for NA and the like.
        """
        if self.kind in KINDS_WITH_MISSING_WORDS:
            keys = pc.if_else(pc.is_in(keys, pa.array(MISSING_NUMBERS)), pa.scalar(None, pa.string()), keys)
        if self.kind == "boolean":
            keys = respell(keys, self.kind)
        ids = self._ids_as_spelled(keys)
        if self.kind in ("number", "float", "float32"):
            ids = self._ids_respelled(ids, keys)
        if self.kind == "date":
            ids = self._ids_of_dates(ids, keys)
        return ids

    def _ids_of_dates(self, ids: Ints, keys: pa.StringArray) -> Ints:
        """`ids`, where unseen dates are searched for by the time that they tell, however it is written."""
        unseen = np.flatnonzero(ids == UNSEEN)
        instants_of_keys = instants(keys.take(pa.array(unseen)))
        if instants_of_keys.null_count == len(instants_of_keys):
            return ids
        known, ids_of_known = self.ids_of_instants
        places = pc.index_in(instants_of_keys, known, skip_nulls=True)
        is_known = pc.is_valid(places).to_numpy(zero_copy_only=False)
        ids = ids.copy()
        ids[unseen[is_known]] = ids_of_known[places.drop_null().to_numpy()]
        return ids

    @cached_property
    def ids_of_instants(self) -> tuple[pa.StringArray, Ints]:
        """The instants of all keys that are dates, also of those that are too frequent, and their ids."""
        known = instants(pa.concat_arrays([self.keys, pa.array(self.too_frequent, pa.string())]))
        ids = np.append(np.arange(FIRST, len(self)), [PADDING] * len(self.too_frequent)).astype(np.int32)
        is_date = pc.is_valid(known)
        return known.filter(is_date), ids[is_date.to_numpy(zero_copy_only=False)]

    def _ids_respelled(self, ids: Ints, keys: pa.StringArray) -> Ints:
        """`ids`, where unseen numbers are searched for in their other spellings: `7.0` finds the key 7."""
        ids = ids.copy()
        unseen = np.flatnonzero(ids == UNSEEN)  # the places in `ids` of keys that were not found yet
        keys = keys.take(pa.array(unseen))
        spellings: list[Callable[[pa.StringArray], pa.StringArray]] = [partial(respell, kind=self.kind), respell_large]
        if self.kind == "float32":
            spellings = [respell_float32]
        if self.kind == "float":
            spellings.append(respell_rounded)
        for spelling in spellings:
            respelled = spelling(keys)
            is_changed = pc.not_equal(respelled, keys)
            changed = np.flatnonzero(is_changed.to_numpy(zero_copy_only=False))
            if len(changed):
                ids[unseen[changed]] = self._ids_as_spelled(respelled.filter(is_changed))
            still_unseen = np.flatnonzero(ids[unseen] == UNSEEN)
            unseen, keys = unseen[still_unseen], respelled.take(pa.array(still_unseen))
        return ids

    def _ids_as_spelled(self, keys: pa.StringArray) -> Ints:
        """The ids of keys, without other spellings; by whichever search suits their number."""
        if self.too_frequent:
            is_too_frequent = pc.is_in(keys, pa.array(self.too_frequent, pa.string()))
            keys = pc.if_else(is_too_frequent, pa.scalar(None, pa.string()), keys)
        are_few = len(keys) * FEW_KEYS < len(self.keys)
        has_index = are_few and self.scans >= SCANS_BEFORE_INDEX
        if len(keys) < len(self.keys) and not has_index:
            self.scans += 1
            return self._ids_by_scan(keys)
        if are_few:  # hashing the whole vocabulary for a few keys would take longer
            key_to_id = self.key_to_id
            return np.array(
                [PADDING if key is None else key_to_id.get(key, UNSEEN) for key in keys.to_pylist()], np.int32
            )
        places = pc.index_in(keys, self.keys, skip_nulls=True)
        ids_or_unseen = pc.fill_null(pc.add(places, FIRST), UNSEEN)
        ids = pc.if_else(pc.is_null(keys), PADDING, ids_or_unseen)
        as_int32: Ints = ids.to_numpy(zero_copy_only=False).astype(np.int32)
        return as_int32

    def _ids_by_scan(self, keys: pa.StringArray) -> Ints:
        """Search the vocabulary once for these keys, in pieces: of its size nothing is allocated."""
        encoded = keys.dictionary_encode()
        id_of = np.full(len(encoded.dictionary) + 1, UNSEEN, np.int32)  # the last is that of null
        at_once = max(KEYS_AT_ONCE, len(encoded.dictionary))  # each piece hashes the keys that are searched for
        for start in range(0, len(self.keys), at_once):
            # The place of each of the vocabulary's keys among those that are searched for.
            places = pc.index_in(self.keys.slice(start, at_once), encoded.dictionary)
            is_searched = pc.is_valid(places).to_numpy(zero_copy_only=False)
            id_of[places.drop_null().to_numpy()] = np.flatnonzero(is_searched) + (start + FIRST)
        id_of[-1] = PADDING
        ids: Ints = id_of[pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()]
        return ids

    def moved_to(self, path: Path) -> Vocabulary:
        """The same vocabulary, whose keys and counts stay in a file, where they take no memory until they are read.

        Args:
            path: The new file.

        """
        write_keys(path, self.keys, self.counts)
        keys, counts = read_keys(path, mapped=True)
        return Vocabulary(keys, counts, self.unseen, self.kind, self.too_frequent, self.levels)

    def levels_in(self, levels: Levels) -> Int8s:
        """The level of each key in a model of these levels, [keys]; it descends."""
        if self.levels is not None:
            return self.levels
        starts = range(0, max(len(self.counts), 1), ROWS_PER_PIECE)  # at once would take 16 bytes a key more
        return np.concatenate([levels.of_counts(self.counts[start : start + ROWS_PER_PIECE]) for start in starts])

    def table(self, levels: Levels | Sequence[int]) -> pa.Table:
        """Key, id, count and level, in the order of the ids; of levels their ranks will do."""
        levels = levels if isinstance(levels, Levels) else Levels(tuple(levels))
        ids = np.arange(FIRST, len(self), dtype=np.int32)
        columns = {
            "key": self.keys,
            "id": ids,
            "count": self.counts,
            "level": self.levels_in(levels),
        }
        return pa.table(columns)

    @classmethod
    def from_table(
        cls,
        table: pa.Table,
        unseen: int,
        kind: Kind,
        too_frequent: Sequence[str] = (),
        *,
        levels_given: bool = False,
    ) -> Vocabulary:
        """The vocabulary of which `table` is the table; `levels_given` says that its levels do not follow from counts.

        Raises:
            ValueError: If the keys are not in the order of their ids and counts, or another argument is not valid.

        """
        if kind not in get_args(Kind):
            raise ValueError(f"no kind of keys: {kind!r}")
        if not is_count(unseen) or not is_list_of(too_frequent, str):
            raise ValueError("`unseen` is a count, and `too_frequent` lists keys")
        if any(table[name].null_count for name in ("key", "id", "count")):
            raise ValueError("the vocabulary lacks a key, an id or a count")
        keys, counts = table["key"].combine_chunks().cast(pa.string()), table["count"].to_numpy()
        if not np.array_equal(table["id"].to_numpy(), np.arange(FIRST, len(keys) + FIRST)):
            raise ValueError("the vocabulary's keys are not in the order of their ids")
        levels = None
        is_next_level = np.zeros(max(len(counts) - 1, 0), np.bool_)
        if levels_given:
            if table["level"].null_count:
                raise ValueError("the vocabulary lacks a level")
            levels = table["level"].to_numpy().astype(np.int8)
            if len(levels) and (levels[-1] < 1 or (levels[1:] > levels[:-1]).any()):
                raise ValueError("the vocabulary's levels do not descend")
            is_next_level = levels[1:] < levels[:-1]
        if len(counts) and (counts.min() < 0 or ((counts[1:] > counts[:-1]) & ~is_next_level).any()):
            raise ValueError("the vocabulary's counts do not descend")
        return cls(keys, counts, unseen, kind, too_frequent, levels)


def read_vocabulary(path: Path) -> pa.Table:
    """Read the Parquet file of a `Vocabulary.table`."""
    table = read_parquet(path, COLUMNS)
    table.validate(full=True)  # keys that are not UTF-8 would fail wherever they are printed
    return table


def write_keys(path: Path, keys: pa.StringArray, counts: Counts) -> None:
    """Write keys, and how often each occurs, to a file that `read_keys` reads."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, KEY_COUNTS) as writer:
        writer.write_batch(pa.record_batch([keys, pa.array(counts)], schema=KEY_COUNTS))


def read_keys(path: Path, *, mapped: bool = False) -> tuple[pa.StringArray, Counts]:
    """The keys, and how often each occurs, that `write_keys` wrote; with `mapped` they stay in the file."""
    open_file = pa.memory_map if mapped else pa.OSFile
    with open_file(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
        batch = reader.get_batch(0)
    return batch.column("key"), batch.column("n").to_numpy()


def is_count(value: object) -> bool:
    """Whether a value of a JSON file is a whole number of 64 bits, at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_list_of(values: object, item_type: type) -> bool:
    """Whether a value of a JSON file is a list of one type."""
    return isinstance(values, list | tuple) and all(isinstance(value, item_type) for value in values)
