"""Help texts: every command, with an example whose options exist; quick commands import no TensorFlow."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from feat2vec import cli
from tests.commands import feat2vec


def test_help_names_every_command(folder: Path) -> None:
    shown = feat2vec("--help", folder=folder).stdout.split("Commands:")[1]
    assert re.findall(r"^  (\w+)  ", shown, re.M) == list(cli.feat2vec.commands)


def examples(help_text: str) -> list[list[str]]:
    """The command lines of a help text, without comments and redirections."""
    lines = help_text.replace("\\\n", " ").splitlines()
    return [shlex.split(line.split(" > ")[0]) for line in map(str.strip, lines) if line.startswith("feat2vec ")]


@pytest.mark.parametrize("name", cli.feat2vec.commands)
def test_each_command_has_an_example_whose_options_exist(name: str, folder: Path) -> None:
    command_lines = examples(feat2vec(name, "--help", folder=folder).stdout)
    assert any(words[1] == name for words in command_lines)
    for program, command, *words in command_lines:
        assert program == "feat2vec"
        cli.feat2vec.commands[command].make_context(command, list(words))  # raises what it would say of them


@pytest.mark.parametrize(
    "words", [["--help"], ["check", "films.yaml"], ["init", "films.csv"], ["check", "--json-schema"]]
)
def test_quick_commands_never_import_tensorflow(folder: Path, words: list[str]) -> None:
    with (folder / "films.csv").open("a") as file:
        file.write("Bo,x|z,4\n")  # init needs five rows
    code = (
        "import sys\nfrom feat2vec.cli import main\nsys.argv[0] = 'feat2vec'\n"
        "try: main()\nfinally: print([m for m in ('tensorflow', 'keras') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
