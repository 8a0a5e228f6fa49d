"""What this process holds in memory of its own, and how free memory is returned to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

PROCESS_STATUS = Path("/proc/self/status")


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
