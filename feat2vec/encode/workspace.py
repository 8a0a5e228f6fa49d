"""Where a table is encoded: a new folder, a DuckDB of bounded memory that spills into it, and the sizes of pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from feat2vec.arrays import Array
from feat2vec.encode.arrays_on_disk import ROWS_PER_BLOCK, ROWS_PER_PIECE, SpilledArray
from feat2vec.encode.finished_steps import FinishedSteps
from feat2vec.encode.process_memory import process_memory, release_memory
from feat2vec.encode.vocabulary_fit import HELD_KEY_BYTES
from feat2vec.errors import UserError
from feat2vec.table.database import connect
from feat2vec.table.table import STAGE_BYTES, Stage
from feat2vec.writing import folder_place, new_folder, scratch_folder

MEMORY = "1GB"
MEMORY_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) *([KMGT]i?B|B|bytes?)", re.IGNORECASE | re.ASCII)
DATABASE_SHARE = 0.5  # of the memory for encoding that DuckDB has
STAGE_SHARE = 1 / 16  # of what DuckDB has, for a stage of the table: three are in memory, with what is made of them
HELD_KEYS_SHARE = 1 / 4  # as much as that of what DuckDB has, for the keys of all groups that it does not count
FULL_SHARE = 1.5  # times what DuckDB has: once a process holds more, what is free is returned to the system
LEAST_GROUPS = 8  # that share this: to find equal keys of a group takes many times as much memory as they do
STAGING = ".staging"  # the folder of temporary files, below the one that is written


@dataclass(frozen=True)
class PieceSizes:
    """How much of a table is in memory at once. Encoded rows do not depend on it."""

    stage_bytes: int = STAGE_BYTES  # of the table
    rows_per_piece: int = ROWS_PER_PIECE  # of arrays on disk
    rows_per_block: int = ROWS_PER_BLOCK  # of ids that are put side by side
    held_key_bytes: int = HELD_KEY_BYTES  # of a group's distinct keys

    def within(self, database_bytes: int, groups: int) -> PieceSizes:
        """These sizes, or smaller ones that follow from the memory.

        Args:
            database_bytes: What DuckDB may hold.
            groups: How many groups of keys there may be.

        Example:
            >>> PieceSizes().within(500_000_000, groups=8)
            PieceSizes(stage_bytes=31250000, rows_per_piece=1048576, rows_per_block=131072, held_key_bytes=15625000)

        """
        held_key_bytes = int(HELD_KEYS_SHARE * database_bytes / max(groups, LEAST_GROUPS))
        return replace(
            self,
            stage_bytes=min(self.stage_bytes, max(int(STAGE_SHARE * database_bytes), 1)),
            held_key_bytes=min(self.held_key_bytes, held_key_bytes),
        )


DEFAULT_SIZES = PieceSizes()


@dataclass(frozen=True)
class Workspace:
    """What encoding works with."""

    folder: Path  # of the encoded rows
    connection: duckdb.DuckDBPyConnection
    sizes: PieceSizes
    steps: FinishedSteps | None = None  # None if a process that is killed leaves nothing to go on with
    database_bytes: int = 0  # that DuckDB may hold; 0 is what it takes by itself

    @property
    def staging(self) -> Path:
        """The folder of temporary files, or of those that are kept for a process that goes on."""
        return self.folder / STAGING if self.steps is None else self.steps.folder

    @contextmanager
    def less_in_database(self) -> Iterator[None]:
        """Within it DuckDB may hold half of its bytes: stages, or what all keys of a group have, are held beside."""
        if not self.database_bytes:
            yield
            return
        with suppress(duckdb.OutOfMemoryException):  # what is in use cannot be written to disk at once
            self.connection.execute(f"set memory_limit = '{self.database_bytes // 2}B'")
        try:
            yield
        finally:
            self.connection.execute(f"set memory_limit = '{self.database_bytes}B'")

    def return_free_memory(self) -> None:
        """Return memory that is free to the system, if the process holds most of what encoding may hold.

        The C library and Arrow keep it for the next arrays, which is faster, but is not what DuckDB can use.
        """
        if self.database_bytes and process_memory("RssAnon") > FULL_SHARE * self.database_bytes:
            release_memory()

    def bounded(self, table_stages: Iterable[Stage]) -> Iterator[Stage]:
        """The stages of a table; before each, free memory is returned if need be.

        Args:
            table_stages: The stages.

        """
        for stage in table_stages:
            self.return_free_memory()
            yield stage

    def spill(self, array: Array, name: str) -> SpilledArray:
        """Write an array into the folder of temporary files.

        Args:
            array: The array.
            name: The name of its file.

        """
        return SpilledArray(array, self.staging / name, stays=self.steps is not None)


@contextmanager
def new_workspace(
    out: str | Path | None, memory: str, sizes: PieceSizes, steps: Path | None = None, groups: int = 1
) -> Iterator[Workspace]:
    """Make a folder (a temporary one if `out` is None) and a DuckDB; the folder gets its name when all went well.

    Args:
        out: The folder.
        memory: What the whole work may hold, about.
        sizes: How much of the table is in memory at once.
        steps: The folder in which finished steps are kept, if they are.
        groups: How many groups of keys are fitted.

    Yields:
        What encoding works with.

    Raises:
        UserError: If `memory` is not a size, or too little for the table.

    """
    check_memory(memory)
    with (
        new_folder(None if out is None else folder_place(out, None)) as folder,
        scratch_folder(folder, STAGING) as staging,
    ):
        try:
            database_bytes = memory_of_database(memory)
            sizes = sizes.within(database_bytes, groups)
            database = connect(staging / "spill", memory=f"{database_bytes}B")
        except duckdb.Error:
            raise UserError(f"memory must be a size such as 1GB; received {memory!r}") from None
        with database as connection:
            finished_steps = None if steps is None else FinishedSteps(steps)
            try:
                yield Workspace(folder, connection, sizes, finished_steps, database_bytes)
            except duckdb.OutOfMemoryException as error:
                raise UserError(f"{memory} of memory is too little to encode this table; raise it") from error
            finally:
                if finished_steps is not None:
                    finished_steps.close()


def memory_of_database(memory: str) -> int:
    """The bytes that DuckDB may hold of the memory for encoding: the rest of the work needs some, too.

    >>> memory_of_database("2GB"), memory_of_database("1 KiB")
    (1000000000, 512)
    """
    size = MEMORY_SIZE.fullmatch(memory.strip())
    assert size is not None, "`check_memory` was called"
    unit = size[2].lower()
    base = 1024 if "i" in unit else 1000
    power = "bkmgt".index(unit[0])
    return max(int(float(size[1]) * base**power * DATABASE_SHARE), 1)  # 0 would be no bound


def check_memory(memory: object) -> None:
    """Raise a UserError unless `memory` is a size above 0. DuckDB itself takes `-1GB` and `0` for no bound at all."""
    size = MEMORY_SIZE.fullmatch(memory.strip()) if isinstance(memory, str) else None
    if size is None or float(size[1]) <= 0:
        received = repr(memory) if len(repr(memory)) <= 60 else f"{repr(memory)[:57]}..."
        raise UserError(f"memory must be a size such as 1GB; received {received}")
