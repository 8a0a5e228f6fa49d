"""How much memory a piece of work takes, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MEASURE = """
def peak_mb():
    # of this program: what getrusage says begins with the peak of the process that started it
    from pathlib import Path
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) >> 10

work({small})
before = peak_mb()
work({large})
print(peak_mb() - before)
"""


def peak_growth_mb(work: str, small: int, large: int, folder: Path) -> int:
    """By how many MB the peak of a child's memory grows from `work(small)` to `work(large)`.

    Args:
        work: Python code that defines the function `work` of one size.
        small: A size that makes the child import and build what it needs in any case.
        large: The size whose memory is measured.
        folder: Where the child runs.

    """
    code = work + MEASURE.format(small=small, large=large)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    return int(child.stdout)
