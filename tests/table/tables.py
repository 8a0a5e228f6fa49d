"""Rows that every source gives, and what tests of sources do with tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from feat2vec.errors import UserError
from feat2vec.table.table import open_table

ROWS: list[dict[str, Any]] = [
    {
        "title": None if i == 3 else f"Ève, «{i}» 東",
        "votes": None if i == 4 else i,
        "score": None if i == 5 else i / 4,
        "seen": None if i == 6 else i % 2 == 0,
        "day": None if i == 7 else date(2024, 2, 20 + i),
        "cast": None if i == 8 else ["Åsa", "Bo"][: i % 3],
    }
    for i in range(10)
]
SCHEMA = pa.schema(
    {
        "title": pa.string(),
        "votes": pa.int64(),
        "score": pa.float64(),
        "seen": pa.bool_(),
        "day": pa.date32(),
        "cast": pa.list_(pa.string()),
    }
)
ARROW = pa.Table.from_pylist(ROWS, SCHEMA)


def rows(source: object, columns: list[str] | None = None) -> list[dict[str, Any]]:
    return [row for batch in open_table(source).batches(columns) for row in batch.data.to_pylist()]


def column(source: object, name: str = "a") -> list[Any]:
    return [row[name] for row in rows(source, [name])]


def refuse(source: object, match: str, columns: list[str] | None = None) -> None:
    """The source is refused with one to three lines that match."""
    with pytest.raises(UserError, match=match) as caught:
        rows(source, columns)
    assert len(str(caught.value).splitlines()) <= 3


def write(path: Path, content: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


class Stream:
    """The Arrow interface and nothing else."""

    def __init__(self, make: Callable[[], pa.RecordBatchReader]) -> None:
        self.make = make

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.make().__arrow_c_stream__(requested_schema)


JSON_LINES = "".join(json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in ROWS).encode()
S = pa.string()
