"""The command line: words to calls. Nothing is imported before the command that needs it."""

from __future__ import annotations

import os
import signal
import sys

import click

from feat2vec.cli.console import say, say_problems
from feat2vec.cli.explore import explore
from feat2vec.cli.measuring import evaluate, explain, report
from feat2vec.cli.tables import check, init
from feat2vec.cli.training import finetune, run, train, tune
from feat2vec.cli.vectors import embed, export, predict, similar
from feat2vec.errors import FailedError, UserError


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        """In the order in which they are used."""
        del context
        return list(self.commands)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="feat2vec")
def feat2vec() -> None:
    """One vector space for every column of a table.

    \b
    feat2vec init films.parquet -o films.yaml
    feat2vec check films.yaml --data films.parquet
    """


COMMANDS = (
    init,
    check,
    train,
    run,
    tune,
    finetune,
    evaluate,
    predict,
    embed,
    similar,
    export,
    explain,
    report,
    explore,
)
for command in COMMANDS:
    feat2vec.add_command(command)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 the user's mistake."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an error, so that folders are cleaned up
    try:
        feat2vec(standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        say_problems(error)
        sys.exit(2)
    except FailedError as error:
        say_problems(error)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted", error=True)
        sys.exit(130)
    except BrokenPipeError:  # `feat2vec init DATA | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        say(f"{error.filename or 'feat2vec'}: {error.strerror or error}", error=True)
        sys.exit(1)
