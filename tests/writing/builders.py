"""What the tests of this room share: folders and files as feat2vec writes them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from feat2vec.writing import folder_place, new_folder

USER_ENTRIES = ["empty", "file", "full", "link", "nowhere"]  # what `user_folder` holds
HOLD = """
import sys
from pathlib import Path
from feat2vec.writing import work_folder
with work_folder(Path(sys.argv[1])) as folder:
    (folder / "checkpoint.npz").write_text("state")
    print("held", flush=True)
    sys.stdin.read()
"""


def make_folder(out: str | Path, kind: str = "thing", *, force: bool = False) -> Path:
    """Make a marked folder with one file."""
    with new_folder(folder_place(out, kind, force=force)) as folder:
        (folder / "inside").write_text("ours")
    return Path(out)


def write_and_fail(context: AbstractContextManager[Path], error: type[BaseException], name: str | None = None) -> None:
    """Write into a new folder or file, and fail before it is complete."""
    with context as path:
        (path if name is None else path / name).write_text("half")
        raise error


def texts_below(folder: Path) -> dict[str, str]:
    """The text of each file in a folder and below."""
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def training_in_another_process(run: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the folder in which a run is trained; it is killed at the end."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()
