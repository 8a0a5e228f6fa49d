"""Keys and their ids: 0 is padding or missing, 1 is unseen, the rest by descending count, then key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, get_args

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.schema.levels import Levels
from feat2vec.table.keys import respell, respell_large, respell_rounded
from feat2vec.table.stages import MISSING_NUMBERS, Ints, Kind, concat

PADDING, UNSEEN, FIRST = 0, 1, 2
NUMERAL = r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?"
SCANS = 10  # searches for a few keys before an index of all is worth its memory
HELD_BYTES = 64 << 20
Counts = npt.NDArray[np.int64]


class Vocabulary:
    """The keys of a group or of its tokens.

    `unseen` counts the training occurrences of keys that are too rare; `kind` says how text is spelled as a key.
    `too_frequent` are keys that count as none.
    """

    def __init__(
        self,
        keys: pa.StringArray,
        counts: Counts,
        unseen: int = 0,
        kind: Kind = "text",
        too_frequent: Sequence[str] = (),
    ) -> None:
        self.keys = keys
        self.counts = counts
        self.unseen = unseen
        self.kind: Kind = kind
        self.too_frequent = list(too_frequent)
        self.scans = 0  # how often keys were looked for without an index

    def __len__(self) -> int:
        """One more than the largest id."""
        return len(self.keys) + FIRST

    @cached_property
    def key_to_id(self) -> dict[str, int]:
        return {key: i for i, key in enumerate(self.keys.to_pylist(), start=FIRST)}

    def ids(self, keys: pa.StringArray) -> Ints:
        """The ids of keys: 1 for a key that is not here, 0 for null, NA among numbers and what is too frequent."""
        if self.kind == "boolean":
            keys = respell(keys, self.kind)
        if self.kind in ("number", "float", "numeral"):
            keys = pc.if_else(pc.is_in(keys, pa.array(MISSING_NUMBERS)), pa.scalar(None, pa.string()), keys)
        ids = self._find(keys)
        if self.kind in ("number", "float"):  # a number that is no key as it stands may be one in another spelling
            ids = self._find_respelled(ids, keys)
        return ids

    def _find_respelled(self, ids: Ints, keys: pa.StringArray) -> Ints:
        unseen = np.flatnonzero(ids == UNSEEN)
        ids, keys = ids.copy(), keys.take(pa.array(unseen))
        ways: list[Callable[[pa.StringArray], pa.StringArray]] = [partial(respell, kind=self.kind), respell_large]
        for way in [*ways, *([respell_rounded] if self.kind == "float" else [])]:
            respelled = way(keys)
            changed = pc.not_equal(respelled, keys)
            places = np.flatnonzero(changed.to_numpy(zero_copy_only=False))
            if len(places):
                ids[unseen[places]] = self._find(respelled.filter(changed))
            still = np.flatnonzero(ids[unseen] == UNSEEN)
            unseen, keys = unseen[still], respelled.take(pa.array(still))
        return ids

    def _find(self, keys: pa.StringArray) -> Ints:
        """The ids of keys as they stand."""
        if self.too_frequent:
            none = pc.is_in(keys, pa.array(self.too_frequent, pa.string()))
            keys = pc.if_else(none, pa.scalar(None, pa.string()), keys)
        few = len(keys) * 16 < len(self.keys)
        if len(keys) < len(self.keys) and not (few and self.scans >= SCANS):  # an index of all keys takes more memory
            self.scans += 1
            return self._scan(keys)
        if few:  # hashing the whole vocabulary for a few keys would take longer
            known, words = self.key_to_id, keys.to_pylist()
            return np.array([PADDING if word is None else known.get(word, UNSEEN) for word in words], np.int32)
        found = pc.fill_null(pc.add(pc.index_in(keys, self.keys, skip_nulls=True), FIRST), UNSEEN)
        ids: Ints = pc.if_else(pc.is_null(keys), PADDING, found).to_numpy(zero_copy_only=False).astype(np.int32)
        return ids

    def _scan(self, keys: pa.StringArray) -> Ints:
        """Look for these keys among all: nothing of the vocabulary's size is made but a number for each key."""
        encoded = keys.dictionary_encode()
        places = pc.index_in(self.keys, encoded.dictionary)  # of each key of the vocabulary among these
        here = pc.is_valid(places).to_numpy(zero_copy_only=False)
        id_of = np.full(len(encoded.dictionary) + 1, UNSEEN, np.int32)
        id_of[places.drop_null().to_numpy()] = np.flatnonzero(here) + FIRST
        id_of[-1] = PADDING
        ids: Ints = id_of[pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()]
        return ids

    def key(self, id_: int) -> str | None:
        """The key of an id; None for padding and unseen."""
        return None if id_ < FIRST else str(self.keys[id_ - FIRST].as_py())

    def table(self, ranks: Sequence[int]) -> pa.Table:
        """Key, id, count and level, in the order of the ids."""
        ids = np.arange(FIRST, len(self), dtype=np.int32)
        levels = Levels(tuple(ranks)).of_counts(self.counts)
        columns = {"key": self.keys, "id": ids, "count": self.counts, "level": levels}
        return pa.table(columns)

    @classmethod
    def from_table(cls, table: pa.Table, unseen: int, kind: Kind, too_frequent: Sequence[str] = ()) -> Vocabulary:
        """What `table` made a table of.

        Raises:
            ValueError: If these are no keys in the order of their ids and counts, or the other facts are none.

        """
        if kind not in get_args(Kind):
            raise ValueError(f"no kind of keys: {kind!r}")
        if not is_count(unseen) or not is_list_of(too_frequent, str):
            raise ValueError("`unseen` is a count, and `too_frequent` lists keys")
        keys, counts = table["key"].combine_chunks().cast(pa.string()), table["count"].to_numpy()
        if not np.array_equal(table["id"].to_numpy(), np.arange(FIRST, len(keys) + FIRST)) or keys.null_count:
            raise ValueError("the vocabulary's keys are not in the order of their ids")
        if len(counts) and (counts[-1] < 0 or (counts[1:] > counts[:-1]).any()):
            raise ValueError("the vocabulary's counts do not descend")
        return cls(keys, counts, unseen, kind, too_frequent)


