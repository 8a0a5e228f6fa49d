"""Nothing outside of this room removes, renames or replaces a file."""

from __future__ import annotations

import ast
from pathlib import Path

import feat2vec

PACKAGE = Path(feat2vec.__file__).parent
REMOVERS = {"rmtree", "rmdir", "unlink", "removedirs", "rename", "renames", "move"}  # `list.remove` is not `os.remove`
ALLOWED = {  # what they remove they have made themselves, below a folder that is theirs
    "training/checkpoint_file.py": {"unlink"},  # checkpoint.npz.new
    "encode/arrays_on_disk.py": {"unlink"},  # spilled arrays
    "encode/mapped_keys.py": {"unlink"},  # files that are mapped
    "shards/encoded_folder.py": {"rmtree"},  # what a killed encoding has left of the encoder
    "shards/spark_fit.py": {"rmtree"},  # steps that a killed encoding has left unfinished
    "sklearn.py": {"rename"},  # a frame's columns
}


def removals(path: Path) -> set[str]:
    """The methods that a module calls to remove, rename or replace."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        is_path_replace = name == "replace" and len(node.args) == 1 and not node.keywords  # `str.replace` takes two
        is_os_remove = name == "remove" and ast.unparse(node.func.value) == "os"
        if name in REMOVERS or is_path_replace or is_os_remove:
            names.add(name)
    return names


def test_nothing_is_removed_or_renamed_outside_of_this_room() -> None:
    assert removals(PACKAGE / "writing" / "folders.py") >= {"rmtree", "rename"}
    assert removals(PACKAGE / "writing" / "files.py") >= {"replace", "unlink"}
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        if not module.startswith("writing/"):
            assert removals(path) <= ALLOWED.get(module, set()), module
