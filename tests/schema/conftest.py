"""Fixtures that the tests of this room share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from feat2vec.schema.extractor_options import EXTRACTORS
from feat2vec.schema.options import Group, Schema


@pytest.fixture
def clean_registry() -> Iterator[None]:
    """Forget the extractors and modules that a test registers and imports."""
    before, modules = dict(EXTRACTORS), set(sys.modules)
    yield
    EXTRACTORS.clear()
    EXTRACTORS.update(before)
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    for model in (Group, Schema):
        model.model_rebuild(force=True)
