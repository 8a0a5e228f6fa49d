"""The process of a command: closed streams, exit codes, Ctrl-C in whatever a library makes of it."""

from __future__ import annotations

import errno
import gc
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from feat2vec import cli
from feat2vec.cli import process
from feat2vec.errors import FailedError, UserError
from tests.commands import PROGRAM, feat2vec


def in_a_shell(folder: Path, words: str, redirections: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.join(PROGRAM)} {words} {redirections}"
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["feat2vec", "feat2vec.cli"])
def test_the_command_line_is_a_module_too(module: str) -> None:
    shown = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True)
    assert shown.returncode == 0
    assert f"Usage: python -m {module} [OPTIONS] COMMAND" in shown.stdout


def test_libraries_are_loaded_after_their_environment_is_set() -> None:
    code = "import sys, feat2vec.cli; print([name for name in ('numpy', 'tensorflow') if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"
    names = ["OPENBLAS_THREAD_TIMEOUT", "TF_CPP_MIN_LOG_LEVEL", "OPENBLAS_NUM_THREADS"]
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"  # what the user has set stays
    for command, values in (("train", ["4", "2", "1"]), ("check", ["4", "2", None])):
        code = (
            f"import os, sys; from feat2vec.cli import main; sys.argv[1:] = ['{command}', 'none.yaml', '--data', 'x']\n"
            "try: main()\n"
            f"except SystemExit: print([os.environ.get(name) for name in {names}])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout == f"{values}\n"


def test_a_current_folder_that_is_gone_is_said(folder: Path) -> None:
    (folder / "gone").mkdir()
    command = f"rmdir ../gone; {shlex.join(PROGRAM)} init {folder / 'films.csv'} -o films.yaml"
    gone = subprocess.run(["bash", "-c", command], cwd=folder / "gone", capture_output=True, text=True)
    assert gone.stderr == "the current folder does not exist any more; change to one that does (cd)\n"
    assert gone.returncode == 2


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("a: wrong", "b: wrong"), 2, "a: wrong\nb: wrong\n"),
        (FailedError("it diverged", "lower it"), 1, "it diverged\nlower it\n"),
        (OSError(28, "No space left on device", b"caf\xe9"), 1, "caf\\udce9: No space left on device\n"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "a" * 40), 2, f"{'a' * 40}: File name too long\n"),
        (click.UsageError("no such option\x1b"), 2, "Error: no such option\\x1b\n"),
        (BrokenPipeError(), 1, ""),
        (SystemExit(143), 143, ""),
        (RuntimeError("a bug"), None, ""),
    ],
)
def test_what_an_error_means(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int | None, message: str
) -> None:
    assert process.exit_code(error) == code
    assert capsys.readouterr().err == message


def test_a_null_character_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["feat2vec", "init", "films.csv", "-o", "a\0b"])
    monkeypatch.setattr(cli, "open_closed_streams", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "'a\\x00b': has a null character, which no path or value has; remove it\n"


@pytest.mark.usefixtures("sigint_as_in_a_terminal")
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


def test_the_choices_of_a_missing_option_stand_on_one_line(tmp_path: Path) -> None:
    done = feat2vec("export", tmp_path, "--out", "vectors", code=2)
    choices = "faiss, npz, parquet, projector, saved_model, sql, word2vec"
    assert done.stderr.endswith(f"Error: Missing option '--format'. Choose from: {choices}\n")


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
    assert [line.split(":")[0].split(" ")[0] for line in told[0]] == ["4", "director", "cast", "score", "no", "epoch"]
    assert told[1:] == [[], [], []]


@pytest.mark.slow
def test_what_tensorflow_can_do_without_is_imported_only_by_those_who_use_it() -> None:
    code = """
import sys
from feat2vec.cli.process import OPTIONAL_PACKAGES, import_tensorflow
import_tensorflow()
import feat2vec.training.train, keras
assert not [name for name in OPTIONAL_PACKAGES if name in sys.modules]
import pandas, sklearn.linear_model
assert pandas.DataFrame({"a": [1]}).a[0] == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_are_no_garbage() -> None:
    frozen = gc.get_freeze_count()
    collections = gc.get_stats()[0]["collections"]
    try:
        with process.without_collection():
            kept = [[i] for i in range(50_000)]
            assert gc.get_stats()[0]["collections"] == collections
        assert gc.isenabled()
        assert gc.get_freeze_count() >= frozen + len(kept)
    finally:
        gc.unfreeze()


def test_imports_of_tensorflow_are_quiet_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text("import os, tensorflow\nos.write(2, b'keras')\n")
    (tmp_path / "tensorflow.py").write_text(
        "import logging, os, types\nos.write(2, b'oneDNN')\n"
        "config = types.SimpleNamespace(list_physical_devices=lambda: os.write(2, b'no CUDA'))\n"
        "def get_logger(): return logging.getLogger('tensorflow')\n"
    )
    code = """
import logging, sys
from feat2vec.cli.process import quiet_imports
quiet_imports()
sys.path.insert(0, sys.argv[1])
import keras
logging.getLogger("tensorflow").warning("5 out of the last 11 calls triggered retracing")
print(keras.__name__, keras.tensorflow.__file__ == sys.argv[1] + "/tensorflow.py")
print("told", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("keras True\n", "told\n")
