"""The table of rooms in ARCHITECTURE.md is true: read off the imports, not off the prose."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "feat2vec"
FORBIDDEN_NAMES = {"utils", "helpers", "common"}
PUBLIC_MODULES = (
    "objectives",
    "optimizers",
    "extractors",
    "keras",
    "specs",
    "diagnose",
    "explain",
)  # short addresses alone
# Names that do not say what they hold.
PRONOUN = re.compile(
    "another|apart|asked|both|each|every|found|here|it|made|many|mine|none|of|one|other|others|own|same|some|something|"
    "such|that|them|then|there|these|they|things?|this|those|told|whatever|which|who|whole"
)
ALLOWED_PRONOUNS = {"evaluation/stability.py": {"asked"}, "recipes/recipe.py": {"of"}}  # keys of JSON and of YAML


class Room(NamedTuple):
    """A row of the table: a room's name, its modules in path order, and the packages it never imports at its top."""

    name: str
    modules: list[str]
    never: set[str]


def rooms_of_the_table() -> list[Room]:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `(\w+)(?:\.py|/)` \|[^|]*\|([^|]*)\|([^|]*)\|$", text, re.M)
    return [
        Room(name, re.findall(r"`(\w+)`", inside), set(re.findall(r"`(\w+)`", never))) for name, inside, never in rows
    ]


def sources(folder: Path, module: str) -> list[Path]:
    """The files of a module, or of a package."""
    inside = folder / module
    return sorted(inside.rglob("*.py")) if inside.is_dir() else [folder / f"{module}.py"]


def modules_in(folder: Path) -> set[str]:
    """The modules and packages in a folder."""
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return {path.stem for path in folder.glob("*.py")} - {"__init__"} | packages


def imports(path: Path, *, everywhere: bool) -> set[str]:
    """Every module that a file imports, also inside functions if `everywhere`; TYPE_CHECKING blocks are left out."""
    tree = ast.parse(path.read_text())
    imported: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            imported |= {f"{node.module}.{name.name}" for name in node.names}  # a module, or what is in one
        elif not everywhere and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        todo += list(ast.iter_child_nodes(node))
    return imported


def imported_modules(path: Path, room: str) -> set[str]:
    """The modules of a room that a file imports, also inside functions."""
    names = (name.split(".") for name in imports(path, everywhere=True))
    return {name[2] for name in names if name[:2] == ["feat2vec", room] and len(name) > 2}


ROOMS = rooms_of_the_table()
ORDER = [room.name for room in ROOMS]
PACKAGES = [room for room in ROOMS if room.modules]
BY_NAME = pytest.mark.parametrize("room", ROOMS, ids=ORDER)


def test_every_room_and_module_is_in_the_table() -> None:
    assert modules_in(PACKAGE) == {*ORDER, *PUBLIC_MODULES}
    assert len(ORDER) == len(set(ORDER))
    for room in PACKAGES:
        inside = modules_in(PACKAGE / room.name)
        assert sorted(room.modules) == sorted(inside), room.name
        assert not FORBIDDEN_NAMES & inside


@BY_NAME
def test_a_room_imports_only_rooms_before_it(room: Room) -> None:
    before = set(ORDER[: ORDER.index(room.name)]) | {room.name}
    for path in sources(PACKAGE, room.name):
        names = (name.split(".") for name in imports(path, everywhere=True))
        imported = {name[1] for name in names if name[0] == "feat2vec" and len(name) > 1}
        assert imported <= before, f"{path.relative_to(PACKAGE)} imports {imported - before}"


@pytest.mark.parametrize("room", PACKAGES, ids=[room.name for room in PACKAGES])
def test_a_module_imports_only_modules_before_it_in_its_room(room: Room) -> None:
    for place, module in enumerate(room.modules):
        for path in sources(PACKAGE / room.name, module):
            later = imported_modules(path, room.name) & set(room.modules[place + 1 :])
            assert not later, f"{path.relative_to(PACKAGE)} imports {later}"


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_a_public_module_only_gives_names_an_address(module: str) -> None:
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    for node in tree.body:
        assert isinstance(node, (ast.Expr, ast.ImportFrom, ast.Assign)), f"{module}.py: {ast.unparse(node)}"


