"""node: a worker or a parameter server of a training on many machines; the options of `train` for its chief."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from feat2vec.cli.console import say
from feat2vec.cli.process import import_tensorflow

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from feat2vec.cluster.addresses import Addresses

Command = TypeVar("Command", bound=Callable[..., None])

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


class ClusterOptions(TypedDict):
    """The options of `train` that say on which cluster."""

    cluster: bool
    local_cluster: str | None
    sync: bool
    host: str


def cluster_options(command: Command) -> Command:
    """Add the `ClusterOptions` to a command."""
    options = (
        click.option("--cluster", is_flag=True, help="Be the chief of the cluster that TF_CONFIG names."),
        click.option(
            "--local-cluster", metavar="WxP", help="Start W workers and P servers on this machine, for a try."
        ),
        click.option(
            "--sync", is_flag=True, help="On a cluster: one step after the other, as one process computes them."
        ),
        host_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def chosen_cluster(**options: Unpack[ClusterOptions]) -> Iterator[Addresses | None]:
    """The cluster that options ask for, None without one; its processes on this machine end with the context.

    Args:
        **options: The options.

    Raises:
        UserError: TF_CONFIG or the size of the cluster is wrong.
        click.UsageError: Options contradict each other.

    """
    is_asked = options["cluster"] or options["local_cluster"] is not None
    if options["cluster"] and options["local_cluster"] is not None:
        raise click.UsageError("--local-cluster starts a cluster, --cluster has one already; remove one of them.")
    if not is_asked and (options["sync"] or options["host"] != LOOPBACK):
        option = "--sync" if options["sync"] else "--host"
        raise click.UsageError(f"{option} is for a training on a cluster; add --cluster or --local-cluster.")
    if not is_asked:
        yield None
        return
    from feat2vec.cluster.addresses import CHIEF, VARIABLE, read_addresses
    from feat2vec.cluster.local_cluster import cluster_size, local_cluster

    if options["local_cluster"] is None:
        yield read_addresses(os.environ.get(VARIABLE), (CHIEF,), any_host=options["host"] == ALL_HOSTS)
        return
    if options["host"] != LOOPBACK:
        raise click.UsageError("--local-cluster is on this machine alone; remove --host.")
    with local_cluster(cluster_size(options["local_cluster"])) as addresses:
        yield addresses
