"""What this process holds, as Linux says, and what is returned of it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np

from feat2vec.encode.process_memory import LEAST_COLLECTED, free_cycles, process_memory, release_memory


def test_arrays_are_of_the_process_and_mapped_files_are_not(tmp_path: Path) -> None:
    np.save(tmp_path / "ones.npy", np.ones(8 << 20))
    before = process_memory("RssAnon")
    mapped = np.load(tmp_path / "ones.npy", mmap_mode="r")
    assert mapped.sum() == 8 << 20
    assert abs(process_memory("RssAnon") - before) < 20 << 20
    array = np.ones(8 << 20)
    assert 60 << 20 < process_memory("RssAnon") - before < 84 << 20
    assert process_memory("VmRSS") >= process_memory("RssAnon") + mapped.nbytes // 2
    del array


def test_an_unknown_system_says_nothing(tmp_path: Path) -> None:
    assert process_memory("RssAnon", tmp_path / "none") == 0
    (tmp_path / "status").write_text("VmRSS:\t  7 kB\n")
    assert process_memory("RssAnon", tmp_path / "status") == 0
    assert process_memory("VmRSS", tmp_path / "status") == 7 << 10


def test_free_memory_is_returned() -> None:
    small = [np.ones(1 << 12) for _ in range(4_000)]  # which the C library takes from its heap
    held = process_memory("RssAnon")
    del small
    release_memory()
    assert process_memory("RssAnon") < held - (80 << 20)  # of 125


def test_objects_that_refer_to_each_other_are_freed_where_they_hold_much() -> None:
    class Graph:
        """Refers to itself."""

        def __init__(self) -> None:
            self.function = self

    kept = weakref.ref(Graph())
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        free_cycles(LEAST_COLLECTED - 1)
        assert kept() is not None
        free_cycles(LEAST_COLLECTED)
        assert kept() is None
    finally:
        if was_enabled:
            gc.enable()
