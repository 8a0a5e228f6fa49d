"""What the workers of Spark do: read a file of the table, count its keys, encode its rows, and write pieces of ids.

A worker reads as DuckDB's engine does, by the same code, so that a key is spelled and a number read alike. What is
wrong in a file comes back as a row with the kind `PROBLEM`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Array, Ints
from feat2vec.encode.codecs import Codec, Entries, ItemsCodec, Tally, parse_items
from feat2vec.encode.columns import columns_of
from feat2vec.encode.left_out import LeftOut
from feat2vec.encode.number_keys import without_point
from feat2vec.encode.value_tables import MISSING, MOST_WORD_COLUMNS, Packing, Words, padded
from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.errors import UserError
from feat2vec.schema.options import Group
from feat2vec.table.spelling import respell
from feat2vec.table.table import Stage, Table, open_table, stages
from feat2vec.table.types import MISSING_NUMBERS
from feat2vec.writing.files import replace_durably

if TYPE_CHECKING:
    from pyspark import Broadcast

COUNTED = "kind string, place long, key string, n long"
COUNT, ROWS, MOST, PROBLEM = "count", "rows", "most", "problem"  # kinds of what `CountKeys` gives
ENTRIES = "row long, entry binary"
TALLY_ROW, PROBLEM_ROW = -1, -2  # numbers of rows of ENTRIES that are none
PIECE_ROWS = 1 << 20  # of a file of value ids
JOINT_ROWS = 1 << 22  # whose tuples are counted at once

Batches = Iterator[pa.RecordBatch]


def places_of(batches: Batches) -> Iterator[int]:
    """The numbers of the parts that a task works on."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def of_each_part(
    source: str,
    batches: Batches,
    read: Callable[[Table, int], Batches],
    tell: Callable[[int, Sequence[str]], pa.RecordBatch],
) -> Batches:
    """What a task makes of each of its parts of a table.

    Args:
        source: The table.
        batches: The numbers of the parts.
        read: Makes batches of a part.
        tell: Makes a batch of what is wrong with a part.

    """
    table = open_table(source)
    for place in places_of(batches):
        try:
            yield from read(table, place)
        except UserError as error:
            yield tell(place, error.problems)


@dataclass(frozen=True)
class CountKeys:
    """Counts the keys of groups in parts of a table.

    Args:
        source: The table.
        groups: The groups; none to count rows alone.
        columns: The columns that are read.

    """

    source: str
    groups: tuple[Group, ...]
    columns: tuple[str, ...]

    def __call__(self, batches: Batches) -> Batches:
        """For each part its counts, as COUNTED."""
        yield from of_each_part(self.source, batches, self._of_part, _counted_problems)

    def _of_part(self, table: Table, place: int) -> Batches:
        rows, most = 0, [1] * len(self.groups)
        for stage in part_stages(table, place, self.columns):
            rows += stage.rows
            for g, group in enumerate(self.groups):
                items = parse_items(stage, group)
                counts = np.bincount(items.codes, minlength=len(items.keys))
                most[g] = max(most[g], int(items.lengths.max(initial=0)))
                occurring = np.flatnonzero(counts)
                yield _counted(COUNT, g, items.keys.take(pa.array(occurring)), counts[occurring])
        yield _counted(ROWS, place, [""], [rows])
        for g, most_items in enumerate(most):
            yield _counted(MOST, g, [""], [most_items])


def part_stages(table: Table, place: int, columns: Sequence[str]) -> Iterator[Stage]:
    """The stages of a part of a table; a part without rows has none."""
    try:
        yield from stages(table.of_part(place), columns)
    except UserError as error:
        if "has no rows" not in str(error):
            raise


def _counted(kind: str, place: int, keys: Sequence[str] | pa.StringArray, counts: Sequence[int] | Array) -> object:
    size = len(counts)
    arrays = [
        pa.array([kind] * size, pa.string()),
        pa.array(np.full(size, place)),
        pa.array(keys, pa.string()),
        pa.array(counts, pa.int64()),
    ]
    return pa.record_batch(arrays, ["kind", "place", "key", "n"])


def _counted_problems(place: int, problems: Sequence[str]) -> object:
    """What is wrong with a part, as COUNTED."""
    return _counted(PROBLEM, place, list(problems), [0] * len(problems))


def _entries_of_problems(place: int, problems: Sequence[str]) -> object:
    """What is wrong with a part, as ENTRIES."""
    del place
    texts = [problem.encode() for problem in problems]
    return _entries(np.full(len(texts), PROBLEM_ROW), pa.array(texts, pa.binary()))


@dataclass(frozen=True)
class EncodeGroup:
    """Encodes the rows of a group, as entries of bytes that sort as DuckDB's engine sorts entries.

    Args:
        source: The table.
        name: The group.
        group: Its columns and extractor.
        codec: Its codec, which each worker gets once.
        is_spelled: Whether the codec's keys were spelled after they were counted.
        first_id: Of a group whose entries are ids: the id of its first value. The entries are then value ids.
        first_rows: The number of the first row of each part.

    """

    source: str
    group: Group
    codec: Broadcast[Codec]
    is_spelled: bool
    first_id: int | None
    first_rows: tuple[int, ...]

    def __call__(self, batches: Batches) -> Batches:
        """The entries of each part, as ENTRIES."""
        yield from of_each_part(self.source, batches, self._of_part, _entries_of_problems)

    def _of_part(self, table: Table, place: int) -> Batches:
        first_row, codec, tally = self.first_rows[place], self.codec.value, Tally()
        for stage in part_stages(table, place, columns_of([self.group])):
            entries = training_entries(codec, stage, self.group, is_spelled=self.is_spelled)
            rows = np.flatnonzero(entries.present) + first_row
            tally.add(entries.tally)
            first_row += stage.rows
            if self.first_id is not None:
                value_ids = (entries.rows[:, :1] - np.int32(self.first_id)).astype("<i4")
                yield _entries(rows, _binary(np.ascontiguousarray(value_ids).view(np.uint8)))
                continue
            packing = Packing(codec.dtype, codec.training_width, codec.bits)
            yield _entries(rows, _binary(sortable(packing.pack(padded(entries.rows, codec.training_width)))))
        yield _entries(np.array([TALLY_ROW]), pa.array([json.dumps(asdict(tally)).encode()], pa.binary()))


