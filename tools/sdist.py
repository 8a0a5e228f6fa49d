"""The source distribution holds all that the repository holds, so that its tests run from it.

setuptools itself takes the package, and whatever the list of an earlier build names; this command, which pyproject.toml
names, takes the package and the folders and files beside it, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from setuptools.command.sdist import sdist

FOLDERS = (".ci", "recipes", "schemas", "tests", "tools")
FILES = (".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml")


def files_below(folder: str, ignored: list[str]) -> Iterator[str]:
    """The files of a folder that belong to the project: none that is hidden, ignored by git, or a link."""
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if _belongs(Path(above, name), ignored))
        yield from (str(Path(above, name)) for name in sorted(names) if _belongs(Path(above, name), ignored))


def _belongs(path: Path, ignored: list[str]) -> bool:
    hidden = path.name.startswith(".") or path.is_symlink()
    return not hidden and not any(fnmatch(path.name, pattern.strip("/")) for pattern in ignored)


class WholeSdist(sdist):
    """`sdist` with the folders and files beside the package."""

    def make_distribution(self) -> None:
        """Write the archive."""
        ignored = Path(".gitignore").read_text(encoding="utf-8").split()
        facts = [path for path in self.filelist.files if Path(path).parts[0] == "feat2vec.egg-info"]
        self.filelist.files = []
        self._add_defaults_python()  # the package
        self.filelist.extend([*facts, *(path for folder in FOLDERS for path in files_below(folder, ignored)), *FILES])
        super().make_distribution()
