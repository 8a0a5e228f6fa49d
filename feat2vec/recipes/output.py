"""What the steps of a recipe return, and where they print their lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Results = dict[str, Any]  # as `--json` prints them
PrintLines = Callable[[str], None]  # called with one or more lines


def print_nothing(text: str) -> None:
    """Print nothing: for `quiet`."""
    del text
