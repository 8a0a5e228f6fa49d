"""Keys and their ids: 0 is padding or missing, 1 is unseen, the rest by descending count, then key.

Where the rows tell the levels of keys, ids are by descending level first; see `VocabularyFit.by_levels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple, get_args

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Int8s, Int64s, Ints
from feat2vec.encode.arrays_on_disk import read_parquet
from feat2vec.schema.levels import Levels
from feat2vec.table.numbers import concat
from feat2vec.table.spelling import instants, respell, respell_float32, respell_large, respell_rounded
from feat2vec.table.types import KINDS_WITH_MISSING_WORDS, MISSING_NUMBERS, Kind

PADDING, UNSEEN, FIRST = 0, 1, 2  # ids; FIRST is that of the most frequent key
FEW_KEYS = 16  # keys are few if the vocabulary has more than this many times as many
SCANS_BEFORE_INDEX = 10  # searches for a few keys before an index of the vocabulary is worth its memory
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
        """Search the vocabulary once for these keys: of its size, only one number a key is allocated."""
        encoded = keys.dictionary_encode()
        places = pc.index_in(self.keys, encoded.dictionary)  # of each of the vocabulary's keys among `keys`
        is_searched = pc.is_valid(places).to_numpy(zero_copy_only=False)
        id_of = np.full(len(encoded.dictionary) + 1, UNSEEN, np.int32)  # the last is that of null
        id_of[places.drop_null().to_numpy()] = np.flatnonzero(is_searched) + FIRST
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
        return levels.of_counts(self.counts) if self.levels is None else self.levels

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


NUMERAL = r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?"
INTEGER = r"-?(0|[1-9][0-9]*)"
WHOLE_FLOAT = r"-?(0|[1-9][0-9]*)\.0"
FLOAT = r"-?(0|[1-9][0-9]*)\.(0|[0-9]*[1-9])"  # the shortest text of one without an exponent
HELD_KEY_BYTES = 64 << 20  # of distinct keys in memory; more are counted by DuckDB
NEVER = -1  # the place of a key that does not occur


def without_point(keys: pa.StringArray) -> pa.StringArray:
    """Spell whole numbers without .0 at their end.

    >>> without_point(pa.array(["26.0", "-0.0", "9007199254740993.0"])).to_pylist()
    ['26', '0', '9007199254740993']

    """
    return pc.replace_substring_regex(pc.replace_substring_regex(keys, r"\.0$", ""), "^-0$", "0")


class Forms(NamedTuple):
    """Whether all keys of a column read as integers, or as floats; None for a column without keys."""

    are_integers: bool | None
    are_floats: bool | None


def are_integers_and_floats(forms_of_columns: Iterable[Forms]) -> bool:
    """Whether some columns hold integers alone, and all others floats alone.

    >>> integers, floats, mixed = Forms(True, False), Forms(False, True), Forms(False, False)
    >>> [are_integers_and_floats(forms) for forms in ([integers, floats], [floats] * 2, [integers, floats, mixed])]
    [True, False, False]

    """
    with_keys = {forms for forms in forms_of_columns if forms.are_integers is not None}
    return with_keys == {Forms(True, False), Forms(False, True)}


class KeyLimits(NamedTuple):
    """Which keys get an id: those that occur from `min_count` to `max_count` times, the `max_size` most frequent."""

    min_count: int
    max_size: int | None
    max_count: int | None


class SelectedKeys(NamedTuple):
    """The keys that get an id, in the order of the ids, and those that are too frequent.

    Both tables have the columns `key` and `n`, how often it occurs; `KeysInMemory` adds `place`.
    """

    kept: pa.Table
    too_frequent: pa.Table
    occurrences: int  # of all keys


class VocabularyFit:
    """Counts keys stage by stage, and gives the id of each key of a stage once it is finished.

    Groups that share a vocabulary add their stages to one fit, each in a thread of its own.

    Args:
        connection: DuckDB, which spills to disk what is larger than its memory.
        name: The name of the table of keys in DuckDB.
        held_bytes: How many bytes of distinct keys are held in memory before DuckDB takes them.

    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, held_bytes: int = HELD_KEY_BYTES) -> None:
        self.connection, self.name, self.held_bytes = connection, name, held_bytes
        self.keys: KeysInMemory | KeysInDatabase = KeysInMemory(held_bytes)
        self.stages = 0  # added so far
        self.lock = Lock()
        self.limits = KeyLimits(1, None, None)  # those of `finish`

    def add(self, keys: pa.StringArray, counts: Counts) -> int:
        """Count the keys of a stage; their order is remembered for `ids`, which takes the number that is returned."""
        with self.lock:
            self.keys.add(keys, counts)
            if isinstance(self.keys, KeysInMemory) and self.keys.distinct.nbytes > self.held_bytes:
                self.keys = self.keys.moved_to(self.connection, self.name)
            self.stages += 1
            return self.stages - 1

    def spell(self, columns: Sequence[Sequence[int]] = ()) -> Kind:
        """Find how the keys of a column without a type are spelled, and spell them so.

        A column of booleans is spelled in lower case, and one of whole numbers each of which ends in .0 without that
        end: such are the integers of a column with gaps that pandas wrote. Where columns share the keys, and some hold
        integers alone and the others floats alone, `7.0` is the key 7 of them all. In a column of numbers or booleans,
        NA and the like are missing. Every other column is text.

        Args:
            columns: The stages of each column, where several share the keys.

        Returns:
            The kind of the keys.

        """
        return self.keys.spell(columns)

    def finish(self, min_count: int, max_size: int | None, kind: Kind, max_count: int | None = None) -> Vocabulary:
        """Give ids to the keys that are frequent enough, and to no more than `max_size` of them.

        Keys with more than `max_count` occurrences are treated as missing.
        """
        self.limits = KeyLimits(min_count, max_size, max_count)
        selected = self.keys.select(self.limits)
        keys = selected.kept["key"].combine_chunks().cast(pa.string())
        counts = selected.kept["n"].to_numpy()
        unseen = selected.occurrences - int(counts.sum()) - int(selected.too_frequent["n"].to_numpy().sum())
        self.keys.set_ids(selected, np.arange(FIRST, FIRST + len(keys), dtype=np.int32))
        return Vocabulary(keys, counts, unseen, kind, selected.too_frequent["key"].to_pylist())

    def by_levels(self, vocabulary: Vocabulary, given_levels: Sequence[Int8s], levels: Levels) -> Vocabulary:
        """Give new ids to the keys of a vocabulary that is finished: by descending level, then as before.

        So the keys that reach a level have the first ids, as they have where levels follow from counts.

        Args:
            vocabulary: What `finish` returned.
            given_levels: For each stage the level of each of its keys, 0 where no row tells it.
            levels: Those of the model, which say the level of a key that no row tells.

        """
        of_ids = np.zeros(len(vocabulary), np.int8)
        for stage, of_stage in enumerate(given_levels):
            np.maximum.at(of_ids, self.ids(stage), of_stage)
        of_keys = of_ids[FIRST:]
        of_keys = np.where(of_keys > 0, of_keys, levels.of_counts(vocabulary.counts))  # [keys]
        order = np.argsort(-of_keys, kind="stable")
        selected = self.keys.select(self.limits)
        self.keys.set_ids(
            selected._replace(kept=selected.kept.take(pa.array(order))),
            np.arange(FIRST, len(vocabulary), dtype=np.int32),
        )
        keys, counts = vocabulary.keys.take(pa.array(order)), vocabulary.counts[order]
        return Vocabulary(keys, counts, vocabulary.unseen, vocabulary.kind, vocabulary.too_frequent, of_keys[order])

    def release(self) -> None:
        """Let go of the keys, once no more ids are asked for."""
        with self.lock:
            if isinstance(self.keys, KeysInDatabase):
                self.keys.drop()
            self.keys = KeysInMemory(self.held_bytes)

    def ids(self, stage: int) -> Ints:
        """The id of each key of a stage, in the order in which `add` received them; 0 for one that never occurs."""
        with self.lock:
            return self.keys.ids(stage)


