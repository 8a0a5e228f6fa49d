"""The data sets that come with the package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pyarrow as pa

from feat2vec.table.table import open_table
from tests.table.tables import S, rows

ROOT = Path(__file__).parents[3]


def test_bundled_artworks() -> None:
    table = open_table("dataset:artworks")
    assert table.typed
    assert table.columns == {"id": pa.int64(), "artist": S, "title": S, "medium": S, "year": pa.int64()}
    read = rows(table)
    assert len(read) == 4284
    assert read[1] == {
        **{"id": 20472, "artist": "Auerbach, Frank", "title": "Michael", "medium": "Etching on paper", "year": 1990}
    }


def test_bundled_topics_are_what_their_tool_makes(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_topics", ROOT / "tools" / "make_topics.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    tool.main(tmp_path)
    for name in ("topics", "topics_judged"):
        bundled = ROOT / "feat2vec" / "table" / "sources" / "datasets" / f"{name}.csv"
        assert (tmp_path / bundled.name).read_bytes() == bundled.read_bytes()
    assert open_table("dataset:topics").columns == {"text": S}
    assert open_table("dataset:topics_judged").columns == {"word": S, "other": S, "similarity": pa.float64()}
    known = {word for row in rows(open_table("dataset:topics")) for word in row["text"].split()}
    judged = rows(open_table("dataset:topics_judged"))
    assert {"king", "money"} <= known  # recipes ask what is similar to them
    assert {row[key] for row in judged for key in ("word", "other")} <= known
    assert {row["similarity"] for row in judged} >= {0.0, 10.0}
