"""What the commands share: how they speak, what they ask for, and TensorFlow without its chatter."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from feat2vec.errors import UserError

if TYPE_CHECKING:
    from feat2vec.run import Run


def say(text: str, *, error: bool = False, end: str = "\n") -> None:
    """Print text; what no encoding can express, such as a file's name of stray bytes, is escaped."""
    click.echo(text.encode("utf-8", "backslashreplace").decode(), err=error, nl=end != "")


MOST_LINES, MOST_SHOWN = 5, 30
DEEPEST = 16  # lists and objects in one another in a row of JSON


def say_problems(error: Exception) -> None:
    """Print what is wrong on at most five lines; what is over stands on the last of them."""
    lines = str(error).splitlines()
    if len(lines) > MOST_LINES:
        first, rest = lines[: MOST_LINES - 1], lines[MOST_LINES - 1 :]
        more = "" if len(rest) <= MOST_SHOWN else f" | and {len(rest) - MOST_SHOWN:,} more"
        lines = [*first, f"and {len(rest):,} more: {' | '.join(line.strip() for line in rest[:MOST_SHOWN])}{more}"]
    say("\n".join(lines), error=True)


def import_tensorflow() -> None:
    """TensorFlow's libraries write of the processor and of missing devices to standard error; nobody asked."""
    sys.stderr.flush()
    errors, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
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