class KeysInMemory:
    """The distinct keys of all stages, and where the keys of each stage are among them.

    A table in DuckDB takes far more memory than the few keys of most groups, and each of its statements milliseconds.
    """

    def __init__(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes
        self.waiting: list[tuple[pa.StringArray, Counts]] = []  # keys and counts of stages that are not merged yet
        self.distinct: pa.StringArray = pa.array([], pa.string())
        self.counts: Counts = np.zeros(0, np.int64)  # how often each distinct key occurs
        self.places: list[Ints] = []  # of each stage: its keys' places in `distinct`, NEVER for one that never occurs
        self.id_of: Ints = np.zeros(0, np.int32)  # [distinct + 1]; the last belongs to the place NEVER

    def add(self, keys: pa.StringArray, counts: Counts) -> None:
        self.waiting.append((keys, counts))
        if sum(stage_keys.nbytes for stage_keys, _ in self.waiting) > self.held_bytes:
            self._merge()

    def _merge(self) -> None:
        """Find the waiting keys among the distinct ones, and add the new ones."""
        chunks = [self.distinct, *(keys for keys, _ in self.waiting)]
        encoded = pa.chunked_array(chunks, pa.string()).dictionary_encode()
        self.distinct = encoded.chunk(0).dictionary if encoded.num_chunks else self.distinct
        new_keys = len(self.distinct) - len(self.counts)
        self.counts = np.concatenate([self.counts, np.zeros(new_keys, np.int64)])
        codes = concat([chunk.indices for chunk in encoded.chunks])
        ends = np.cumsum([len(chunk) for chunk in chunks])
        stage_places = np.split(codes, ends[:-1])[1:]
        for places, (_, counts) in zip(stage_places, self.waiting, strict=True):
            np.add.at(self.counts, places, counts)  # a stage may have a key twice
            self.places.append(np.where(counts > 0, places, NEVER))
        self.waiting = []

    def spell(self, columns: Sequence[Sequence[int]]) -> Kind:
        self._merge()
        is_missing = pc.is_in(self.distinct, pa.array(MISSING_NUMBERS)).to_numpy(zero_copy_only=False)
        present = self.distinct.filter(pa.array((self.counts > 0) & ~is_missing))
        if not len(present):
            return "text"
        if pc.all(pc.is_in(pc.utf8_lower(present), pa.array(["true", "false"]))).as_py():
            self._leave_out(is_missing)
            self._respell(respell(self.distinct, "boolean"))
            return "boolean"
        if pc.all(pc.match_substring_regex(present, f"^(?:{WHOLE_FLOAT})$")).as_py():
            self._leave_out(is_missing)
            self._respell(without_point(self.distinct))
            return "number"
        if pc.all(pc.match_substring_regex(present, f"^(?:{NUMERAL})$")).as_py():
            self._leave_out(is_missing)
            if not are_integers_and_floats(self._forms(stages) for stages in columns):
                return "numeral"
            self._respell(without_point(self.distinct))
            return "number"
        return "text"

    def _forms(self, stages: Sequence[int]) -> Forms:
        """The forms of a column's keys."""
        places = np.unique(np.concatenate([self.places[stage] for stage in stages]))
        keys = self.distinct.take(pa.array(places[places != NEVER]))
        are_of = [pc.all(pc.match_substring_regex(keys, f"^(?:{form})$")).as_py() for form in (INTEGER, FLOAT)]
        return Forms(*are_of) if len(keys) else Forms(None, None)

    def _leave_out(self, is_missing: npt.NDArray[np.bool_]) -> None:
        """Let some distinct keys never occur, [distinct]."""
        self.counts[is_missing] = 0
        is_missing_or_never = np.append(is_missing, True)  # the last belongs to NEVER
        self.places = [np.where(is_missing_or_never[places], NEVER, places) for places in self.places]

    def _respell(self, spelled: pa.StringArray) -> None:
        """Spell the distinct keys so, [distinct]; keys that are spelled alike are one."""
        encoded = spelled.dictionary_encode()
        new_place = encoded.indices.to_numpy()  # of each key, among those in lower case
        counts = np.zeros(len(encoded.dictionary), np.int64)
        np.add.at(counts, new_place, self.counts)
        self.distinct, self.counts = encoded.dictionary, counts
        self.places = [np.where(places >= 0, new_place[places], NEVER) for places in self.places]

    def select(self, limits: KeyLimits) -> SelectedKeys:
        self._merge()
        places = np.arange(len(self.distinct), dtype=np.int32)
        counted = pa.table({"key": self.distinct, "n": self.counts, "place": places})
        max_count = np.iinfo(np.int64).max if limits.max_count is None else limits.max_count
        is_kept = (self.counts >= max(limits.min_count, 1)) & (self.counts <= max_count)
        kept = counted.filter(pa.array(is_kept)).sort_by([("n", "descending"), ("key", "ascending")])
        too_frequent = counted.filter(pa.array(self.counts > max_count)).sort_by("key")
        return SelectedKeys(kept.slice(0, limits.max_size), too_frequent, int(self.counts.sum()))

    def set_ids(self, selected: SelectedKeys, ids: Ints) -> None:
        self.id_of = np.full(len(self.distinct) + 1, UNSEEN, np.int32)
        self.id_of[selected.kept["place"].to_numpy()] = ids
        self.id_of[selected.too_frequent["place"].to_numpy()] = PADDING
        self.id_of[NEVER] = PADDING

    def ids(self, stage: int) -> Ints:
        ids: Ints = self.id_of[self.places[stage]]
        return ids

    def moved_to(self, connection: duckdb.DuckDBPyConnection, name: str) -> KeysInDatabase:
        """The same keys in a table of DuckDB."""
        self._merge()
        database = KeysInDatabase(connection, name)
        database.add_totals(self.distinct, self.counts)
        for places in self.places:
            database.add_counted(self.distinct, places)
        return database


class KeysInDatabase:
    """The keys of each stage in a table of DuckDB, which spills to disk.

    A row of the table has the stage, the key's place in the stage (`code`), the key, and how often it occurs there.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self.connection = connection.cursor()  # groups are fitted in several threads
        self.name = name
        self.stage_sizes: list[int] = []  # how many keys each stage has
        self.connection.execute(f"create table {name} (stage int, code int, key varchar, n bigint)")

    def add(self, keys: pa.StringArray, counts: Counts) -> None:
        self.stage_sizes.append(len(keys))
        codes = np.flatnonzero(counts)
        self._insert(len(self.stage_sizes) - 1, codes, keys.take(pa.array(codes)), counts[codes])

    def add_totals(self, keys: pa.StringArray, counts: Counts) -> None:
        """Add counts of several stages together."""
        codes = np.flatnonzero(counts)
        self._insert(-1, codes, keys.take(pa.array(codes)), counts[codes])

    def add_counted(self, keys: pa.StringArray, places: Ints) -> None:
        """Add a stage by its keys' places in `keys`, whose occurrences `add_totals` has counted."""
        self.stage_sizes.append(len(places))
        codes = np.flatnonzero(places >= 0)
        stage_keys = keys.take(pa.array(places[codes]))
        self._insert(len(self.stage_sizes) - 1, codes, stage_keys, np.zeros(len(codes), np.int64))

    def _insert(self, stage: int, codes: npt.NDArray[np.intp], keys: pa.StringArray, counts: Counts) -> None:
        self.connection.register("piece", pa.table({"code": codes, "key": keys, "n": counts}))
        self.connection.execute(f"insert into {self.name} select {stage}, code, key, n from piece")
        self.connection.unregister("piece")

    def spell(self, columns: Sequence[Sequence[int]]) -> Kind:
        [(are_booleans, are_numbers, are_whole)] = self.connection.sql(
            f"select bool_and(lower(key) in ('true', 'false')), bool_and(regexp_full_match(key, '{NUMERAL}')),"
            f" bool_and(regexp_full_match(key, '{WHOLE_FLOAT}'))"
            f" from {self.name} where key not in {MISSING_NUMBERS}"
        ).fetchall()
        if not (are_booleans or are_numbers):
            return "text"
        self.connection.execute(f"delete from {self.name} where key in {MISSING_NUMBERS}")
        if are_booleans:
            self._respell(partial(respell, kind="boolean"))
            return "boolean"
        if not are_whole and not are_integers_and_floats(self._forms(stages) for stages in columns):
            return "numeral"
        self._respell(without_point)
        return "number"

    def _forms(self, stages: Sequence[int]) -> Forms:
        """The forms of a column's keys."""
        [are_of] = self.connection.sql(
            f"select bool_and(regexp_full_match(key, '{INTEGER}')), bool_and(regexp_full_match(key, '{FLOAT}'))"
            f" from {self.name} where list_contains({list(stages)}, stage)"
        ).fetchall()
        return Forms(*are_of)

    def _respell(self, spell: Callable[[pa.StringArray], pa.StringArray]) -> None:
        keys = self.connection.sql(f"select distinct key from {self.name}").to_arrow_table()["key"]
        spellings = pa.table({"old": keys, "new": spell(keys.combine_chunks())})
        self.connection.register("spellings", spellings)
        self.connection.execute(f"update {self.name} set key = new from spellings where key = old")
        self.connection.unregister("spellings")

    def select(self, limits: KeyLimits) -> SelectedKeys:
        counted = f"(select key, sum(n)::bigint n from {self.name} group by key)"
        limit = "" if limits.max_size is None else f"limit {limits.max_size}"
        at_most = "" if limits.max_count is None else f"and n <= {limits.max_count}"
        kept = self.connection.sql(
            f"select * from {counted} where n >= {limits.min_count} {at_most} order by n desc, key {limit}"
        ).to_arrow_table()
        too_frequent = kept.slice(0, 0)
        if limits.max_count is not None:
            too_frequent = self.connection.sql(
                f"select * from {counted} where n > {limits.max_count} order by key"
            ).to_arrow_table()
        [(occurrences,)] = self.connection.sql(f"select coalesce(sum(n), 0)::bigint from {counted}").fetchall()
        return SelectedKeys(kept, too_frequent, occurrences)

    def set_ids(self, selected: SelectedKeys, ids: Ints) -> None:
        padding = np.full(len(selected.too_frequent), PADDING, np.int32)
        keys = pa.concat_tables([selected.kept, selected.too_frequent])
        self.connection.register("key_ids", keys.append_column("id", pa.array(np.concatenate([ids, padding]))))

    def drop(self) -> None:
        """Remove the table and the ids."""
        self.connection.unregister("key_ids")
        self.connection.execute(f"drop table if exists {self.name}")

    def ids(self, stage: int) -> Ints:
        known = self.connection.sql(
            f"select code, coalesce(id, {UNSEEN})::int id from (from {self.name} where stage = {stage})"
            f" left join key_ids using (key)"
        ).to_arrow_table()
        ids = np.full(self.stage_sizes[stage], PADDING, np.int32)
        ids[known["code"].to_numpy()] = known["id"].to_numpy()
        return ids
