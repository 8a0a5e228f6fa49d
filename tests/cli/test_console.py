"""How the command line speaks: names on a terminal, closed streams, Ctrl-C in whatever a library makes of it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pyarrow as pa
import pytest

import feat2vec as library
from feat2vec import cli
from feat2vec.cli import console
from feat2vec.errors import FailedError, UserError
from feat2vec.pages.explanation import Contribution, Explanation
from feat2vec.training.reporting import Reporter
from tests.cli.test_cli import CSV, SCHEMA
from tests.commands import PROGRAM, feat2vec

HOSTILE = "a\x1b[31m\nb\u202e\udc80"
ESCAPED = r"a\x1b[31m\nb\u202e\udc80"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "films.yaml").write_text(SCHEMA)
    (tmp_path / "films.csv").write_text(CSV)
    return tmp_path


def in_a_shell(folder: Path, words: str, redirections: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.join(PROGRAM)} {words} {redirections}"
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True)


def test_a_current_folder_that_is_gone_is_said(folder: Path) -> None:
    (folder / "gone").mkdir()
    command = f"rmdir ../gone; {shlex.join(PROGRAM)} init {folder / 'films.csv'} -o films.yaml"
    gone = subprocess.run(["bash", "-c", command], cwd=folder / "gone", capture_output=True, text=True)
    assert gone.stderr == "the current folder does not exist any more; change to one that does (cd)\n"
    assert gone.returncode == 2


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [False, True])
def test_a_line_is_one_line_without_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str], error: bool) -> None:
    console.say(HOSTILE, error=error)
    shown = capsys.readouterr()
    assert (shown.err if error else shown.out) == f"{ESCAPED}\n"


def test_a_name_in_a_message_and_in_a_path_is_escaped(folder: Path) -> None:
    (folder / "films.yaml").write_text(SCHEMA.replace("groups:", '"x\\e[31m\\ny\\u202e": 1\ngroups:'))
    for words in (["check", "films.yaml"], ["check", "no\x1b[2J\nfile"], ["\x1b[31mcheck"], ["check", "--\x1b\n"]):
        done = feat2vec(*words, folder=folder, code=2)
        assert done.stderr.replace("\n", "").isprintable()
        assert len(done.stderr.splitlines()) <= 4


def test_an_explanation_is_a_table_whatever_names_hold() -> None:
    parts = [Contribution("pair", (HOSTILE, "x"), 1.0), Contribution("linear", ("long" * 99,), 1.0)]
    text = Explanation(f"score of {HOSTILE}", 2.0, parts, [{HOSTILE: HOSTILE, "long" * 99: "y" * 999}]).text()
    lines = text.splitlines()
    assert len(lines) == 2 + 1 + 2 + 1
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= 200


def test_progress_is_escaped_and_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    Reporter(1, 1).say(f":smile: [red]\x1b[31m\n{'w' * 999}")
    first, second = capsys.readouterr().err.splitlines()
    assert first == r":smile: [red]\x1b[31m"
    assert len(second) <= 200


def test_the_summary_of_many_groups_is_short() -> None:
    groups = {f"{i}\n\x1b": {"column": f"c{i}"} for i in range(200)}
    rows = pa.table({f"c{i}": ["x", "y", None] for i in range(200)})
    lines = library.fit({"version": 1, "groups": groups}, rows).summary().splitlines()
    assert len(lines) == 22
    assert lines[1] == r"0\n\x1b: 2 values, 2 keys, 1 missing"
    assert lines[-1] == "and 180 more groups: 360 values, 360 keys, 180 missing"


def test_a_table_of_many_columns_is_not_listed(folder: Path) -> None:
    names = [f"other{i}" for i in range(10_000)]
    (folder / "films.csv").write_text(",".join(names) + "\n" + ",".join("x" for _ in names) + "\n")
    groups = "".join(f"  g{i}: {{column: absent {i}}}\n" for i in range(200))
    (folder / "films.yaml").write_text(f"version: 1\ngroups:\n{groups}")
    lines = feat2vec("check", "films.yaml", "--data", "films.csv", folder=folder, code=2).stderr.splitlines()
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 200
    assert "other0, other1" in lines[0]
    assert "(10,000 in all)" in lines[0]
    assert lines[-1].endswith(" more")


@pytest.mark.parametrize(
    "words",
    [
        "train films.yaml --data films.csv --out DIR/run",
        "similar DIR/run director Ana",
        "evaluate DIR/run --data films.csv --task rank --target director",
        "export DIR/run --format npz --out x",
    ],
)
def test_a_folder_of_stray_bytes_is_refused_before_anything_is_made(folder: Path, words: str) -> None:
    before = sorted(folder.iterdir())
    done = feat2vec(*words.replace("DIR", "caf\udce9").split(), folder=folder, code=2)
    assert done.stderr == "caf\\udce9/run: its name, or that of a folder above it, is not UTF-8; rename it\n"
    assert sorted(folder.iterdir()) == before


def test_a_temporary_folder_of_stray_bytes_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "caf\udce9"))
    done = feat2vec("check", "films.yaml", "--data", "films.csv", folder=folder, code=2)
    assert "caf\\udce9: its name, or that of a folder above it, is not UTF-8; rename it\n" in done.stderr


BASE = "version: 1\ngroups:\n  a: {column: a}\n  b: {column: b}\n"
TEXTS = {
    "a long scalar": f"{BASE}model: {{dim: {'x' * 1_000_000}}}\n",
    "a long key": f"{BASE}? {'k' * 1_000_000}\n: 1\n",
    "unknown keys": BASE + "".join(f"key{i}: 1\n" for i in range(1000)),
    "a key again": BASE + "dup: 1\n" * 1000,
    "deep lists": f"{BASE}x: {'[' * 1000}{']' * 1000}\n",
    "deep keys": BASE + "".join(f"{' ' * i}a:\n" for i in range(1000)),
    "a huge whole number": f"{BASE}model: {{dim: 1{'0' * 5000}}}\n",
    "a huge number": f"{BASE}model: {{scale: 1{'0' * 5000}.5}}\n",
    "no finite number": f"{BASE}training: {{l2: .inf, epochs: .nan}}\n",
    "an unknown group": f"{BASE}noise: {{targets: [{'t' * 50_000}]}}\n",
    "an unknown plugin": f"{BASE}plugins: [{'p' * 5000}]\n",
    "control characters": f'{BASE}"\\e[31m\\n\\u202e": "\\e"\n',
    "binary": "\x7fELF\x00\x01",
    "empty": "",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("command", ["check", "run"])
def test_whatever_a_file_holds_the_answer_is_short(tmp_path: Path, name: str, command: str) -> None:
    (tmp_path / "s.yaml").write_text(TEXTS[name])
    lines = feat2vec(command, "s.yaml", folder=tmp_path, code=2).stderr.splitlines()
    assert 1 <= len(lines) <= 5
    assert all(line.isprintable() and len(line) <= 200 and "s.yaml" in line for line in lines)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "latin.yaml").write_bytes(f"{BASE}name: é\n".encode("latin-1"))
    for schema in ("folder.yaml", "latin.yaml", "/dev/null", ".", "", "a\0b"):
        done = feat2vec("check", schema, folder=tmp_path, code=2)
        (line,) = done.stderr.splitlines()
        assert line.isprintable()


# --- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize(("schema", "code"), [("films.yaml", 0), ("none.yaml", 2)])
def test_a_closed_stream_changes_nothing(folder: Path, closed: str, schema: str, code: int) -> None:
    done = in_a_shell(folder, f"check {schema} --data films.csv", closed)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("fits films.csv" in done.stdout) == (code == 0 and closed[:3] != ">&-")


def test_what_cannot_be_written_is_said_once(folder: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no device that is full")
    done = in_a_shell(folder, "check films.yaml", "> /dev/full")
    assert done.returncode == 1
    assert done.stderr == "standard output: No space left on device; make room, or choose another place\n"


def test_a_reader_who_has_seen_enough_is_no_error(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # `| head -0`
    try:
        shown = subprocess.run([*PROGRAM, "check", "--json-schema"], stdout=writing, stderr=subprocess.PIPE, text=True)
        told = subprocess.run([*PROGRAM, "check", "none.yaml"], cwd=folder, stderr=writing)
    finally:
        os.close(writing)
    assert (shown.returncode, shown.stderr, told.returncode) == (1, "", 2)


# --- errors and Ctrl-C ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("a: wrong", "b: wrong"), 2, "a: wrong\nb: wrong\n"),
        (FailedError("it diverged", "lower it"), 1, "it diverged\nlower it\n"),
        (OSError(28, "No space left on device", b"caf\xe9"), 1, "caf\\udce9: No space left on device\n"),
        (click.UsageError("no such option\x1b"), 2, "Error: no such option\\x1b\n"),
        (BrokenPipeError(), 1, ""),
        (SystemExit(143), 143, ""),
        (RuntimeError("a bug"), None, ""),
    ],
)
def test_what_an_error_means(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int | None, said: str
) -> None:
    assert console.exit_code(error) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("name", cli.feat2vec.commands)
@pytest.mark.parametrize("as_error", [KeyboardInterrupt, RuntimeError])
def test_ctrl_c_is_130_and_one_line_whatever_a_library_makes_of_it(
    name: str, as_error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise as_error("Query interrupted") from None  # as DuckDB does

    monkeypatch.setattr(cli.feat2vec.commands[name], "invoke", press)
    monkeypatch.setattr(cli.feat2vec.commands[name], "params", [])
    done = feat2vec(name, code=130)
    assert (done.stdout, done.stderr) == ("", "interrupted\n")


@pytest.mark.parametrize("as_error", [None, RuntimeError, UserError, ImportError])
def test_a_terminated_command_is_143_whatever_a_library_makes_of_it(
    as_error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminate(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            if as_error is None:
                raise
            raise as_error("Query interrupted") from None  # as DuckDB does, and an import of TensorFlow

    monkeypatch.setattr(cli.feat2vec.commands["train"], "invoke", terminate)
    monkeypatch.setattr(cli.feat2vec.commands["train"], "params", [])
    done = feat2vec("train", code=143)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_tensorflow_says_nothing_on_standard_error(folder: Path) -> None:
    """In the environment that a user has, in which nothing keeps TensorFlow quiet."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_")}
    commands = (
        "train films.yaml --data films.csv --out run --set training.epochs=1",
        "similar run director Ana",
        "embed run --data films.csv --out vectors.parquet",
        "export run --format saved_model --out model",
    )
    told = []
    for words in commands:
        command = [*PROGRAM, *words.split()]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        told.append(done.stderr.splitlines())
    assert [line.split(":")[0].split(" ")[0] for line in told[0]] == ["4", "director", "cast", "score", "epoch"]
    assert told[1:] == [[], [], []]


@pytest.mark.slow
def test_what_tensorflow_can_do_without_is_imported_only_by_those_who_use_it() -> None:
    code = """
import sys
from feat2vec.cli.console import OPTIONAL, import_tensorflow
import_tensorflow()
import feat2vec.trainer, keras
assert not [name for name in OPTIONAL if name in sys.modules]
import pandas, sklearn.linear_model
assert pandas.DataFrame({"a": [1]}).a[0] == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)
