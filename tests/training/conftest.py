"""Fixtures that the tests of training share."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.training.tables import SCHEMA, table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `rows.parquet`, `held.parquet` (validation rows) and `people.yaml`."""
    pq.write_table(table(4000), tmp_path / "rows.parquet")
    pq.write_table(table(300, 1), tmp_path / "held.parquet")
    (tmp_path / "people.yaml").write_text(json.dumps(SCHEMA))
    return tmp_path
