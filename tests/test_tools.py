"""The scripts of contributors: which tests a change asks for, and what a release refuses."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("files", "tests"),
    [
        (["feat2vec/encode/encoder.py"], ["tests/encode", "tests/test_architecture.py"]),
        (["feat2vec/table/sources/csv.py"], ["tests/table", "tests/test_architecture.py"]),
        (["feat2vec/errors.py"], ["tests/test_architecture.py", "tests/test_errors.py"]),
        (
            ["tests/model/test_mlp.py", "README.md"],
            ["tests/model", "tests/test_architecture.py", "tests/test_documents.py"],
        ),
        (["tests/reference.py", "feat2vec/errors.py"], ["tests"]),
        (["LICENSE"], []),
    ],
)
def test_a_change_asks_for_the_tests_of_its_rooms(files: list[str], tests: list[str]) -> None:
    assert tool("touched_tests").touched_tests(files) == tests


def test_every_room_has_tests_that_a_change_asks_for() -> None:
    for room in (ROOT / "feat2vec").glob("*/__init__.py"):
        name = room.parent.name
        assert f"tests/{name}" in tool("touched_tests").touched_tests([f"feat2vec/{name}/__init__.py"]), name


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the tools, one commit, and no virtual environment."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.3.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--no-verify", "-m", "all")


def refused(folder: Path, *words: str) -> str:
    """What a script says that ends with exit code 2."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_a_release_refuses_what_is_not_ready(repository: Path) -> None:
    script = "tools/release.sh"
    assert "'--fast' is no option" in refused(repository, script, "--fast")
    assert "CHANGELOG.md has no heading '## [0.3.0] - YYYY-MM-DD'" in refused(repository, script)
    (repository / "notes.txt").write_text("later")
    assert "changes that are not committed" in refused(repository, script)
    (repository / "CHANGELOG.md").write_text("# Changelog\n\n## [0.3.0] - 2026-01-31\n")
    commit(repository)
    git(repository, "tag", "v0.3.0")
    assert "the tag v0.3.0 exists" in refused(repository, script)
    git(repository, "checkout", "-q", "-b", "other")
    assert "the branch is 'other'" in refused(repository, script)


def test_the_hook_asks_for_an_environment_and_lets_nothing_through(repository: Path) -> None:
    git(repository, "config", "core.hooksPath", "tools/hooks")
    (repository / "late.py").write_text("x = 1\n")
    git(repository, "add", "late.py")
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.org"]
    done = subprocess.run(["git", *identity, "commit", "-m", "late"], cwd=repository, capture_output=True, text=True)
    assert done.returncode != 0
    assert "tools/test.sh once" in done.stderr