def training_entries(codec: Codec, stage: Stage, group: Group, *, is_spelled: bool) -> Entries:
    """The entries of training rows, whose keys are looked up as they were counted and not in other spellings."""
    if not isinstance(codec, ItemsCodec):
        return codec.encode(stage, group)
    items, vocabulary = parse_items(stage, group, codec.edges, codec.kind), codec.vocabulary
    keys = items.keys
    if is_spelled and vocabulary.kind != "text":
        keys = pc.if_else(pc.is_in(keys, pa.array(MISSING_NUMBERS)), pa.scalar(None, pa.string()), keys)
        if vocabulary.kind == "boolean":
            keys = respell(keys, "boolean")
        elif vocabulary.kind == "number":
            keys = without_point(keys)
    as_spelled = Vocabulary(vocabulary.keys, vocabulary.counts, too_frequent=vocabulary.too_frequent)
    return codec.pack(items, as_spelled.ids(keys), group)


def sortable(words: Words) -> Array:
    """Packed entries [words, rows] as bytes [rows, 8 words], in the order of which DuckDB's engine numbers them."""
    byte_order = ">u8" if len(words) <= MOST_WORD_COLUMNS else "<u8"
    return np.ascontiguousarray(words.T.astype(byte_order)).view(np.uint8)


def words_of_bytes(entries: Array, words: int) -> Words:
    """What `sortable` made bytes of: [rows, 8 words] to [words, rows]."""
    byte_order = ">u8" if words <= MOST_WORD_COLUMNS else "<u8"
    unsigned: Words = np.ascontiguousarray(entries.view(byte_order).T.astype(np.uint64))
    return unsigned


def bytes_of(entries: pa.ChunkedArray | pa.Array, width: int) -> Array:
    """Binary values of one length as an array of bytes, [rows, width]."""
    chunks = entries.chunks if isinstance(entries, pa.ChunkedArray) else [entries]
    parts = [np.zeros((0, width), np.uint8)]
    for chunk in chunks:
        buffer = pa.concat_arrays([chunk]).cast(pa.binary(width)).buffers()[1]
        flat = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
        parts.append(flat[: len(chunk) * width].reshape(-1, width))
    return np.concatenate(parts)


def _binary(rows: Array) -> pa.Array:
    width = rows.shape[1]
    buffers = [None, pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), buffers).cast(pa.binary())


def _entries(rows: Array, entries: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([pa.array(rows, pa.int64()), entries], ["row", "entry"])


@dataclass(frozen=True)
class WritePiece:
    """Writes a piece of a group's value ids as a file.

    Args:
        folder: The folder of the pieces, which all workers and the driver see.
        rows: The number of all rows.

    """

    folder: str
    rows: int

    def __call__(self, table: pa.Table) -> pa.Table:
        """Write the rows of one piece; the table has the columns `row` and `id`."""
        rows, ids = table["row"].to_numpy(), table["id"]
        if not pa.types.is_integer(ids.type):  # of a group without sorting: the four bytes of each
            ids = bytes_of(ids, 4).view("<i4")[:, 0]
        piece = int(rows[0]) // PIECE_ROWS
        first = piece * PIECE_ROWS
        ids_of_rows: Ints = np.full(min(PIECE_ROWS, self.rows - first), MISSING, np.int32)
        ids_of_rows[rows - first] = ids
        path = Path(self.folder, f"{piece:06d}.npy")
        unfinished = path.with_name(f".{path.name}-{os.getpid()}")
        with unfinished.open("wb") as file:
            np.save(file, ids_of_rows)
        replace_durably(unfinished, path)
        return pa.table({"piece": pa.array([piece], pa.int64())})


@dataclass(frozen=True)
class CountTuples:
    """Counts the tuples of value ids of a joint set of groups in pieces of rows.npy.

    Args:
        path: The file.
        groups: The places of the groups.
        left_out: Rows that are not counted.

    """

    path: str
    groups: tuple[int, ...]
    left_out: LeftOut

    def __call__(self, batches: Batches) -> Batches:
        """The tuples of each piece, and how often each occurs."""
        rows = np.load(self.path, mmap_mode="r")
        kept = len(rows) - len(self.left_out)
        for piece in places_of(batches):
            start = piece * JOINT_ROWS
            value_ids = self.left_out.take(rows, start, min(start + JOINT_ROWS, kept))[:, list(self.groups)]
            complete = np.asarray(value_ids)[(value_ids >= 0).all(axis=1)]
            tuples, counts = np.unique(complete, axis=0, return_counts=True)
            names = [*(f"m{member}" for member in range(len(self.groups))), "n"]
            yield pa.record_batch([*(pa.array(column) for column in tuples.T), pa.array(counts)], names)
