"""The source distribution holds all that the repository holds, so that its tests run from it.

setuptools takes the package and the tests' own modules; what else there is, it takes from a MANIFEST.in or from this
command, which pyproject.toml names.
"""

from __future__ import annotations

from pathlib import Path

from setuptools.command.sdist import sdist

FOLDERS = (".ci", "recipes", "schemas", "tests", "tools")
FILES = (".gitignore", "ARCHITECTURE.md", "CHANGELOG.md")


class WholeSdist(sdist):
    """`sdist` with the folders and files beside the package."""

    def make_distribution(self) -> None:
        """Write the archive."""
        paths = [path for folder in FOLDERS for path in sorted(Path(folder).rglob("*"))]
        kept = [str(path) for path in paths if path.is_file() and "__pycache__" not in path.parts]
        self.filelist.extend([*kept, *FILES])
        super().make_distribution()
