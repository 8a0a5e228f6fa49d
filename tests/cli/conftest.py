"""A folder with a small table and its schema, and an interrupt that is heard."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.films import CSV, SCHEMA


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "films.yaml").write_text(SCHEMA)
    (tmp_path / "films.csv").write_text(CSV)
    return tmp_path


@pytest.fixture
def sigint_as_in_a_terminal() -> Iterator[None]:
    """SIGINT interrupts this process and its children, also if the tests were started in the background of a shell.

    There it is ignored, which children inherit.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
