"""The registry of formats: every format passes these tests, and everything that lists formats lists them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import feat2vec
from feat2vec.export.format_base import ExportFormat, export_format
from feat2vec.export.formats import FORMATS, format_named
from feat2vec.export.formats.parquet import Parquet
from feat2vec.recipes.recipe import ExportSpec
from tests.commands import feat2vec as command


def test_formats_are_known_and_in_alphabetical_order() -> None:
    assert list(FORMATS) == ["faiss", "npz", "parquet", "projector", "saved_model", "sql", "word2vec"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_listed_everywhere(name: str) -> None:
    assert format_named(name).name == name
    assert ExportSpec.model_validate({"format": name}).format == name
    help_text = command("export", "--help").stdout
    assert f"  {name:11}  {FORMATS[name].summary}\n" in help_text


@pytest.mark.parametrize("name", FORMATS)
def test_the_manifest_says_what_the_files_are(run: feat2vec.Run, name: str, tmp_path: Path) -> None:
    facts = run.export(name, tmp_path / "out", ["who", "score"])
    assert json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")) == facts
    assert (facts["format"], facts["metric"], facts["dimension"], facts["level"]) == (name, "cosine", 6, 1)
    assert facts["normalised"] == FORMATS[name].always_unit_length
    assert list(facts["groups"]) == ["who", "score"]
    assert FORMATS[name].notes.items() <= facts.items()
    for group in facts["groups"].values():
        for file in group.get("files", ["saved_model.pb"]):
            assert (tmp_path / "out" / file).stat().st_size > 0


def test_the_list_of_formats_imports_nothing_heavy() -> None:
    code = "import sys, feat2vec.export.formats; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorflow", "keras", "numpy", "pyarrow", "duckdb", "faiss"} & set(done.stdout.split())


def test_a_format_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Notes(ExportFormat):
        name = "notes"
        summary = "for this test"

        def write(self, folder: Path, request: Any) -> dict[str, Any]:
            (folder / "notes.txt").write_text(", ".join(request.groups))
            return {name: {} for name in request.groups}

    monkeypatch.delitem(FORMATS, "notes", raising=False)
    export_format(Notes)
    assert format_named("notes").summary == "for this test"
    monkeypatch.delitem(FORMATS, "notes")
    with pytest.raises(ValueError, match="the export format 'parquet' is registered already"):
        export_format(Parquet)