class VocabularyFit:
    """Counts keys stage by stage: in memory while the distinct ones are few, else in DuckDB, which spills to disk."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.sizes: list[int] = []  # how many keys each stage has
        self.held: list[tuple[pa.StringArray, Counts]] = []  # of the last stages
        self.keys = pa.array([], pa.string())  # the distinct ones of the stages before,
        self.counts: Counts = np.zeros(0, np.int64)  # how often each occurs,
        self.places: list[Ints] = []  # and where each of a stage's keys is among them, -1 for one that never occurs
        self.id_of: Ints = np.zeros(0, np.int32)
        self.stored = False

    def add(self, keys: pa.StringArray, counts: Counts) -> None:
        """The keys of a stage and how often each occurs; their order is remembered for `ids`."""
        self.sizes.append(len(keys))
        if self.stored:
            some = np.flatnonzero(counts)
            self._insert(len(self.sizes) - 1, some, keys.take(pa.array(some)), counts[some])
            return
        self.held.append((keys, counts))
        if sum(some.nbytes for some, _ in self.held) > HELD_BYTES:
            self._merge()
            if self.keys.nbytes > HELD_BYTES:
                self._store()

    def spell(self) -> Kind:
        """What kind of keys a table of text holds: all booleans, which become lower case, all numbers, or text."""
        if not self.stored:
            self._merge()
            return self._spell_held()
        facts = self.connection.sql(
            f"select bool_and(lower(key) in ('true', 'false')),"
            f" bool_and(regexp_full_match(key, '{NUMERAL}'))"
            f" from {self.name}"
            f" where key not in {MISSING_NUMBERS}"
        ).fetchall()
        boolean, number = facts[0]
        kind: Kind = "boolean" if boolean else "numeral" if number else "text"
        if kind == "numeral":  # among numbers, NA is a missing one
            self.connection.execute(f"delete from {self.name} where key in {MISSING_NUMBERS}")
        if boolean:
            respelled = self.connection.sql(f"select distinct key from {self.name}").to_arrow_table()["key"]
            pairs = pa.table({"old": respelled, "new": respell(respelled.combine_chunks(), kind)})
            self.connection.register("pairs", pairs)
            self.connection.execute(f"update {self.name} set key = new from pairs where key = old")
            self.connection.unregister("pairs")
        return kind

    def _spell_held(self) -> Kind:
        """`spell`, of keys in memory: a table of DuckDB's takes far more than the few keys of a group."""
        missing = pc.is_in(self.keys, pa.array(MISSING_NUMBERS)).to_numpy(zero_copy_only=False)
        told = self.keys.filter(pa.array((self.counts > 0) & ~missing))
        if not len(told):
            return "text"
        if pc.all(pc.is_in(pc.utf8_lower(told), pa.array(["true", "false"]))).as_py():
            encoded = respell(self.keys, "boolean").dictionary_encode()
            place_of = encoded.indices.to_numpy()  # of each key, among those in lower case
            counts = np.zeros(len(encoded.dictionary), np.int64)
            np.add.at(counts, place_of, self.counts)
            self.keys, self.counts = encoded.dictionary, counts
            self.places = [np.where(places >= 0, place_of[places], -1) for places in self.places]
            return "boolean"
        if pc.all(pc.match_substring_regex(told, f"^(?:{NUMERAL})$")).as_py():
            self.counts[missing] = 0  # among numbers, NA is a missing one
            self.places = [np.where(np.append(missing, True)[places], -1, places) for places in self.places]
            return "numeral"
        return "text"

    def finish(self, min_count: int, max_size: int | None, kind: Kind, max_count: int | None = None) -> Vocabulary:
        if not self.stored:
            self._merge()
        counted = self._counted_in_database if self.stored else self._counted_in_memory
        kept, frequent, total = counted(min_count, max_size, max_count)
        keys, counts = kept["key"].combine_chunks().cast(pa.string()), kept["n"].to_numpy()
        unseen = total - int(counts.sum()) - int(frequent["n"].to_numpy().sum())
        ids = np.arange(FIRST, FIRST + len(keys), dtype=np.int32)
        if self.stored:
            none = np.full(len(frequent), PADDING, np.int32)
            known = pa.concat_tables([kept, frequent]).append_column("id", pa.array(np.concatenate([ids, none])))
            self.connection.register("known", known)
        else:
            self.id_of = np.full(len(self.keys) + 1, UNSEEN, np.int32)
            self.id_of[kept["place"].to_numpy()] = ids
            self.id_of[frequent["place"].to_numpy()] = self.id_of[-1] = PADDING
        return Vocabulary(keys, counts, unseen, kind, frequent["key"].to_pylist())

    def _counted_in_memory(
        self, min_count: int, max_size: int | None, max_count: int | None
    ) -> tuple[pa.Table, pa.Table, int]:
        """(Keys that have an id, in its order; keys that are too frequent; occurrences of all), by Arrow alone.

        A statement of DuckDB's takes milliseconds, however few the keys are.
        """
        places = np.arange(len(self.keys), dtype=np.int32)
        every = pa.table({"key": self.keys, "n": self.counts, "place": places})
        highest = np.iinfo(np.int64).max if max_count is None else max_count
        enough = (self.counts >= max(min_count, 1)) & (self.counts <= highest)
        kept = every.filter(pa.array(enough)).sort_by([("n", "descending"), ("key", "ascending")])
        frequent = every.filter(pa.array(self.counts > highest)).sort_by("key")
        return kept.slice(0, max_size), frequent, int(self.counts.sum())

    def _counted_in_database(
        self, min_count: int, max_size: int | None, max_count: int | None
    ) -> tuple[pa.Table, pa.Table, int]:
        """The same, by DuckDB."""
        counted = f"(select key, sum(n)::bigint n from {self.name} group by key)"
        limit = "" if max_size is None else f"limit {max_size}"
        at_most = "" if max_count is None else f"and n <= {max_count}"
        kept = self.connection.sql(
            f"select * from {counted} where n >= {min_count} {at_most} order by n desc, key {limit}"
        ).to_arrow_table()
        frequent = kept.slice(0, 0)
        if max_count is not None:
            frequent = self.connection.sql(
                f"select * from {counted} where n > {max_count} order by key"
            ).to_arrow_table()
        [(total,)] = self.connection.sql(f"select coalesce(sum(n), 0)::bigint from {counted}").fetchall()
        return kept, frequent, total

    def ids(self, stage: int) -> Ints:
        """The id of each key of a stage, in the order in which `add` had them; 0 for one that never occurs."""
        if not self.stored:
            ids: Ints = self.id_of[self.places[stage]]
            return ids
        found = self.connection.sql(
            f"select code, coalesce(id, {UNSEEN})::int id from (from {self.name} where stage = {stage})"
            f" left join known using (key)"
        ).to_arrow_table()
        ids = np.full(self.sizes[stage], PADDING, np.int32)
        ids[found["code"].to_numpy()] = found["id"].to_numpy()
        return ids

    def _merge(self) -> None:
        """Find the keys that are held among the distinct ones."""
        chunks = [self.keys, *(keys for keys, _ in self.held)]
        encoded = pa.chunked_array(chunks, pa.string()).dictionary_encode()
        self.keys = encoded.chunk(0).dictionary if encoded.num_chunks else self.keys
        self.counts = np.concatenate([self.counts, np.zeros(len(self.keys) - len(self.counts), np.int64)])
        codes = concat([chunk.indices for chunk in encoded.chunks])
        ends = np.cumsum([len(chunk) for chunk in chunks])
        for places, (_, counts) in zip(np.split(codes, ends[:-1])[1:], self.held, strict=True):
            np.add.at(self.counts, places, counts)  # a stage may spell a key in two ways
            self.places.append(np.where(counts > 0, places, -1))
        self.held = []

    def _store(self) -> None:
        """Hand everything over to DuckDB."""
        if self.stored:
            return
        self._merge()
        self.stored = True
        self.connection = self.connection.cursor()  # groups are worked on in several threads
        self.connection.execute(f"create table {self.name} (stage int, code int, key varchar, n bigint)")
        some = np.flatnonzero(self.counts)
        self._insert(-1, some, self.keys.take(pa.array(some)), self.counts[some])
        for stage, places in enumerate(self.places):
            codes = np.flatnonzero(places >= 0)
            keys = self.keys.take(pa.array(places[codes]))
            self._insert(stage, codes, keys, np.zeros(len(codes), np.int64))  # they are counted
        self.keys, self.counts, self.places = self.keys.slice(0, 0), self.counts[:0], []

    def _insert(self, stage: int, codes: npt.NDArray[np.intp], keys: pa.StringArray, counts: Counts) -> None:
        piece = pa.table({"code": codes, "key": keys, "n": counts})
        self.connection.register("piece", piece)
        self.connection.execute(f"insert into {self.name} select {stage}, code, key, n from piece")
        self.connection.unregister("piece")


