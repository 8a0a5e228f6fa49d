"""`manifest.json`: what the files of an export are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from feat2vec.export.format_base import ExportFormat, GroupFacts

MANIFEST = "manifest.json"


def manifest_facts(
    export_format: ExportFormat, groups: Mapping[str, GroupFacts], *, level: int, dim: int, unit_length: bool
) -> dict[str, Any]:
    """What the manifest says: of all files, then of each group."""
    return {
        "format": export_format.name,
        "feat2vec": version("feat2vec"),
        "metric": "cosine",
        "normalised": unit_length,
        "dimension": dim,
        "level": level,
        **export_format.notes,
        "groups": dict(groups),
    }


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest into the folder of an export."""
    text = json.dumps(facts, indent=1, ensure_ascii=False)
    # names of files may hold bytes that are no UTF-8
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
