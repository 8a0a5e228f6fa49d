"""What the commands share: how they speak, what they ask for, and TensorFlow without its chatter."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from feat2vec.errors import FailedError, UserError, writing
from feat2vec.terminal import message_lines, printable, shortened

if TYPE_CHECKING:
    from feat2vec.run import Run


def say(line: str, *, error: bool = False, end: str = "\n") -> None:
    """Print a line: what a terminal would obey, and what its encoding cannot express, is escaped.

    A line for standard error is shortened; one for standard output may be what another program reads.
    """
    line = shortened(printable(line)) if error else printable(line)
    encoding = getattr(sys.stderr if error else sys.stdout, "encoding", None) or "utf-8"
    line = line.encode(encoding, "backslashreplace").decode(encoding)
    with writing(f"standard {'error' if error else 'output'}", "make room, or choose another place"):
        click.echo(line, err=error, nl=end != "")


TERMINATED = 128 + 15  # the exit code after SIGTERM
DEEPEST = 16  # lists and objects in one another in a row of JSON


def say_text(text: str, *, error: bool = False) -> None:
    """Print lines, in which names that come from a table are `printable` already: theirs may hold line breaks."""
    for line in text.removesuffix("\n").split("\n"):
        say(line, error=error)


def name_on_a_line(name: str) -> str:
    """A name or a value as a table on standard output shows it."""
    return shortened(printable(name))


def say_problems(problems: Sequence[str]) -> None:
    """Print what is wrong; a standard error that cannot be written to is no reason to fail in another way."""
    with suppress(OSError):
        for line in message_lines(problems):
            say(line, error=True)


def exit_code(error: BaseException, noted: Sequence[int] = ()) -> int | None:
    """Say what an error means, and return the code to exit with; None for a bug, whose traceback tells more.

    `noted` are the signals that have come. Libraries turn what they raise into errors of their own.
    """
    if signal.SIGTERM in noted:
        return TERMINATED
    if isinstance(error, SystemExit | click.exceptions.Exit):
        code = error.code if isinstance(error, SystemExit) else error.exit_code
        return code if isinstance(code, int) else 0
    if signal.SIGINT in noted or isinstance(error, KeyboardInterrupt | click.Abort):
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
        return 2 if isinstance(error, UserError) else 1
    if isinstance(error, OSError):
        if not isinstance(error, BrokenPipeError):  # `feat2vec init DATA | head` has seen enough
            say_problems([f"{os.fsdecode(error.filename or 'feat2vec')}: {error.strerror or error}"])
        return 1
    return None


def _usage(error: click.ClickException) -> list[str]:
    """What click says of wrong words: the usage, where help is, what is wrong."""
    lines = [f"Error: {error.format_message()}"]
    context = getattr(error, "ctx", None)
    if context is not None:
        lines = [*context.get_usage().splitlines()[:2], f"Try '{context.command_path} --help' for help.", *lines]
    return lines


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


def drop_output() -> None:
    """Lose what is still to be written, where it cannot be: the interpreter would try again and print a traceback."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """The signals that come, Ctrl-C and SIGTERM, each of which is raised; an ignored Ctrl-C (`nohup`) stays so."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        if number == signal.SIGTERM:
            sys.exit(TERMINATED)  # as an error, so that folders are cleaned up
        signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)
    try:
        yield noted
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)


OPTIONAL = ("sklearn", "pandas")  # what Keras and TensorFlow import if they can: 86 MB, 0.7 seconds


@contextmanager
def _without_optional_packages() -> Iterator[None]:
    """Within it the import of packages that TensorFlow can do without fails; they can be imported after that."""
    hidden = [name for name in OPTIONAL if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: as if it were not installed
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def import_tensorflow() -> None:
    """Import TensorFlow and Keras, for a command.

    Their libraries write of the processor and of missing devices to standard error; nobody asked.
    """
    sys.stderr.flush()
    errors, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        with _without_optional_packages():
            import keras  # noqa: F401
            import tensorflow as tf

        tf.config.list_physical_devices()
    finally:
        os.dup2(errors, 2)
        os.close(errors)
        os.close(nothing)


@contextmanager
def interruptible(out: Path) -> Iterator[None]:
    """Training; one that is interrupted says whether it can go on."""
    from feat2vec.writing import CHECKPOINT, partial_folder

    try:
        yield
    except KeyboardInterrupt:
        if (partial_folder(out) / CHECKPOINT).exists():
            say("the checkpoint is kept: --resume goes on with it", error=True)
        raise


def trained(run: Run, out: Path, quiet: bool) -> None:
    """Say what training has left."""
    if not quiet:
        metrics = run.metrics
        say(f"{out}: {metrics['parameters']:,} weights, {metrics['seconds']:.1f} s, loss {metrics['loss']:.4f}")


def names(given: str | None) -> list[str] | None:
    """Groups with commas between them."""
    return None if given is None else [name.strip() for name in given.split(",")]


def json_row(option: str, text: str) -> dict[str, object]:
    """Read a row that is given as columns and values."""
    try:
        row = json.loads(text)
        if _depth(row) > DEEPEST:
            raise RecursionError
        json.dumps(row, ensure_ascii=False).encode()  # half of a surrogate pair has no encoding
    except RecursionError:
        raise UserError(f"{option}: is nested too deeply: a value is text, a number, true, false or a list") from None
    except UnicodeEncodeError:
        raise UserError(f"{option}: holds half of a surrogate pair, which is no text; received {text[:60]!r}") from None
    except ValueError as error:
        raise UserError(f"{option}: is no JSON ({error!s:.80}); received {text[:60]!r}") from None
    if not isinstance(row, dict):
        raise UserError(f'{option}: expected columns and values, such as {{"year": 1985}}; received {text[:60]!r}')
    return row


def _depth(value: object) -> int:
    """How many lists and objects are around the innermost value."""
    depth, level = 0, [value]
    while level:
        inside: list[object] = []
        for outer in level:
            inside += outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else []
        depth, level = depth + 1, inside
    return depth - 1
