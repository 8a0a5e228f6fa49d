"""A folder with a small table and its schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.films import CSV, SCHEMA


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "films.yaml").write_text(SCHEMA)
    (tmp_path / "films.csv").write_text(CSV)
    return tmp_path
