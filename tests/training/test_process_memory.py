"""Memory of the process and of the machine, as the system says it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from feat2vec.training.process_memory import free_memory, release_memory, resident_memory


def test_resident_memory_is_that_of_this_process(tmp_path: Path) -> None:
    before = resident_memory()
    array = np.ones(8 << 20)
    assert 60 << 20 < resident_memory() - before < 80 << 20
    del array
    assert resident_memory(tmp_path / "none") == 0
    release_memory()


def test_free_memory_is_the_smaller_of_the_machines_and_the_containers(tmp_path: Path) -> None:
    machine, container = tmp_path / "machine", tmp_path / "container"
    machine.write_text("MemTotal: 9 kB\nMemAvailable:   3 kB\nSwapFree:  2 kB\n")
    assert free_memory(machine, container) == 5 * 1024
    container.write_text("max\n")
    assert free_memory(machine, container) == 5 * 1024
    container.write_text("4096\n")
    assert free_memory(machine, container) == 4096
    machine.unlink()  # a system that is not Linux: all of the machine's memory
    container.unlink()
    assert (free_memory(machine, container) or 1 << 30) >= 1 << 28
