"""Readers and streams of Arrow, which may be read once only."""

from __future__ import annotations

from feat2vec.table.table import open_table
from tests.table.tables import ARROW, ROWS, Stream, refuse, rows


def test_sources_that_can_be_read_once() -> None:
    reader = open_table(ARROW.to_reader())
    assert rows(reader) == ROWS
    refuse(reader, "the RecordBatchReader: can be read only once, and has been: pass a table")
    only = ARROW.to_reader()
    stream = open_table(Stream(lambda: only))
    assert rows(stream) == ROWS
    refuse(stream, "the Stream: can be read only once")
    again = open_table(Stream(ARROW.to_reader))
    assert rows(again) == rows(again) == ROWS
    drained = iter([ARROW.to_reader(), ARROW.slice(0, 0).to_reader()])
    ends = open_table(Stream(lambda: next(drained)))
    assert rows(ends) == ROWS
    refuse(ends, "the Stream: can be read only once")
