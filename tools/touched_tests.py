"""The fast tests of the rooms that files belong to, one path a line, for `pytest`.

python tools/touched_tests.py feat2vec/encode/encoder.py README.md    # tests/encode, tests/test_documents.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALWAYS = "tests/test_architecture.py"
OF_DOCUMENTS = "tests/test_documents.py"
SHARED = ("tests/commands.py", "tests/doctests.py", "tests/reference.py", "pyproject.toml")


def touched_tests(files: Sequence[str]) -> list[str]:
    """The tests to run when these files have changed: folders and files below `tests`, sorted.

    Args:
        files: Paths from the repository's root, with `/`.

    Returns:
        Paths for pytest. Everything, `tests`, when a file that all tests share has changed.

    """
    if any(name in SHARED for name in files):
        return ["tests"]
    tests = {test for name in files for test in _tests_of(Path(name))}
    return sorted(tests | {ALWAYS}) if tests else []


def _tests_of(path: Path) -> Iterator[str]:
    room = path.parts[1] if len(path.parts) > 1 else ""
    if path.suffix in (".md", ".yaml", ".sh") and path.parts[0] != "tests":
        yield OF_DOCUMENTS
    elif path.parts[0] in ("feat2vec", "tests") and (ROOT / "tests" / room).is_dir():
        yield f"tests/{room}"
    elif path.parts[0] == "feat2vec" and (ROOT / "tests" / f"test_{path.stem}.py").is_file():
        yield f"tests/test_{path.stem}.py"
    elif path.parts[0] == "tests" and path.name.startswith("test_") and (ROOT / path).is_file():
        yield path.as_posix()


if __name__ == "__main__":
    print("\n".join(touched_tests(sys.argv[1:])))
