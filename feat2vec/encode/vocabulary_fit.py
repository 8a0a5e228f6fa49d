"""`VocabularyFit`: counts the keys of a group stage by stage, and gives them ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import duckdb
import numpy as np
import pyarrow as pa

from feat2vec.arrays import Int8s, Ints
from feat2vec.encode.counted_keys import KeyLimits, KeysInDatabase, KeysInMemory
from feat2vec.encode.vocabulary import FIRST, Counts, Vocabulary
from feat2vec.schema.levels import Levels
from feat2vec.table.types import Kind

HELD_KEY_BYTES = 64 << 20  # of distinct keys in memory; more are counted by DuckDB


class VocabularyFit:
    """Counts keys stage by stage, and gives the id of each key of a stage once it is finished.

    Groups that share a vocabulary add their stages to one fit, each in a thread of its own.

    Args:
        connection: DuckDB, which spills to disk what is larger than its memory.
        name: The name of the table of keys in DuckDB.
        folder: Where the keys that get an id are written, if DuckDB has counted them.
        held_bytes: How many bytes of distinct keys are held in memory before DuckDB takes them.

    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, name: str, folder: Path, held_bytes: int = HELD_KEY_BYTES
    ) -> None:
        self.connection, self.name, self.folder, self.held_bytes = connection, name, folder, held_bytes
        self.keys: KeysInMemory | KeysInDatabase = KeysInMemory(held_bytes)
        self.stages = 0  # added so far
        self.lock = Lock()
        self.limits = KeyLimits(1, None, None)  # those of `finish`

    def add(self, keys: pa.StringArray, counts: Counts) -> int:
        """Count the keys of a stage; their order is remembered for `ids`, which takes the number that is returned."""
        with self.lock:
            self.keys.add(keys, counts)
            if isinstance(self.keys, KeysInMemory) and self.keys.are_too_many:
                self.keys = self.keys.moved_to(self.connection, self.name, self.folder)
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
        chunks = selected.kept["key"].chunks
        # a single chunk may be mapped from a file: to combine it would copy it into memory
        keys = chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], pa.string()), *chunks])
        selected = selected._replace(kept=selected.kept.set_column(0, "key", keys))  # which are held once
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
