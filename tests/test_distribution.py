"""What is published: a source distribution whose tests run from it, and a wheel with all that the package reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEFT_OUT = (".git", ".venv", "__pycache__", "*.egg-info", "build", "dist", "runs", ".*_cache", ".hypothesis")
LISTED = (".env", "notes.md", "feat2vec/table/sources/datasets/mine.csv")  # by the list of an earlier build
STRANGE = (
    "recipes/runs/private/train.parquet",
    "tests/.env",
    "tools/.venv/bin/python",
    "tests/__pycache__/x.pyc",
    "feat2vec_mine/__init__.py",
    "feat2vec/pages/explore/page.bak",
    *LISTED,
)
ADDED = {"PKG-INFO", "setup.cfg"}  # by setuptools
BUILD = "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"
QUICK = ("test_terminal.py", "test_errors.py", "evaluation/test_metrics.py")

pytestmark = pytest.mark.skipif(
    int(version("setuptools").split(".")[0]) < 77, reason="the project is built by setuptools 77 or later"
)


def files(folder: Path) -> set[str]:
    paths = (Path(above, name) for above, _, names in os.walk(folder) for name in names)
    return {str(path.relative_to(folder)) for path in paths if not path.is_symlink()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, with the distributions in `dist`."""
    folder = tmp_path_factory.mktemp("source") / "feat2vec"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mine.py").write_text("mine")
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for name in STRANGE:  # a user's own, in the way
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    (folder / "feat2vec.egg-info").mkdir()
    (folder / "feat2vec.egg-info" / "SOURCES.txt").write_text("\n".join(LISTED))
    (folder / "tests" / "link").symlink_to("/etc/hostname")
    (folder / "tests" / "elsewhere").symlink_to(elsewhere)
    subprocess.run([sys.executable, "-B", "-c", BUILD], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def unpacked(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked elsewhere."""
    folder = tmp_path_factory.mktemp("unpacked")
    (archive,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (found,) = folder.iterdir()
    return found


def pytest_in(folder: Path, *words: str) -> str:
    """Run pytest in a folder, on the package that is there; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout


def test_the_source_distribution_holds_every_file(source: Path, unpacked: Path) -> None:
    made = {name for name in files(source) if name.split("/")[0] in ("build", "dist", "feat2vec.egg-info")}
    held = {name for name in files(unpacked) if name.split("/")[0] != "feat2vec.egg-info"}
    assert held - ADDED == files(source) - made - set(STRANGE)
    assert not held & {"tests/link", "tests/elsewhere/mine.py", *STRANGE}
    assert {"recipes/films.yaml", "schemas/films.yaml", "tests/commands.py", "tools/test.sh", ".ci/run"} <= held
    assert os.access(unpacked / "tools" / "test.sh", os.X_OK)


def test_the_wheel_holds_the_package_alone(source: Path) -> None:
    (wheel,) = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        held = {name for name in file.namelist() if ".dist-info/" not in name}
    assert held == {name for name in files(source) - set(STRANGE) if name.startswith("feat2vec/")}
    page = {f"pages/explore/page.{suffix}" for suffix in ("html", "css", "js")}
    data = {"py.typed", "table/sources/datasets/artworks.csv", *page}
    assert {f"feat2vec/{name}" for name in data} <= held


@pytest.mark.slow
def test_quick_tests_run_from_the_source_distribution(unpacked: Path) -> None:
    where = subprocess.run(
        [sys.executable, "-c", "import feat2vec; print(feat2vec.__file__)"],
        cwd=unpacked,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert Path(where.strip()).parent == unpacked / "feat2vec"
    assert " passed" in pytest_in(unpacked, *(f"tests/{name}" for name in QUICK))


@pytest.mark.slow
def test_every_test_is_collected_from_the_source_distribution(unpacked: Path) -> None:
    assert "tests/training/test_train.py" in pytest_in(unpacked, "--collect-only")


@pytest.mark.slow
def test_the_fast_tests_run_from_the_source_distribution(unpacked: Path) -> None:
    assert " passed" in pytest_in(unpacked, "--ignore", "tests/test_distribution.py")
