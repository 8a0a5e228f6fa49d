"""A full disk: every file that a command writes is there when it is whole, and the message names its place."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from feat2vec.cli.process import exit_code
from feat2vec.export.formats import FORMATS
from feat2vec.pages.report import report
from feat2vec.run import Run
from feat2vec.training import train as training
from feat2vec.writing import write_text
from tests.short_trainings import train

ROWS = pa.table({"director": [f"name {i % 300}" for i in range(600)], "cast": [f"c{i % 9}" for i in range(600)]})
SCHEMA: dict[str, Any] = {
    "version": 1, "groups": {"director": {"column": "director"}, "cast": {"column": "cast"}},
    "model": {"dim": 16}, "training": {"validation": 0, "epochs": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with its model read."""
    run = train(SCHEMA, ROWS, tmp_path_factory.mktemp("runs") / "run", quiet=True)
    assert run.model
    return run


@contextmanager
def no_room(size: int) -> Iterator[None]:
    """No file may become larger: to a program, a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_explanation(run: Run, out: Path) -> None:
    write_text(out, run.explain(ROWS).page())


WRITERS: dict[str, Callable[[Run, Path], object]] = {
    "embed": lambda run, out: run.embedder().write(ROWS, out),
    "predict": lambda run, out: run.predictor().write(ROWS, out),
    "report": lambda run, out: report(run, out),
    "explain": write_explanation,
}


@pytest.mark.parametrize("name", [*FORMATS, *WRITERS])
def test_a_full_disk_is_told_with_the_place_and_leaves_nothing(
    run: Run, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    with no_room(256), pytest.raises(OSError) as raised:  # noqa: PT011
        run.export(name, out) if name in FORMATS else WRITERS[name](run, out)
    assert exit_code(raised.value) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{out}: ")
    assert line.endswith("; make room, or choose another folder")
    assert not list(tmp_path.iterdir())


def test_a_run_that_cannot_be_written_keeps_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "write_run", full)
    with pytest.raises(OSError, match=r"No space left on device; make room and add --resume.*run\.partial"):
        train(SCHEMA, ROWS, tmp_path / "run", quiet=True)
    assert (tmp_path / "run.partial" / "checkpoint.npz").exists()
    monkeypatch.undo()
    assert train(SCHEMA, ROWS, tmp_path / "run", quiet=True, resume=True).metrics["rows"] == len(ROWS)


def test_text_without_an_encoding_is_escaped(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "é\udc80")
    assert (tmp_path / "a").read_bytes() == "é\\udc80".encode()
