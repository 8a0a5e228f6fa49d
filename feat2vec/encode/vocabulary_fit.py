"""Fit a vocabulary: count the keys of the training rows, in memory while they are few, else in DuckDB."""

from __future__ import annotations

from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Ints
from feat2vec.encode.vocabulary import FIRST, PADDING, UNSEEN, Counts, Vocabulary
from feat2vec.table.columns import concat
from feat2vec.table.kinds import MISSING_NUMBERS, Kind
from feat2vec.table.spelling import respell

NUMERAL = r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?"
HELD_KEY_BYTES = 64 << 20  # of distinct keys in memory; more are counted by DuckDB
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


class VocabularyFit:
    """Counts keys stage by stage, and gives the id of each key of a stage once it is finished.

    Args:
        connection: DuckDB, which spills to disk what is larger than its memory.
        name: The name of the table of keys in DuckDB.
        held_bytes: How many bytes of distinct keys are held in memory before DuckDB takes them.

    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, held_bytes: int = HELD_KEY_BYTES) -> None:
        self.connection, self.name, self.held_bytes = connection, name, held_bytes
        self.keys: KeysInMemory | KeysInDatabase = KeysInMemory(held_bytes)

    def add(self, keys: pa.StringArray, counts: Counts) -> None:
        """Count the keys of a stage; their order is remembered for `ids`."""
        self.keys.add(keys, counts)
        if isinstance(self.keys, KeysInMemory) and self.keys.distinct.nbytes > self.held_bytes:
            self.keys = self.keys.moved_to(self.connection, self.name)

    def spell(self) -> Kind:
        """Find how the keys of a column without a type are spelled, and spell them so.

        A column of booleans is spelled in lower case. In a column of numbers, NA and the like are missing. Every other
        column is text.
        """
        return self.keys.spell()

    def finish(self, min_count: int, max_size: int | None, kind: Kind, max_count: int | None = None) -> Vocabulary:
        """Give ids to the keys that are frequent enough, and to no more than `max_size` of them.

        Keys with more than `max_count` occurrences are treated as missing.
        """
        selected = self.keys.select(KeyLimits(min_count, max_size, max_count))
        keys = selected.kept["key"].combine_chunks().cast(pa.string())
        counts = selected.kept["n"].to_numpy()
        unseen = selected.occurrences - int(counts.sum()) - int(selected.too_frequent["n"].to_numpy().sum())
        self.keys.set_ids(selected, np.arange(FIRST, FIRST + len(keys), dtype=np.int32))
        return Vocabulary(keys, counts, unseen, kind, selected.too_frequent["key"].to_pylist())

    def ids(self, stage: int) -> Ints:
        """The id of each key of a stage, in the order in which `add` received them; 0 for one that never occurs."""
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

    def spell(self) -> Kind:
        self._merge()
        is_missing = pc.is_in(self.distinct, pa.array(MISSING_NUMBERS)).to_numpy(zero_copy_only=False)
        present = self.distinct.filter(pa.array((self.counts > 0) & ~is_missing))
        if not len(present):
            return "text"
        if pc.all(pc.is_in(pc.utf8_lower(present), pa.array(["true", "false"]))).as_py():
            self._spell_booleans()
            return "boolean"
        if pc.all(pc.match_substring_regex(present, f"^(?:{NUMERAL})$")).as_py():
            self.counts[is_missing] = 0
            is_missing_or_never = np.append(is_missing, True)  # the last belongs to NEVER
            self.places = [np.where(is_missing_or_never[places], NEVER, places) for places in self.places]
            return "numeral"
        return "text"

    def _spell_booleans(self) -> None:
        encoded = respell(self.distinct, "boolean").dictionary_encode()
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

    def spell(self) -> Kind:
        [(are_booleans, are_numbers)] = self.connection.sql(
            f"select bool_and(lower(key) in ('true', 'false')), bool_and(regexp_full_match(key, '{NUMERAL}'))"
            f" from {self.name} where key not in {MISSING_NUMBERS}"
        ).fetchall()
        if are_booleans:
            self._spell_booleans()
            return "boolean"
        if are_numbers:
            self.connection.execute(f"delete from {self.name} where key in {MISSING_NUMBERS}")
            return "numeral"
        return "text"

    def _spell_booleans(self) -> None:
        keys = self.connection.sql(f"select distinct key from {self.name}").to_arrow_table()["key"]
        spellings = pa.table({"old": keys, "new": respell(keys.combine_chunks(), "boolean")})
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

    def ids(self, stage: int) -> Ints:
        known = self.connection.sql(
            f"select code, coalesce(id, {UNSEEN})::int id from (from {self.name} where stage = {stage})"
            f" left join key_ids using (key)"
        ).to_arrow_table()
        ids = np.full(self.stage_sizes[stage], PADDING, np.int32)
        ids[known["code"].to_numpy()] = known["id"].to_numpy()
        return ids