@pytest.mark.parametrize("room", PACKAGES, ids=[room.name for room in PACKAGES])
def test_a_room_says_what_it_is_for_and_where_to_begin(room: Room) -> None:
    told = ast.get_docstring(ast.parse((PACKAGE / room.name / "__init__.py").read_text())) or ""
    assert re.search(r"\bIn:", told), room.name
    assert re.search(r"\bOut:", told), room.name
    first = re.search(r"Open `(\w+)\.py` first", told)
    assert first is not None, room.name
    assert first.group(1) in room.modules
    assert len(told.splitlines()) <= 6


@BY_NAME
def test_a_room_imports_nothing_it_should_do_without(room: Room) -> None:
    for path in sources(PACKAGE, room.name):
        packages = {name.split(".")[0] for name in imports(path, everywhere=False)}
        assert not packages & room.never, f"{path.relative_to(PACKAGE)} imports {packages & room.never}"


def names_in(tree: ast.AST) -> set[str]:
    """The variables, arguments, attributes, functions, classes and aliases that a file names."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias) and node.asname:
            names.add(node.asname)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            names.add(node.name)
    return names


def test_names_of_a_file_are_seen() -> None:
    code = (
        "import numpy as others\ndef told(one, *, each=0, **some):\n  self.found = [lambda own: 0 for many in one]\n"
        "  with open(one) as made:\n    (whole, (apart,)) = made\n  try:\n    pass\n  except OSError as this: pass\n"
    )
    expected = ["apart", "each", "found", "made", "many", "one", "others", "own", "some", "this", "told", "whole"]
    assert sorted(names_in(ast.parse(code))) == expected
    assert all(PRONOUN.fullmatch(name) for name in expected)


@BY_NAME
def test_a_name_says_what_it_holds(room: Room) -> None:
    for path in sources(PACKAGE, room.name):
        pronouns = {name for name in names_in(ast.parse(path.read_text())) if PRONOUN.fullmatch(name.strip("_"))}
        assert pronouns <= ALLOWED_PRONOUNS.get(path.relative_to(PACKAGE).as_posix(), set()), path


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "module",
    [
        "schema.reading",
        "table.table",
        "encode.encoder",
        "table.profile",
        "recipes.reading",
        "space.run_vectors",
        "run",
        "cli",
    ],
)
def test_importing_what_needs_no_model_does_not_import_tensorflow(module: str) -> None:
    code = f"import sys, feat2vec.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorflow", "keras", "pandas", "polars"} & set(done.stdout.split())


def test_the_way_of_a_row_names_functions_that_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w/]+\.py): ([\w.]+)`", text)
    assert len(names) > 20
    for file, name in names:
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        node: ast.AST = tree
        for part in name.split("."):
            inside = [n for n in ast.iter_child_nodes(node) if getattr(n, "name", None) == part]
            assert inside, f"{file} has no {name}"
            node = inside[-1]


def papers_table() -> list[list[str]]:
    """The rows of the table of papers: paper, what, where, shown by."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.split("## What the papers have")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


def test_the_table_of_papers_names_modules_and_tests_that_are_there() -> None:
    rows = papers_table()
    assert {row[0] for row in rows} == {"000", "001", "002", "003", "004"}
    items = [(row[0], row[1]) for row in rows]
    functions: dict[str, set[str]] = {}  # by file
    assert len(items) == len(set(items))
    for row in rows:
        assert len(row) == 4, row
        assert all(row), row
        places, tests = re.findall(r"`([^`]+)`", row[2]), re.findall(r"`([^`]+)`", row[3])
        assert places, row
        assert tests, row
        for place in places:
            assert (PACKAGE / place.split(":")[0]).is_file(), place
        for name in tests:
            file, _, test = name.partition("::")
            if file not in functions:
                tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
                functions[file] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert test in functions[file], f"tests/{file} has no {test}"


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:tests|tools|feat2vec|\w+)/[\w/]*(?:\.py|\.sh|/)?)`", text):
        places = [ROOT / name, PACKAGE / name]
        assert any(place.exists() for place in places), name
