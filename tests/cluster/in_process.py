"""A cluster whose servers are threads of this process: `python -m tests.cluster.in_process OUT CASE ...`.

TensorFlow's context is a cluster's from then on, so that it has a process of its own. For each case it trains in this
process and on the cluster, and prints what came of it as one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

THREADS = {"TF_NUM_INTEROP_THREADS": "8", "TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
LEAST_BYTES = 64  # so that tables of a few rows are divided, too


def trained(out: Path, cases: Sequence[str], *options: str, seconds: float = 100) -> dict[str, Any]:
    """What training these cases gives, in a process of its own."""
    command = [sys.executable, "-m", "tests.cluster.in_process", str(out), *cases, *options]
    environment = {**os.environ, **THREADS, "TF_CPP_MIN_LOG_LEVEL": "3"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=seconds, cwd=root)
    assert not done.returncode, done.stderr[-4000:]
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def start_servers(workers: int, servers: int) -> dict[str, list[str]]:
    """Start workers and parameter servers in this process; return their addresses."""
    import socket

    import tensorflow as tf

    sockets = [socket.socket() for _ in range(workers + servers)]
    for probe in sockets:
        probe.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{probe.getsockname()[1]}" for probe in sockets]
    for probe in sockets:
        probe.close()
    jobs = {"worker": addresses[:workers], "ps": addresses[workers:]}
    spec = tf.train.ClusterSpec(jobs)
    KEPT.extend(
        tf.distribute.Server(spec, job_name=kind, task_index=i, protocol="grpc")
        for kind in jobs
        for i in range(len(jobs[kind]))
    )
    return jobs


TABLES: dict[str, Any] = {}  # the folder of encoded rows that workers read, if there is one
KEPT: list[Any] = []  # the servers, for as long as the process lives


def differences(local: Any, cluster: Any) -> dict[str, float]:
    """Of each weight the largest difference of two runs' models, as a share of its largest number."""
    import numpy as np

    shares = {}
    for ours, theirs in zip(local.model.weights, cluster.model.weights, strict=True):
        largest = float(np.abs(ours.numpy()).max(initial=1e-3))
        shares[ours.path] = float(np.abs(ours.numpy() - theirs.numpy()).max(initial=0)) / largest
    return shares


def completion_of(folder: Path) -> Any:
    """The numbers by which a run completes rows; None if it has none."""
    path = folder / "completion.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def trained_twice(out: Path, case: str, fitting: Any, *, encoded: bool = False) -> tuple[Any, Any]:
    """The runs of a training in this process, and of one on the cluster, whose workers read a folder if `encoded`."""
    from feat2vec.run import chosen_functions, load
    from feat2vec.schema.reading import read_schema
    from feat2vec.training.learning import TrainingRequest
    from feat2vec.training.train import train_into
    from tests.cluster.cases import CASES, WITH_GRAPHS, table
    from tests.cluster.folders import encoded_table
    from tests.short_trainings import functions_without_graphs

    request = TrainingRequest(read_schema(CASES[case]), quiet=True, on_chosen=chosen_functions())
    with nullcontext() if case in WITH_GRAPHS else functions_without_graphs():
        train_into(out / case, request, table())
    rows: Any = table()
    if encoded:
        rows = TABLES["folder"] = encoded_table(out / f"{case} encoded", CASES[case], table())
    train_into(out / f"{case} on a cluster", replace(request, fitting=fitting), rows)
    return load(out / case), load(out / f"{case} on a cluster")


def finetuned_twice(out: Path, case: str, fitting: Any) -> tuple[Any, Any]:
    """The runs of a fine-tuning in this process, and of one on the cluster, of the same run."""
    from feat2vec.run import load
    from feat2vec.schema.reading import read_schema
    from feat2vec.table.table import open_table
    from feat2vec.training.fine_tuning import schema_of
    from feat2vec.training.learning import TrainingRequest
    from feat2vec.training.train import train_into
    from feat2vec.training.warm_start import WarmStart
    from tests.cluster.cases import CASES, table
    from tests.short_trainings import functions_without_graphs

    with functions_without_graphs():
        train_into(out / case, TrainingRequest(read_schema(CASES[case]), quiet=True), table())
    start = load(out / case)
    settings = ["training.epochs=3", "training.batch_size=64", "head.hidden=[8]"]
    schema = schema_of(start.schema, open_table(table()), "good", settings=settings)
    request = TrainingRequest(schema, quiet=True, start=WarmStart(start))
    assert start.model.built  # read here, in this process
    with functions_without_graphs():
        train_into(out / "tuned", request, table())
    train_into(out / "tuned on a cluster", replace(request, fitting=fitting), table())
    return load(out / "tuned"), load(out / "tuned on a cluster")


