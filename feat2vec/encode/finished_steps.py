"""The finished steps of a fit, in a folder that stays when the process is killed, so that the next one goes on.

A step is a stage of the table that is read, or a group that is fitted. What it has made is in files beside its record,
a small JSON file that is written last. Where a stage ends follows from the table alone, so that rows of finished stages
are not read again, and the result has the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from feat2vec.table.table import BEGINNING, RowPlace
from feat2vec.writing.encoding_folder import write_durably
from feat2vec.writing.files import JsonObject, read_json

ALL_READ = "stages.json"  # says that no stage follows


class StepRecord(NamedTuple):
    """What restores a part of a step.

    Args:
        facts: Its state, as JSON.
        files: The files that it was written to.

    """

    facts: JsonObject
    files: Sequence[Path]


class FinishedStage(NamedTuple):
    """A stage that was read.

    Args:
        rows: How many rows it has.
        end: Where it ends in the table.
        readers: The facts of each reader.

    """

    rows: int
    end: RowPlace
    readers: list[JsonObject]


class FinishedSteps:
    """Reads and writes the records of steps.

    Args:
        folder: The folder, which is made.

    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.stages = self._finished_stages()
        self._recorder = ThreadPoolExecutor(1)  # the disk takes a stage's files while the next one is read
        self._recorded: list[Future[None]] = []

    def _finished_stages(self) -> list[FinishedStage]:
        stages: list[FinishedStage] = []
        while (facts := self._facts(_stage_name(len(stages)))) is not None:
            stages.append(FinishedStage(facts["rows"], RowPlace(*facts["end"]), facts["readers"]))
        return stages

    @property
    def start(self) -> RowPlace:
        """Where the first stage begins that is not finished."""
        return self.stages[-1].end if self.stages else BEGINNING

    @property
    def are_all_read(self) -> bool:
        """Whether all stages of the table are finished."""
        return (self.folder / ALL_READ).exists()

    def note_all_read(self) -> None:
        """Record that all stages of the table are finished."""
        self._write(ALL_READ, {}, [])

    @property
    def rows(self) -> int:
        """How many rows the finished stages have."""
        return sum(stage.rows for stage in self.stages)

    def facts_of_reader(self, reader: int) -> list[JsonObject]:
        """The facts of a reader after each finished stage.

        Args:
            reader: Its place.

        """
        return [stage.readers[reader] for stage in self.stages]

    def record_stage(self, number: int, rows: int, end: RowPlace, readers: Sequence[StepRecord]) -> None:
        """Record a stage once the disk has its files, beside what goes on.

        Args:
            number: Its place among all stages.
            rows: How many rows it has.
            end: Where it ends in the table.
            readers: What restores each reader.

        """
        facts = {"rows": rows, "end": end, "readers": [record.facts for record in readers]}
        files = [file for record in readers for file in record.files]
        self._recorded.append(self._recorder.submit(self._write, _stage_name(number), facts, files))

    def fitted_group(self, owner: str) -> JsonObject | None:
        """The facts of the groups that share a codec, None if they are not fitted.

        Args:
            owner: The place of the group that owns it, as text.

        """
        return self._facts(_group_name(owner))

    def record_group(self, owner: str, record: StepRecord) -> None:
        """Record the groups that share a codec.

        Args:
            owner: The place of the group that owns it, as text.
            record: What restores them.

        """
        self._write(_group_name(owner), record.facts, record.files)

    def wait(self) -> None:
        """Wait until all stages are recorded; raise what went wrong."""
        for future in self._recorded:
            future.result()
        self._recorded = []

    def close(self) -> None:
        """Record no more."""
        self._recorder.shutdown()

    def _facts(self, name: str) -> JsonObject | None:
        path = self.folder / name
        return read_json(path) if path.exists() else None

    def _write(self, name: str, facts: JsonObject, files: Iterable[Path]) -> None:
        for file in files:
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        write_durably(self.folder / name, json.dumps(facts))


def _stage_name(number: int) -> str:
    return f"stage{number:06d}.json"


def _group_name(owner: str) -> str:
    return f"group{owner}.json"


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or make a copy where the file system has no links; nobody writes to either.

    Args:
        source: The file.
        target: The other name; its folder is made.

    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
