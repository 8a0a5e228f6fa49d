"""JSON objects from files that may have been changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: The file is not JSON, or holds another value than an object.
        OSError: The file cannot be read.

    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deep") from None
    if not isinstance(facts, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return facts
