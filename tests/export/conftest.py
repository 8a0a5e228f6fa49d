"""Runs that several files export."""

from __future__ import annotations

import pytest

import feat2vec
from tests.export.tables import trained


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return trained("fm", tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session", params=["rafm", pytest.param("truncate", marks=pytest.mark.slow)])
def ranked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return trained(request.param, tmp_path_factory.mktemp("runs") / "run")
