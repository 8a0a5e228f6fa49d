"""Runs the commands of a document and writes what they print below them, or says where that differs.

python tools/document.py recipes/README.md            # replaces the outputs
python tools/document.py recipes/README.md --check    # exits with 1 if one differs in more than its numbers

A command is a line that begins with `$ ` in a block of ```console; what follows it up to the next one is its output.
All commands of a document run one after the other in a folder of their own that begins empty; $FEAT2VEC is the
repository. Of a long output the first and the last lines stay. Numbers depend on the machine: --check looks past them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST, LAST = 8, 4  # lines of a long output


def blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """The document in pieces: what is no console block, and then the commands of the block that follows."""
    for piece in re.split(r"(?ms)^(```console\n.*?^```\n)", text):
        commands = re.findall(r"(?m)^\$ (.*(?:\\\n.*)*)$", piece) if piece.startswith("```console\n") else []
        yield piece, commands


def run(command: str, folder: Path) -> str:
    """What a command prints; one that fails ends the tool."""
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "FEAT2VEC": str(ROOT), "COLUMNS": "120",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip
    both = f"exec 2>&1\n{command}"
    done = subprocess.run(
        ["bash", "-c", both], cwd=folder, env=environment, text=True, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(f"$ {command}\n{done.stdout}exit {done.returncode}")
    lines = done.stdout.rstrip("\n").splitlines()
    if len(lines) > FIRST + LAST + 1:
        lines = [*lines[:FIRST], "...", *lines[-LAST:]]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def replayed(text: str, folder: Path) -> str:
    """The document with what its commands print now."""
    parts = []
    for piece, commands in blocks(text):
        inside = "\n".join(f"$ {command}\n{run(command, folder)}" for command in commands)
        parts.append(f"```console\n{inside}```\n" if commands else piece)
    return "".join(parts)


def shape(text: str) -> str:
    """The text without its numbers, and without the order of what is close: lines of neighbours name keys."""
    text = re.sub(r"(?m)^ +-?\d\.\d+ .*$", "NEIGHBOUR", text)
    return re.sub(r"-?\d[\d,.:]*", "0", re.sub(r" +", " ", text))


def main() -> None:
    """Replace or check the outputs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    before = options.document.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        after = replayed(before, Path(folder))
    if not options.check:
        options.document.write_text(after, encoding="utf-8")
        return
    old, new = shape(before).splitlines(), shape(after).splitlines()
    wrong = [f"- {one}\n+ {other}" for one, other in zip(old, new, strict=False) if one != other]
    if wrong or len(old) != len(new):
        sys.exit("\n".join([f"{options.document}: prints something else now", *wrong[:10]]))


if __name__ == "__main__":
    main()
