"""The walk of ARCHITECTURE.md is the way that a row takes: its functions are called, in the order of its table."""

from __future__ import annotations

import re
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import feat2vec
from feat2vec.space.run_vectors import vectors_of_group

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "feat2vec"
MOST_CHANGES, MOST_FILES = 45, 25  # of files, on the way from a table to a checkpoint
SCHEMA = """
version: 1
groups:
  director: {column: director}
  cast: {column: cast, extractor: {type: lookup, split: "|"}}
  year: {column: year, extractor: numeric}
training: {epochs: 1, batch_size: 32}
"""


class Breakpoint(NamedTuple):
    """A function of the walk: its file, and its name there."""

    file: str
    function: str


NOT_SEEN = {  # the command line is not used here; TensorFlow runs blocks in a thread that Python cannot look into
    Breakpoint("cli/training.py", "train"),
    Breakpoint("sampling/batches.py", "shuffled_blocks"),
}


def breakpoints() -> list[Breakpoint]:
    """The functions of the walk, in its order."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = text.split("## The way of one row")[1].split("\n## ")[0]
    return [Breakpoint(*names) for names in re.findall(r"`([\w/]+\.py): ([\w.]+)`", walk)]


def first_calls(schema: Path, table: Path, run_folder: Path) -> dict[Breakpoint, int]:
    """The place in time of the first call of each function, while a run is trained and its vectors are opened."""
    calls: dict[CodeType, int] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.setdefault(frame.f_code, len(calls))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        run = feat2vec.train(schema, table, run_folder, quiet=True)
        vectors_of_group(run, "director")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    in_package = [code for code in calls if Path(code.co_filename).is_relative_to(PACKAGE)]
    return {
        Breakpoint(str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname): calls[code]
        for code in in_package
    }


def test_the_walk_is_the_way_of_a_row(tmp_path: Path) -> None:
    table, schema = tmp_path / "films.csv", tmp_path / "films.yaml"
    rows = [f"d{i % 5},a{i % 7}|a{i % 3},{1990 + i % 20}" for i in range(99)]
    table.write_text("\n".join(["director,cast,year", *rows]))
    schema.write_text(SCHEMA)
    calls = first_calls(schema, table, tmp_path / "run")
    walk = [point for point in breakpoints() if point not in NOT_SEEN]
    assert len(walk) > 20
    assert not [point for point in walk if point not in calls]
    assert walk == sorted(walk, key=calls.__getitem__)


def test_the_walk_is_short() -> None:
    files = [point.file for point in breakpoints()]
    to_checkpoint = files[: files.index("training/checkpoint_file.py") + 1]
    assert sum(first != second for first, second in pairwise(to_checkpoint)) <= MOST_CHANGES
    assert len(set(to_checkpoint)) <= MOST_FILES


def test_breakpoints_that_are_not_seen_are_there() -> None:
    for file, function in NOT_SEEN:
        assert re.search(rf"^def {function}\(", (PACKAGE / file).read_text(encoding="utf-8"), re.M)
