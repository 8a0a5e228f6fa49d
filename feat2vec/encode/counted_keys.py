"""The distinct keys of all stages with their counts: in memory, or in DuckDB where they are too many.

Both `KeysInMemory` and `KeysInDatabase` take the keys of a stage by `add`. `spell` unites those that are spelled alike,
`select` chooses those that get an id, `set_ids` takes the ids, and `ids` gives those of the keys of a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Ints
from feat2vec.encode.mapped_keys import MappedKeysWriter
from feat2vec.encode.number_keys import (
    FLOAT,
    INTEGER,
    NUMERAL,
    WHOLE_FLOAT,
    Forms,
    are_integers_and_floats,
    without_point,
)
from feat2vec.encode.vocabulary import PADDING, UNSEEN, Counts
from feat2vec.table.numbers import concat
from feat2vec.table.spelling import respell
from feat2vec.table.types import MISSING_NUMBERS, Kind

BYTES_OF_SEARCHED_KEY = 16  # about, with its place in a stage
PLACES_FACTOR = 4  # times the bytes of keys that are held, those of their places in the stages
NEVER = -1  # the place of a key that does not occur


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

    @property
    def are_too_many(self) -> bool:
        """Whether the keys, or their places in many stages, take more memory than they may."""
        places_bytes = sum(places.nbytes for places in self.places)
        return self.distinct.nbytes > self.held_bytes or places_bytes > PLACES_FACTOR * self.held_bytes

    def _merge(self) -> None:
        """Find the waiting keys among the distinct ones, and add the new ones."""
        if not self.waiting:  # an index of all distinct keys would be made for nothing
            return
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

    def moved_to(self, connection: duckdb.DuckDBPyConnection, name: str, folder: Path) -> KeysInDatabase:
        """The same keys in a table of DuckDB, which writes those that get an id into a folder."""
        self._merge()
        database = KeysInDatabase(connection, name, folder, self.held_bytes)
        database.add_totals(self.distinct, self.counts)
        for places in self.places:
            database.add_counted(self.distinct, places)
        return database


class KeysInDatabase:
    """The keys of each stage in a table of DuckDB, which spills to disk.

    A row of the table has the stage, the key's place in the stage (`code`), the key, and how often it occurs there.
    The keys that get an id stay in files, which are memory-mapped.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, folder: Path, held_bytes: int) -> None:
        self.connection = connection.cursor()  # groups are fitted in several threads
        self.name, self.folder = name, folder
        self.keys_at_once = held_bytes // BYTES_OF_SEARCHED_KEY  # whose ids are searched for together
        self.stage_sizes: list[int] = []  # how many keys each stage has
        self.ids_of_stages: dict[int, Ints] = {}  # of the stages that were searched for last
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
        in_order = self.connection.sql(
            f"select * from {counted} where n >= {limits.min_count} {at_most} order by n desc, key {limit}"
        )
        with MappedKeysWriter(self.folder, self.name) as writer:
            for batch in pa.RecordBatchReader.from_stream(in_order):
                writer.append(batch.column("key").cast(pa.string()), batch.column("n"))
            kept = writer.table()
        too_frequent = kept.slice(0, 0)
        if limits.max_count is not None:
            too_frequent = self.connection.sql(
                f"select * from {counted} where n > {limits.max_count} order by key"
            ).to_arrow_table()
        [(occurrences,)] = self.connection.sql(f"select coalesce(sum(n), 0)::bigint from {self.name}").fetchall()
        return SelectedKeys(kept, too_frequent, occurrences)

    def set_ids(self, selected: SelectedKeys, ids: Ints) -> None:
        self.ids_of_stages = {}
        padding = np.full(len(selected.too_frequent), PADDING, np.int32)
        keys = pa.concat_tables([selected.kept, selected.too_frequent])
        self.connection.register("key_ids", keys.append_column("id", pa.array(np.concatenate([ids, padding]))))

    def drop(self) -> None:
        """Remove the table and the ids."""
        self.connection.unregister("key_ids")
        self.connection.execute(f"drop table if exists {self.name}")

    def ids(self, stage: int) -> Ints:
        if stage not in self.ids_of_stages:
            self.ids_of_stages = {}  # the last ones are let go of before
            self.ids_of_stages = self._search(stage)
        return self.ids_of_stages[stage]

    def _search(self, first: int) -> dict[int, Ints]:
        """The ids of a stage's keys, and those of as many stages after it as are searched for at once.

        Each search reads all keys that have an id.
        """
        end, keys = first + 1, self.stage_sizes[first]
        while end < len(self.stage_sizes) and keys + self.stage_sizes[end] <= self.keys_at_once:
            keys += self.stage_sizes[end]
            end += 1
        known = self.connection.sql(
            f"select stage, code, coalesce(id, {UNSEEN})::int id"
            f" from (from {self.name} where stage >= {first} and stage < {end}) left join key_ids using (key)"
        )
        ids = {stage: np.full(self.stage_sizes[stage], PADDING, np.int32) for stage in range(first, end)}
        for batch in pa.RecordBatchReader.from_stream(known):
            stages, codes, ids_of_codes = (batch.column(i).to_numpy() for i in range(3))
            for stage in np.unique(stages).tolist():
                of_stage = stages == stage
                ids[stage][codes[of_stage]] = ids_of_codes[of_stage]
        return ids
