"""Fixtures that the tests of encoding share."""

from __future__ import annotations

import pytest

from feat2vec.encode.encoder import Encoded, fit
from tests.encode.tables import SAME, SAME_SCHEMA


@pytest.fixture(scope="session")
def same() -> Encoded:
    return fit(SAME_SCHEMA, SAME)
