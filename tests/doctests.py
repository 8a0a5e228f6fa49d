"""What the examples in docstrings begin with: `feat2vec`, `keras` and `np`; `films` and its `schema`; `run`, trained.

A plugin of pytest (`-p tests.doctests`), so that it reaches the docstrings of the package wherever tests are run from.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

SCHEMA = {
    "version": 1,
    "name": "films",
    "model": {"dim": 4},
    "groups": {
        "director": {"column": "director"},
        "genre": {"column": "genre"},
        "year": {"column": "year", "extractor": "numeric"},
    },
    "training": {"epochs": 1},
}


@pytest.fixture(scope="session")
def example_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="session")
def example(example_folder: Path) -> dict[str, Any]:
    """The names that examples use."""
    import keras
    import numpy as np
    import pandas as pd

    import feat2vec

    films = pd.DataFrame(
        {
            "director": [("Varda", "Ozu", "Tati")[i % 3] for i in range(60)],
            "genre": [("drama", "comedy")[i % 3 == 2] for i in range(60)],
            "year": [1950 + i % 30 for i in range(60)],
            "hit": [int(i % 3 == 1) for i in range(60)],
        }
    )
    from tests.short_trainings import train

    run = train(SCHEMA, films, example_folder / "runs" / "films", quiet=True)
    return {"feat2vec": feat2vec, "keras": keras, "np": np, "films": films, "schema": SCHEMA, "run": run}


@pytest.fixture(autouse=True)
def _examples(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Give an example its names, if it asks for them, and leave no extractor of its own behind."""
    doctest = getattr(request.node, "dtest", None)
    if doctest is None or not any(
        name in line.source for line in doctest.examples for name in ("feat2vec.", "run.", "films")
    ):
        yield
        return
    monkeypatch.chdir(request.getfixturevalue("example_folder"))
    doctest_namespace.update(request.getfixturevalue("example"))
    from feat2vec.model.extractors import LAYERS
    from feat2vec.schema.extractor_options import EXTRACTORS, HOLDERS
    from tests.short_trainings import without_graphs

    with mock.patch.dict(EXTRACTORS), mock.patch.dict(LAYERS), without_graphs():
        yield
    for holder in HOLDERS:
        holder.model_rebuild(force=True)