KEYS = pa.schema({"key": pa.string(), "id": pa.int32(), "count": pa.int64(), "level": pa.int8()})
LARGE, MOST_EXPANSION = 1 << 28, 10_000  # bytes that a file may become, and times its own size beyond that


def is_count(value: object) -> bool:
    """Whether a fact of a JSON file is a whole number of 64 bits, at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_list_of(values: object, kind: type) -> bool:
    """Whether a fact of a JSON file is a list of one type."""
    return isinstance(values, list | tuple) and all(isinstance(value, kind) for value in values)


def read_vocabulary(path: Path) -> pa.Table:
    """Read what `Vocabulary.table` made."""
    table = read_parquet(path, KEYS)
    table.validate(full=True)  # keys that are no UTF-8 would fail wherever they are shown
    return table


def read_parquet(path: Path, wanted: pa.Schema | None = None) -> pa.Table:
    """Read a table that `write_parquet` wrote; with `wanted`, one that has just these columns.

    Raises:
        ValueError: If it has others, or far more rows than a file of its size can hold.
        pa.ArrowException: If the file's offsets or lengths are not sound.

    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        if wanted is not None:
            _refuse_other_columns(path, file, wanted)
        table = file.read()
    table.validate(full=True)
    return table


def _refuse_other_columns(path: Path, file: Any, wanted: pa.Schema) -> None:
    held = file.schema_arrow
    if held.names != wanted.names or held.types != wanted.types:
        raise ValueError(f"{path.name} has other columns than {', '.join(wanted.names)}, or of other types")
    size = file.metadata.num_rows * sum(_bytes_of(type_) for type_ in wanted.types)
    if size > LARGE and size > MOST_EXPANSION * path.stat().st_size:
        raise ValueError(f"{path.name} says that it has {file.metadata.num_rows:,} rows, more than fit in it")


def _bytes_of(type_: pa.DataType) -> int:
    """The bytes of a value, at least."""
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size) * _bytes_of(type_.value_type)
    return 4 if pa.types.is_string(type_) else int(type_.bit_width) // 8


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table, its folder included."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
