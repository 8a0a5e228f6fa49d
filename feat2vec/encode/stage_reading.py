"""Reading a table once: every stage goes to every reader, in threads; it is recorded where finished steps are kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from feat2vec.encode.finished_steps import FinishedSteps, StepRecord
from feat2vec.errors import UserError
from feat2vec.table.table import RowPlace, Stage


class StageReader(Protocol):
    """Keeps what it needs of a table that is read once."""

    def stage(self, stage: Stage) -> None:
        """Keep what is needed of a stage's rows."""


class RecordedReader(StageReader, Protocol):
    """A reader that a process can go on with."""

    def record(self) -> StepRecord:
        """What restores the last stage."""


class StageRecorder:
    """Records each stage once every reader has read it.

    Args:
        steps: Where they are recorded.
        readers: The readers.

    """

    def __init__(self, steps: FinishedSteps, readers: Sequence[RecordedReader]) -> None:
        self.steps, self.readers = steps, readers
        self.first = self.number = len(steps.stages)  # of the stages that are read now, and of the next to be recorded
        self.records: dict[tuple[int, int], StepRecord] = {}  # by stage and reader
        self.stages: dict[int, tuple[int, RowPlace]] = {}  # rows and end

    def note(self, place: int, reader: int) -> None:
        """Have what restores a reader's last stage, the one at this place among those that are read now."""
        self.records[self.first + place, reader] = self.readers[reader].record()

    @property
    def can_record(self) -> bool:
        """Whether every reader has read the next stage, without a problem."""
        return all((self.number, reader) in self.records for reader in range(len(self.readers)))

    def record(self, rows: int, end: RowPlace) -> None:
        """Record the next stage, which every reader has read."""
        records = [self.records.pop((self.number, reader)) for reader in range(len(self.readers))]
        self.steps.record_stage(self.number, rows, end, records)
        self.number += 1


def read_stages(
    table_stages: Iterable[Stage], readers: Sequence[StageReader], recorder: StageRecorder | None = None
) -> int:
    """Give every stage to every reader, in threads; return the number of rows, with those of stages before.

    Raises:
        UserError: With the first problem of each reader, all of them together.

    """
    problems: dict[int, UserError] = {}  # by reader; after its first problem a reader gets no more stages
    rows = 0 if recorder is None else recorder.steps.rows
    unrecorded: list[tuple[int, RowPlace]] = []  # rows and ends of the stages that are worked on

    def read(i: int, place: int, stage: Stage, last_read: Future[None] | None) -> None:
        if last_read is not None:
            last_read.result()  # it was submitted earlier, so it is running or done
        try:
            if i not in problems:
                readers[i].stage(stage)
                if recorder is not None:
                    recorder.note(place, i)
        except UserError as error:
            problems[i] = error

    def record_first() -> None:
        if recorder is not None and unrecorded and recorder.can_record:
            recorder.record(*unrecorded.pop(0))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reads: list[Future[None] | None] = [None] * len(readers)  # of the last stage
        for place, stage in enumerate(table_stages):  # two stages are worked on while the next one is read
            reads_before = reads
            reads = [pool.submit(read, i, place, stage, last_read) for i, last_read in enumerate(reads_before)]
            rows += stage.rows
            _wait_for(reads_before)
            record_first()
            unrecorded.append((stage.rows, stage.end))
        _wait_for(reads)
        record_first()
    if recorder is not None:
        recorder.steps.wait()
    if problems:
        in_order = [problem for i in sorted(problems) for problem in problems[i].problems]
        raise UserError(*dict.fromkeys(in_order))  # groups that read one column have the same problem
    return rows


def _wait_for(futures: Sequence[Future[None] | None]) -> None:
    for future in futures:
        if future is not None:
            future.result()
