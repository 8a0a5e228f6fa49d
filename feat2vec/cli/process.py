"""TensorFlow is imported by the commands that need it, without its messages."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import NoReturn

import click

from feat2vec.cli.console import say, say_problems
from feat2vec.errors import RESTART_STATUS, FailedError, RestartError, UserError

OPTIONAL_PACKAGES = ("sklearn", "pandas", "scipy")  # what Keras and TensorFlow import if they can: 90 MB, 0.9 seconds


@contextmanager
def _without_optional_packages() -> Iterator[None]:
    """Within it the import of packages that TensorFlow can do without fails; they can be imported after that."""
    hidden = [name for name in OPTIONAL_PACKAGES if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: as if it were not installed
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextmanager
def without_collection() -> Iterator[None]:
    """Within it no garbage is looked for, and what is there at its end is not looked at again: modules stay.

    Some 400,000 objects of TensorFlow would be walked through several times while it is imported, and each time that a
    training frees its graph.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def _without_standard_error() -> Iterator[None]:
    """Within it what libraries write to standard error is dropped."""
    sys.stderr.flush()
    standard_error, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(null)


def import_tensorflow() -> None:
    """Import TensorFlow and Keras, for a command.

    Their libraries write messages about the processor and about missing devices to standard error; these are dropped.
    """
    with _without_standard_error(), without_collection():
        with _without_optional_packages():
            import keras  # noqa: F401
            import tensorflow as tf

        _keep_quiet(tf)


def _keep_quiet(tensorflow: ModuleType) -> None:
    """Let TensorFlow look for devices, which writes messages, and say no more than errors from then on."""
    tensorflow.config.list_physical_devices()
    tensorflow.get_logger().setLevel("ERROR")


class _QuietImports(MetaPathFinder):
    """Finds TensorFlow and Keras for whatever imports them first, as `import_tensorflow` imports them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ("keras", "tensorflow"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_quietly(module: ModuleType) -> None:
            with _without_standard_error(), without_collection():
                with _without_optional_packages():
                    execute(module)
                if fullname == "tensorflow":
                    _keep_quiet(module)

        spec.loader.exec_module = execute_quietly  # type: ignore[method-assign]
        return spec


def quiet_imports() -> None:
    """Keep the messages of TensorFlow's libraries off the terminal, also where a run imports it late."""
    if not any(isinstance(finder, _QuietImports) for finder in sys.meta_path):
        sys.meta_path.insert(0, _QuietImports())


TERMINATED = 128 + 15  # the exit code after SIGTERM


def exit_code(error: BaseException, signals: Sequence[int] = ()) -> int | None:
    """Print what an error means, and return the exit code; None for a bug, whose traceback says more.

    `signals` are those that have come (see `noted_signals`): a library may raise an error of its own for them.
    """
    if signal.SIGTERM in signals:
        return TERMINATED
    if isinstance(error, SystemExit | click.exceptions.Exit):
        code = error.code if isinstance(error, SystemExit) else error.exit_code
        return code if isinstance(code, int) else 0
    if signal.SIGINT in signals or isinstance(error, KeyboardInterrupt | click.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would be a traceback of the interpreter's end
        if sys.stderr.isatty():
            say("", error=True)  # below the terminal's ^C
        say_problems(["interrupted"])
        return 130
    if isinstance(error, click.ClickException):
        say_problems(_usage(error))
        return error.exit_code
    if isinstance(error, UserError | FailedError):
        say_problems(error.problems)
        if isinstance(error, RestartError):
            return RESTART_STATUS
        return 2 if isinstance(error, UserError) else 1
    if isinstance(error, OSError):
        if not isinstance(error, BrokenPipeError):  # `feat2vec init DATA | head` has seen enough
            say_problems([f"{os.fsdecode(error.filename or 'feat2vec')}: {error.strerror or error}"])
        return 2 if error.errno == errno.ENAMETOOLONG else 1  # only the user gives names
    return None


def _usage(error: click.ClickException) -> list[str]:
    """The message of a wrong command line: the usage, where help is, what is wrong."""
    message = error.format_message()
    if isinstance(error, click.MissingParameter):  # click puts each choice on a line; nothing of it is the user's text
        message = " ".join(message.split())
    lines = [f"Error: {message}"]
    context = getattr(error, "ctx", None)
    if context is not None:
        lines = [*context.get_usage().splitlines()[:2], f"Try '{context.command_path} --help' for help.", *lines]
    return lines


def has_cluster() -> bool:
    """Whether this process is the chief of a cluster."""
    connection = sys.modules.get("feat2vec.cluster.connection")
    return connection is not None and bool(connection.Connection.is_made)


def leave(code: int) -> NoReturn:
    """End the process.

    TensorFlow waits for the nodes of a cluster when the interpreter ends, also for those that are gone: the chief of
    one ends without that.
    """
    if not has_cluster():
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def open_closed_streams() -> None:
    """Give each standard stream that is closed (`2>&-`) a place where its text is lost.

    Else the next file that is opened takes its number, and a library's messages are written into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            mode = os.O_RDONLY if number == 0 else os.O_WRONLY
            opened = os.open(os.devnull, mode)  # the lowest free number, which is this one
            setattr(sys, name, os.fdopen(opened, "r" if number == 0 else "w", encoding="utf-8"))


def refuse_removed_folder() -> None:
    """Raise if the current folder is gone, such as a terminal's after `rm -r`: no relative path leads anywhere."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the current folder does not exist any more; change to one that does (cd)") from None


def refuse_null_characters(words: Sequence[str]) -> None:
    """Raise for a word with a null character, which no path has; only a program can give one."""
    for word in words:
        if "\0" in word:
            raise UserError(f"{word!r}: has a null character, which no path or value has; remove it")


def drop_output() -> None:
    """Lose what is still to be written, where it cannot be: the interpreter would try again and print a traceback."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Collect the signals that come, Ctrl-C and SIGTERM, each of which is raised.

    A Ctrl-C that is ignored (`nohup`) stays so.
    """
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        if number == signal.SIGTERM:
            sys.exit(TERMINATED)  # as an error, so that folders are cleaned up
        signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)
    try:
        yield signals
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
