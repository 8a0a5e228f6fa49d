"""Arrays and facts in one file that is replaced whole: after a kill it holds the state before or after, never half."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from feat2vec.errors import UserError
from feat2vec.values import Array

FACTS = "facts"


def write_checkpoint(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a checkpoint; until it is whole, the one before stays."""
    partial = path.with_name(f"{path.name}.new")
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    try:
        with partial.open("wb") as file:
            np.savez(file, **{FACTS: text}, **{f"array {name}": array for name, array in arrays.items()})  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        remedy = "; the checkpoint before is intact: make room and add --resume" if path.exists() else ""
        raise OSError(error.errno, f"{error.strerror or error}{remedy}", str(path)) from error


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read a checkpoint; nothing in it is executed."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            facts: dict[str, Any] = json.loads(file[FACTS].tobytes())
            return facts, {name.removeprefix("array "): file[name] for name in file.files if name != FACTS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: is no checkpoint that can be read ({type(error).__name__}: {error})") from None
