"""The module table in ARCHITECTURE.md is true: read off the imports, not off the prose."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "feat2vec"
FORBIDDEN_NAMES = {"utils", "helpers", "common"}


def module_table() -> list[tuple[str, set[str]]]:
    """(module, packages it never imports at its top), in path order, from ARCHITECTURE.md."""
    rows = re.findall(r"^\| `(\w+)(?:\.py|/)` \|[^|]*\|([^|]*)\|$", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    return [(name, set(re.findall(r"`([\w.]+)`", never))) for name, never in rows]


def sources(module: str) -> list[Path]:
    folder = PACKAGE / module
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{module}.py"]


def imports(path: Path, *, everywhere: bool) -> set[str]:
    """Every module that a file imports, also inside functions if `everywhere`; TYPE_CHECKING blocks are left out."""
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(str(node.module))
        elif not everywhere and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        todo += list(ast.iter_child_nodes(node))
    return found


TABLE = module_table()
ORDER = [name for name, _ in TABLE]


def test_every_module_is_in_the_table() -> None:
    here = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert here - {"__init__"} == set(ORDER)
    assert len(ORDER) == len(set(ORDER))
    assert not FORBIDDEN_NAMES & here


@pytest.mark.parametrize("module", ORDER)
def test_a_module_imports_only_what_stands_before_it(module: str) -> None:
    before = set(ORDER[: ORDER.index(module)]) | {module}
    for path in sources(module):
        own = {name.split(".")[1] for name in imports(path, everywhere=True) if name.startswith("feat2vec.")}
        assert own <= before, f"{path.name} imports {own - before}"


@pytest.mark.parametrize(("module", "never"), TABLE)
def test_a_module_imports_nothing_it_should_do_without(module: str, never: set[str]) -> None:
    for path in sources(module):
        packages = {name.split(".")[0] for name in imports(path, everywhere=False)}
        assert not packages & never, f"{path.name} imports {packages & never}"


@pytest.mark.parametrize("module", ["schema", "table", "encode", "profile", "cli"])
def test_importing_the_first_half_of_the_path_does_not_import_tensorflow(module: str) -> None:
    code = f"import sys, feat2vec.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorflow", "keras", "pandas", "polars"} & set(done.stdout.split())
