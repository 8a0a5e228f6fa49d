"""Mistakes in the words of `feat2vec explore`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from feat2vec.cli import feat2vec as command_line
from feat2vec.errors import UserError
from feat2vec.pages.explore import Server


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--group wo", "--group: there is no group 'wo'; did you mean 'who'?"),
        ("--group row", "--group row: a run keeps no rows; name those to look at by --data"),
        ("--colour year", "--colour: 'year' is a column of --data, which is not given; name the rows, or `count`"),
        ("--data ROWS --colour yaer", "has no column 'yaer'; did you mean 'year'?"),
        ("--data ROWS --colour vector", "--colour: column 'vector' holds fixed_size_list"),
        ("--html page.html --port 80", "--port: is for the server, and --html needs none"),
        ("--html page.html --open", "--open: is for the server, and --html needs none"),
        ("--force", "--force: replaces a file; name it by --html"),
        ("--port 99999", "--port: expected 0 to 65535; received 99999"),
        ("--port PORT", "is in use; choose another, or 0 for any that is free"),
    ],
)
def test_mistakes_are_named(folder: Path, server: Server, options: str, message: str) -> None:
    words = options.replace("ROWS", str(folder / "rows.parquet")).replace("PORT", str(server.server_port)).split()
    done = CliRunner().invoke(command_line, ["explore", str(folder / "run"), *words], standalone_mode=False)
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert len(str(done.exception).splitlines()) <= 5
