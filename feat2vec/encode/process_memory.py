"""What this process holds in memory of its own, and how free memory is returned to the system."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

PROCESS_STATUS = Path("/proc/self/status")
LEAST_COLLECTED = 64 << 20  # bytes; to walk through all objects of TensorFlow for them takes a fifth of a second


def process_memory(kind: str, status: Path = PROCESS_STATUS) -> int:
    """Bytes that this process holds; 0 on systems that do not say so.

    Args:
        kind: `VmRSS` for all of them, `RssAnon` for those that are not of files.
        status: The file in which Linux says so.

    """
    with suppress(OSError, ValueError, IndexError):
        kilobytes = status.read_text().split(f"{kind}:")[1].split()[0]
        return int(kilobytes) << 10
    return 0


def release_memory() -> None:
    """Return to the system what Arrow and the C library keep of memory that is free."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def free_cycles(size: int) -> None:
    """Free objects that refer to each other, such as a step's function and its graph, and return their memory.

    Args:
        size: The bytes of the tables that they hold. Few are left to Python's own collection.

    """
    if size >= LEAST_COLLECTED:
        gc.collect()
    release_memory()