def resumed_twice(out: Path, case: str, fitting: Any) -> tuple[Any, Any]:
    """The run of a training in this process, and of one that went on from there on the cluster, and here again."""
    from feat2vec.run import load
    from feat2vec.schema.reading import read_schema
    from feat2vec.training.fitting import Fitting
    from feat2vec.training.learning import TrainingRequest
    from feat2vec.training.train import train_into
    from tests.cluster.cases import CASES, WITH_GRAPHS, table
    from tests.short_trainings import functions_without_graphs
    from tests.training.callbacks import StopAt, StopError

    settings = ["training.checkpoint_minutes=1e-9", "training.batch_size=16"]  # 25 steps, two executions an epoch
    request = TrainingRequest(read_schema(CASES[case], settings=settings), quiet=True)
    local = nullcontext if case in WITH_GRAPHS else functions_without_graphs
    with local():
        train_into(out / case, request, table())
    stopped = 0
    place = out / f"{case} resumed"
    for number, (kind, stops) in enumerate([(Fitting, [StopAt(1)]), (fitting, [StopAt(2)]), (Fitting, [])]):
        part = replace(request, resume=number > 0, fitting=kind, callbacks=tuple(stops))
        with local() if kind is Fitting else nullcontext():
            try:
                train_into(place, part, table())
            except StopError:
                stopped += 1
    assert stopped == 2
    return load(out / case), load(place)


def divided(fitting: Any, rows: Any) -> dict[str, Any]:
    """Of a training on the cluster each variable's shape, and the shapes of its parts with their servers."""
    from feat2vec.cluster.load import lookup_shares
    from feat2vec.model.optimizers.tables import parts_of, resource_of

    model = fitting.model
    variables = [*model.variables, *model.posterior_variables, *fitting.checkpointing.optimizer_variables]
    shapes: dict[str, Any] = {}
    for variable in variables:
        places = [(list(part.shape), resource_of(part).device) for part in parts_of(variable)]
        shapes[f"{len(shapes)} {variable.name}"] = {"shape": list(variable.shape), "parts": places}
    shares = lookup_shares(fitting.model, rows, fitting.servers).tolist()
    return {"variables": shapes, "bytes": fitting.servers.bytes, "shares": shares}


def main(arguments: Sequence[str]) -> None:
    out, cases = Path(arguments[0]), [argument for argument in arguments[1:] if not argument.startswith("--")]
    from feat2vec.cli.console import say
    from feat2vec.cluster.cluster_fitting import ClusterFitting
    from feat2vec.cluster.connection import Connection

    is_sync = "--async" not in arguments
    connection = Connection(start_servers(1 if is_sync else 2, 2))
    fittings: list[dict[str, Any]] = []

    def fitting(*positional: Any, **named: Any) -> ClusterFitting:
        new = ClusterFitting(
            *positional,
            **named,
            connection=connection,
            sync=is_sync,
            table=TABLES.get("folder"),
            least_bytes=LEAST_BYTES,
        )
        fittings.append(divided(new, positional[0]))
        return new

    results: dict[str, Any] = {}
    for case in cases:
        train: Any = partial(trained_twice, encoded="--encoded" in arguments)
        if "--resumed" in arguments:
            train = resumed_twice
        if "--finetuned" in arguments:
            train = finetuned_twice
        local, cluster = train(out, case, fitting)
        results[case] = {
            "differences": differences(local, cluster),
            "losses": [[row["loss"] for row in run.history] for run in (local, cluster)],
            "metrics": [dict(run.metrics) for run in (local, cluster)],
            "divided": fittings[-1],
            "completion": [completion_of(run.folder) for run in (local, cluster)],
        }
        say(f"{case}: {max(results[case]['differences'].values())} {results[case]['losses']}", error=True)
    say(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
