"""The command line: options to calls of the rooms above. A command imports what it needs when it runs.

In: the words after `feat2vec`. Out: calls of the rooms above, text on the terminal, an exit code.
Open `training.py` first.
"""

from __future__ import annotations

import os
import sys
from traceback import print_exc

import click

from feat2vec.cli.cluster import node
from feat2vec.cli.completing import complete
from feat2vec.cli.explore import explore
from feat2vec.cli.measuring import compare, evaluate, explain, report
from feat2vec.cli.process import (
    drop_output,
    exit_code,
    has_cluster,
    leave,
    noted_signals,
    open_closed_streams,
    quiet_imports,
    refuse_null_characters,
    refuse_removed_folder,
)
from feat2vec.cli.tables import check, encode, init, split
from feat2vec.cli.training import finetune, run, train, tune
from feat2vec.cli.vectors import embed, export, predict, similar
from feat2vec.errors import naming_options

# What libraries read when they are loaded. The threads of NumPy's matrix products spin until they get work, for 2^26
# cycles by default: between the products of a fit that is as much processor time as all else takes. 2^4 is the least.
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "OPENBLAS_THREAD_TIMEOUT": "4"}
# The products of what is fitted after training are so small that threads take more time together, and no less by the
# clock. The steps are TensorFlow's, which has threads of its own.
ENVIRONMENT_OF_TRAINING = {"OPENBLAS_NUM_THREADS": "1"}


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        """In the order in which they are used."""
        del context
        return list(self.commands)

    def invoke(self, context: click.Context) -> object:
        """A command that is interrupted; click itself would print an empty line."""
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            raise click.Abort() from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="feat2vec")
def feat2vec() -> None:
    """One vector space for every column of a table.

    \b
    feat2vec init films.parquet -o films.yaml
    feat2vec check films.yaml --data films.parquet
    """
    refuse_removed_folder()


COMMANDS = (
    split,
    init,
    check,
    encode,
    train,
    node,
    run,
    tune,
    finetune,
    evaluate,
    compare,
    predict,
    complete,
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
    of_command = ENVIRONMENT_OF_TRAINING if sys.argv[1:2] in (["train"], ["finetune"]) else {}
    for name, value in {**ENVIRONMENT, **of_command}.items():
        os.environ.setdefault(name, value)
    open_closed_streams()
    quiet_imports()
    with noted_signals() as signals:
        try:
            refuse_null_characters(sys.argv)
            with naming_options():
                feat2vec(standalone_mode=False)
            sys.stdout.flush()
            if has_cluster():
                leave(0)
        except BaseException as error:
            code = exit_code(error, signals)
            drop_output()
            if code is None and not has_cluster():
                raise
            if code is None:
                print_exc()
            leave(1 if code is None else code)
