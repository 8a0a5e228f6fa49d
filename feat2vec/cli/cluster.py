"""node: a worker or a parameter server of a training on many machines."""

from __future__ import annotations

import os

import click

from feat2vec.cli.console import say
from feat2vec.cli.process import import_tensorflow

LOOPBACK, ALL_HOSTS = "127.0.0.1", "0.0.0.0"

host_option = click.option(
    "--host",
    type=click.Choice([LOOPBACK, ALL_HOSTS]),
    default=LOOPBACK,
    show_default=True,
    help="Who may connect: this machine alone, or whoever reaches it, as in a private network.",
)


@click.command()
@host_option
@click.option("--attached", is_flag=True, help="End when standard input ends: for programs that start nodes.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
def node(host: str, attached: bool, quiet: bool) -> None:
    """Be a worker or a parameter server of a training on many machines, until a signal comes.

    The environment variable TF_CONFIG has the addresses of all processes, and says which of them this one is. The
    chief is `feat2vec train --cluster`. TensorFlow's servers trust whoever reaches them: use a private network.

    \b
    export TF_CONFIG='{"cluster": {"chief": ["localhost:7000"], "worker": ["localhost:7001"], "ps": ["localhost:7002"]},
      "task": {"type": "worker", "index": 0}}'
    feat2vec node
    feat2vec node --host 0.0.0.0
    """
    from feat2vec.cluster.addresses import NODES, VARIABLE, read_addresses

    any_host = host == ALL_HOSTS
    addresses = read_addresses(os.environ.get(VARIABLE), NODES, any_host=any_host)
    import_tensorflow()
    from feat2vec.cluster.node import run_node

    run_node(addresses, _say_nothing if quiet else say, any_host=any_host, attached=attached)


def _say_nothing(line: str) -> None:
    del line
