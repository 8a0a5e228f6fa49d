"""Answers of an atlas, unpacked."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from feat2vec.pages.explore import Atlas


def unpacked(text: str, kind: str) -> Any:
    return np.frombuffer(base64.b64decode(text), kind)


def colour_answer(atlas: Atlas, name: str, column: str) -> dict[str, Any]:
    return atlas.answer(f"colour/{atlas.names.index(name)}/{atlas.columns.index(column)}")
