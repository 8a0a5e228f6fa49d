"""Keys that are written batch by batch are mapped from files that have no name any more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.encode.mapped_keys import MappedKeysWriter
from tests.encode.tables import files_below

BATCHES: dict[str, list[list[str]]] = {
    "several": [["b", "", "Łódź"], ["a", "ccc"]],
    "an empty one": [["b"], [], ["a"]],
    "no text": [["", ""]],
    "no keys": [],
}


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES)
def test_keys_are_those_of_the_batches(batches: list[list[str]], tmp_path: Path) -> None:
    counts = [np.arange(len(batch)) + 10 * i for i, batch in enumerate(batches)]
    with MappedKeysWriter(tmp_path, "g0") as writer:
        for batch, of_batch in zip(batches, counts, strict=True):
            # of a longer array, as a slice has offsets that do not begin with 0
            longer = pa.array(["before", *batch, "after"], pa.string())
            writer.append(longer.slice(1, len(batch)), pa.array(np.append(of_batch, 99)).slice(0, len(batch)))
        table = writer.table()
    table.validate(full=True)
    assert table["key"].to_pylist() == [key for batch in batches for key in batch]
    assert table["n"].to_pylist() == [count for of_batch in counts for count in of_batch.tolist()]
    assert files_below(tmp_path) == set()


def test_keys_take_no_memory_of_arrow(tmp_path: Path) -> None:
    keys, counts = pa.array([f"key {i}" for i in range(10_000)]), pa.array(np.arange(10_000))
    before = pa.total_allocated_bytes()
    with MappedKeysWriter(tmp_path, "g0") as writer:
        writer.append(keys, counts)
        table = writer.table()
    assert pa.total_allocated_bytes() - before < 1_000
    assert table["key"].chunk(0).equals(keys)


def test_an_error_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(AttributeError), MappedKeysWriter(tmp_path, "g0") as writer:
        writer.append(pa.array(["a"]), None)
    assert files_below(tmp_path) == set()


def test_text_beyond_its_offsets_is_refused(tmp_path: Path) -> None:
    with MappedKeysWriter(tmp_path, "g0") as writer:
        writer.text_bytes = 2**31 - 2
        with pytest.raises(pa.ArrowCapacityError, match="2 GB"):
            writer.append(pa.array(["ab"]), pa.array([1]))
