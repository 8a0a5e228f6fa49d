"""Keys and their ids: 0 is padding or missing, 1 is unseen, the rest by descending count, then key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import get_args

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.columns import MISSING_NUMBERS, Ints, Kind
from feat2vec.keys import respell

PADDING, UNSEEN, FIRST = 0, 1, 2
Counts = npt.NDArray[np.int64]


class Vocabulary:
    """The keys of a group or of its tokens.

    `unseen` counts the training occurrences of keys that are too rare; `kind` says how text is spelled as a key.
    `too_frequent` are keys that count as none.
    """

    def __init__(
        self, keys: pa.StringArray, counts: Counts, unseen: int = 0, kind: Kind = "text",
        too_frequent: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.keys = keys
        self.counts = counts
        self.unseen = unseen
        self.kind: Kind = kind
        self.too_frequent = list(too_frequent)

    def __len__(self) -> int:
        """One more than the largest id."""
        return len(self.keys) + FIRST

    @cached_property
    def key_to_id(self) -> dict[str, int]:
        return {key: i for i, key in enumerate(self.keys.to_pylist(), start=FIRST)}

    def ids(self, keys: pa.StringArray) -> Ints:
        """The ids of keys: 1 for a key that is not here, 0 for null, NA among numbers and what is too frequent."""
        keys = respell(keys, self.kind)
        if self.kind == "number":
            keys = pc.if_else(pc.is_in(keys, pa.array(MISSING_NUMBERS)), pa.scalar(None, pa.string()), keys)
        if self.too_frequent:
            none = pc.is_in(keys, pa.array(self.too_frequent, pa.string()))
            keys = pc.if_else(none, pa.scalar(None, pa.string()), keys)
        if len(keys) * 16 < len(self.keys):  # hashing the whole vocabulary for a few keys would take longer
            known, words = self.key_to_id, keys.to_pylist()
            return np.array([PADDING if word is None else known.get(word, UNSEEN) for word in words], np.int32)
        found = pc.fill_null(pc.add(pc.index_in(keys, self.keys, skip_nulls=True), FIRST), UNSEEN)
        ids: Ints = pc.if_else(pc.is_null(keys), PADDING, found).to_numpy(zero_copy_only=False).astype(np.int32)
        return ids

    def key(self, id_: int) -> str | None:
        """The key of an id; None for padding and unseen."""
        return None if id_ < FIRST else str(self.keys[id_ - FIRST].as_py())

    def table(self, ranks: Sequence[int]) -> pa.Table:
        """Key, id, count and level, in the order of the ids."""
        ids = np.arange(FIRST, len(self), dtype=np.int32)
        columns = {"key": self.keys, "id": ids, "count": self.counts, "level": levels(self.counts, ranks)}
        return pa.table(columns)

    @classmethod
    def from_table(cls, table: pa.Table, unseen: int, kind: Kind, too_frequent: Sequence[str] = ()) -> Vocabulary:
        if kind not in get_args(Kind):
            raise ValueError(f"no kind of keys: {kind!r}")
        keys = table["key"].combine_chunks().cast(pa.string())
        return cls(keys, table["count"].to_numpy(), int(unseen), kind, too_frequent)


def levels(counts: Counts, ranks: Sequence[int]) -> npt.NDArray[np.int8]:
    """k_v = argmin_k |log n_v - log D_k|, from 1; the lower level where two are as near.

    >>> levels(np.array([1000, 100, 23, 22, 1]), [8, 64]).tolist()
    [2, 2, 2, 1, 1]
    """
    middles = [math.isqrt(low * high) for low, high in pairwise(ranks)]  # n is nearer to `high` if n^2 > low * high
    return (np.searchsorted(np.array(middles, np.int64), counts) + 1).astype(np.int8)


class VocabularyFit:
    """Counts keys stage by stage in DuckDB, which spills to disk."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self.connection = connection.cursor()
        self.name = name
        self.sizes: list[int] = []
        self.connection.execute(f"create table {name} (stage int, code int, key varchar, n bigint)")

    def add(self, keys: pa.StringArray, counts: npt.NDArray[np.intp]) -> None:
        """The distinct keys of a stage and how often each occurs; their order is remembered for `ids`."""
        stage = len(self.sizes)
        self.sizes.append(len(keys))
        some = np.flatnonzero(counts)
        piece = pa.table({"code": some.astype(np.int32), "key": keys.take(pa.array(some)), "n": counts[some]})
        self.connection.register("piece", piece)
        self.connection.execute(f"insert into {self.name} select {stage}, code, key, n from piece")
        self.connection.unregister("piece")

    def spell(self) -> Kind:
        """What kind of keys a table of text holds: all booleans, all numbers, or text; numbers are spelled anew."""
        facts = self.connection.sql(
            f"select bool_and(lower(key) in ('true', 'false')),"
            r" bool_and(regexp_full_match(key, '-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?')),"
            rf" bool_or(contains(key, '.') or contains(lower(key), 'e')) from {self.name}"
            f" where key not in {MISSING_NUMBERS}"
        ).fetchall()
        boolean, number, decimal = facts[0]
        kind: Kind = "boolean" if boolean else "number" if number else "text"
        if kind == "number":  # among numbers, NA is a missing one
            self.connection.execute(f"delete from {self.name} where key in {MISSING_NUMBERS}")
        if boolean or (number and decimal):
            respelled = self.connection.sql(f"select distinct key from {self.name}").to_arrow_table()["key"]
            pairs = pa.table({"old": respelled, "new": respell(respelled.combine_chunks(), kind)})
            self.connection.register("pairs", pairs)
            self.connection.execute(f"update {self.name} set key = new from pairs where key = old")
            self.connection.unregister("pairs")
        return kind

    def finish(self, min_count: int, max_size: int | None, kind: Kind, max_count: int = 2**62) -> Vocabulary:
        limit = "" if max_size is None else f"limit {max_size}"
        self.connection.execute(
            f"create table {self.name}_frequent as select key from {self.name} group by key having sum(n) > {max_count}"
        )
        self.connection.execute(
            f"create table {self.name}_kept as select key, sum(n)::bigint n from {self.name} group by key"
            f" having sum(n) between {min_count} and {max_count} order by n desc, key {limit}"
        )
        kept = self.connection.sql(f"select key, n from {self.name}_kept order by rowid").to_arrow_table()
        [(total,)] = self.connection.sql(
            f"select coalesce(sum(n), 0)::bigint from {self.name} anti join {self.name}_frequent using (key)"
        ).fetchall()
        too_frequent = self.connection.sql(f"select key from {self.name}_frequent order by key").fetchall()
        counts = kept["n"].to_numpy()
        unseen = total - int(counts.sum())
        keys = kept["key"].combine_chunks().cast(pa.string())
        return Vocabulary(keys, counts, unseen, kind, [key for (key,) in too_frequent])

    def ids(self, stage: int) -> Ints:
        """The id of each key of a stage, in the order in which `add` had them."""
        found = self.connection.sql(
            f"select code, coalesce(kept.rowid + {FIRST}, {UNSEEN})::int id from {self.name} piece"
            f" left join {self.name}_kept kept using (key) anti join {self.name}_frequent using (key)"
            f" where stage = {stage}"
        ).to_arrow_table()
        ids = np.full(self.sizes[stage], PADDING, np.int32)
        ids[found["code"].to_numpy()] = found["id"].to_numpy()
        return ids


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table, its folder included."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
