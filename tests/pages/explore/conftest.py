"""One run, its rows and a page of it, for all modules of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.pages.explore import Atlas, Server, write_page
from tests.pages.explore.requests import serving
from tests.pages.explore.tables import SCHEMA, table
from tests.short_trainings import train


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its rows, and a page of it."""
    folder = tmp_path_factory.mktemp("explore")
    run = train(SCHEMA, table(), folder / "run", quiet=True)
    pq.write_table(table(), folder / "rows.parquet")
    write_page(Atlas(run, data=str(folder / "rows.parquet")), folder / "page.html")
    return folder


@pytest.fixture(scope="package")
def atlas(folder: Path) -> Atlas:
    return Atlas(feat2vec.load(folder / "run"), data=str(folder / "rows.parquet"))


@pytest.fixture(scope="package")
def server(atlas: Atlas) -> Iterator[Server]:
    with serving(atlas) as server:
        yield server
