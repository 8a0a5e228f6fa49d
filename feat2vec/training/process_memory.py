"""What the process holds in memory, what it may still take, and how free memory is returned to the system."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

PROCESS_STATUS = Path("/proc/self/status")
MACHINE_MEMORY = Path("/proc/meminfo")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def resident_memory(status: Path = PROCESS_STATUS) -> int:
    """Bytes that this process holds; 0 on systems that do not say so."""
    with suppress(OSError, ValueError, IndexError):
        kilobytes = status.read_text().split("VmRSS:")[1].split()[0]
        return int(kilobytes) << 10
    return 0


def free_memory(machine: Path = MACHINE_MEMORY, container: Path = CONTAINER_LIMIT) -> int | None:
    """Bytes that may still be taken on this machine and in this container; None on systems that do not say so."""
    limits: list[int] = []
    try:
        lines = dict(line.split(":") for line in machine.read_text().splitlines())
        limits.append(sum(int(lines[key].split()[0]) << 10 for key in ("MemAvailable", "SwapFree")))
    except (OSError, ValueError, KeyError):
        if "SC_PHYS_PAGES" in os.sysconf_names:
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # the file is missing, or says "max"
        limits.append(int(container.read_text()))
    return min(limits, default=None)


def release_memory() -> None:
    """Return to the system what Arrow and the C library keep of memory that is free."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
