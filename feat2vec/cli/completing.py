"""complete: what a row lacks, and a table with its missing values filled in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from feat2vec.cli.console import json_row, name_on_a_line, say
from feat2vec.cli.process import import_tensorflow
from feat2vec.errors import UserError, listed

if TYPE_CHECKING:
    from feat2vec.run import Run
    from feat2vec.space.completion import Completed

SHOWN_VALUES = 5
AT_LEAST = 0.5


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--row", metavar="JSON", help="A row, columns to values; those that are left out are missing.")
@click.option("--data", help="A table whose missing values are filled in.")
@click.option("--group", "groups", multiple=True, help="Complete this group; may be given again. Default: all missing.")
@click.option("-n", "count", type=click.IntRange(min=1), help=f"--row: how many values; default: {SHOWN_VALUES}.")
@click.option("--out", type=click.Path(path_type=Path), help="--data: the Parquet file that is written.")
@click.option("--at-least", type=float, help=f"--data: the least probability; default: {AT_LEAST}.")
@click.option("--force", is_flag=True, help="--data: replace the file if it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each group, or one for the table.")
def complete(
    run: Path,
    row: str | None,
    data: str | None,
    groups: tuple[str, ...],
    count: int | None,
    out: Path | None,
    at_least: float | None,
    force: bool,
    as_json: bool,
) -> None:
    """What rows lack: the most probable values of a group, found by all that is known of the row.

    A probability is that of the value among all that training has seen, for an item of a list that the list holds it.
    Of numbers the mean and the quantiles 10, 50 and 90 % are told. With --data the missing values of a table are
    filled in, each with its probability beside it (director, director_probability); a number with its mean, and the
    probability that the true one is among the fifth of the training numbers around it.

    \b
    feat2vec complete runs/films --row '{"cast": ["Sandrine Bonnaire"], "year": 1985}' --group director
    feat2vec complete runs/films --data films.parquet --out filled.parquet --at-least 0.8 --group director --group genre
    """
    _check_options(row, data, count, out, at_least, force)
    from feat2vec.run import load

    if row is not None:
        _complete_row(load(run), json_row("--row", row), groups, count or SHOWN_VALUES, as_json=as_json)
        return
    assert data is not None
    assert out is not None
    opened = load(run)
    if not opened.reads_lookups():
        import_tensorflow()
    counts = opened.fill(data, out, groups or None, at_least=AT_LEAST if at_least is None else at_least, force=force)
    if as_json:
        say(json.dumps(vars(counts)))
        return
    for column, missing in counts.missing.items():
        say(f"{name_on_a_line(column)}: {counts.filled[column]:,} of {missing:,} missing values filled in")
    if counts.left_out:
        say(f"left out, as they cannot be written to Parquet: {listed(counts.left_out)}")
    say(f"{out}: {counts.rows:,} rows")


def _check_options(
    row: str | None, data: str | None, count: int | None, out: Path | None, at_least: float | None, force: bool
) -> None:
    """Raise unless there is either a row or a table, with the options of that alone."""
    if row is None and data is None:
        raise UserError("complete: give a row by --row, or a table by --data")
    if row is not None and data is not None:
        raise UserError("complete: give a row by --row, or a table by --data; not both")
    if row is not None:
        for option, is_given in (("--out", out), ("--at-least", at_least is not None), ("--force", force)):
            if is_given:
                raise UserError(f"{option}: is for --data; remove it")
    if data is not None and out is None:
        raise UserError("--out: name the Parquet file that the filled table is written to")
    if data is not None and count is not None:
        raise UserError("-n: is for --row; remove it")


def _complete_row(run: Run, row: dict[str, object], groups: tuple[str, ...], count: int, *, as_json: bool) -> None:
    """Print what a row lacks of each group."""
    from feat2vec.space.completer import check_completed_group

    known = {column for column, value in row.items() if value is not None}
    missing = [name for name, group in run.schema.groups.items() if not known & set(group.columns)]
    if not groups and not missing:
        raise UserError("--group: the row has a value of every group; name the one to complete")
    for name in groups:
        check_completed_group(run.schema, name)
    names = list(groups) or missing
    present = [name for name, group in run.schema.groups.items() if known & set(group.columns)]
    if not present or not run.reads_lookups([*present, *names]):
        import_tensorflow()
    for name in names:
        (completed,) = run.complete(row, name, count)
        if as_json:
            say(json.dumps(completed.facts()))
        else:
            _say_completed(completed, with_name=len(names) > 1)
        if not completed.is_calibrated:
            reason = "training held out too few of its values to check them"
            say(f"the probabilities of {name!r} may be too sure: {reason}", error=True)


def _say_completed(completed: Completed, *, with_name: bool) -> None:
    if with_name:
        say(f"{name_on_a_line(completed.group)}:")
    for column, guess in completed.numbers.items():
        quantiles = ", ".join(f"{share} % {_number_text(number)}" for share, number in guess.quantiles.items())
        say(f"{name_on_a_line(column)}: mean {_number_text(guess.mean)}; quantiles {quantiles}")
    say("probability  value")
    for value, probability in completed.values:
        say(f"{probability:11.4f}  {name_on_a_line(value)}")


def _number_text(number: float | str) -> str:
    return number if isinstance(number, str) else f"{number:.6g}"
