"""What this machine takes for a training's step, and for calls between TensorFlow's servers on loopback.

All but latencies are seconds of the processor, so that what runs beside does not change them much.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.optimize import nnls

from simulation.costs import CallCost, Costs
from simulation.loopback import loopback_bytes, processor_seconds, resident_bytes, server_processes

SECONDS = 1.5  # that a measurement lasts, at least
CHUNKS = 5  # the fastest says what the clock shows where nothing runs beside
POINTS = [(groups, rows, rank) for groups in (1, 8) for rows in (256, 4096) for rank in (8, 64)]
VALUES = 50_000  # of a measured group
STEPS = 32  # of an epoch that is measured
ID_BYTES = 16  # of a key in a step: its id, int32, in two tables, to read and to update


class Spent(NamedTuple):
    """Seconds of one call: on the clock in the fastest chunk, and of each job's processes on average."""

    wall: float
    chief: float
    worker: float
    server: float
    bytes: float  # that passed loopback


def timed(call: Callable[[int], None], processes: Mapping[str, int], seconds: float = SECONDS) -> Spent:
    """Call with a count of repetitions until they take so long, and return what one of them takes."""

    def clocks() -> npt.NDArray[np.float64]:
        spent = []
        for job in ("worker", "ps"):
            spent.append(sum(processor_seconds(id_) for name, id_ in processes.items() if name.split()[0] == job))
        return np.array([time.process_time(), *spent, loopback_bytes()])

    call(3)
    count, chunk = 8, seconds / CHUNKS
    while True:
        start = time.perf_counter()
        call(count)
        passed = time.perf_counter() - start
        if passed >= chunk:
            break
        count = int(count * min(8.0, 1.2 * chunk / passed)) + 1
    before, walls = clocks(), []
    for _ in range(CHUNKS):
        start = time.perf_counter()
        call(count)
        walls.append((time.perf_counter() - start) / count)
    chief, worker, server, size = ((clocks() - before) / (count * CHUNKS)).tolist()
    return Spent(min(walls), chief, worker, server, size)


def fitted(points: Sequence[tuple[int, int, int]], seconds: Sequence[float], *, by_size: bool = True) -> CallCost:
    """The costs of at least 0 that come nearest to the measured seconds, each measured in shares of itself.

    Without `by_size` they do not depend on keys and bytes.
    """
    rows = [[1.0, groups, groups * count, groups * count * rank * 4] for groups, count, rank in points]
    weights = 1 / np.maximum(seconds, 1e-9)
    design = np.array(rows) * weights[:, None]  # [points, 4]
    design[:, 2:] *= by_size
    scale = np.maximum(design.max(axis=0), 1e-30)
    costs, _ = nnls(design / scale, np.ones(len(points)))
    return CallCost(*(costs / scale).tolist())


# --- a step on one machine ------------------------------------------------------------------------------------------


def clicks(rows: int, groups: int, values: int, seed: int = 0) -> pa.Table:
    """A table of keys by Zipf's law, and a label."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, values + 1) ** -1.05
    columns: dict[str, Any] = {}
    for group in range(groups):
        columns[f"group_{group}"] = pa.array(rng.choice(values, rows, p=shares / shares.sum()).astype(np.int64))
    columns["label"] = pa.array((rng.random(rows) < 0.3).astype(np.int8))
    return pa.table(columns)


def schema(groups: int, rank: int, batch: int) -> dict[str, Any]:
    """A factorization machine of these columns: a vector of rank - 1 numbers, and a linear term."""
    return {
        "version": 1,
        "model": {"dim": rank - 1, "bias": True},
        "groups": {f"group_{group}": {"column": f"group_{group}"} for group in range(groups)},
        "objective": {"type": "logistic", "target": "label"},
        "training": {"epochs": 1, "batch_size": batch, "validation": 0, "optimizer": {"type": "adagrad"}},
    }


def local_step(
    groups: int, rank: int, batch: int, *, at_once: bool, is_ready: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """A step of a training in this process: seconds on the clock and of the processor, and distinct keys.

    One process reads all groups `at_once`, a worker of a cluster group by group. `is_ready` is called before what is
    measured, once the step's function is made.
    """
    from feat2vec.encode.encoder import fit
    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.schema.reading import read_schema

    table = clicks(batch * STEPS, groups, VALUES)
    encoded = fit(read_schema(schema(groups, rank, batch)), table)
    model = Feat2Vec.from_encoder(encoded.encoder)
    model.learn_from(encoded)
    batches = model.batches(encoded, groups_at_once=at_once)
    model.compile(steps_per_execution=batches.steps_at_once)
    data: dict[str, Any] = {"x": batches.dataset(endless=True), "steps_per_epoch": batches.steps, "verbose": 0}
    model.fit(epochs=1, **data)
    is_ready()
    spent = timed(lambda count: model.fit(epochs=count, **data), {})
    blocks = [column.to_numpy().reshape(STEPS, batch) for column in table.columns[:-1]]
    distinct = sum(len(np.unique(rows)) for block in blocks for rows in block) / STEPS
    return {
        "wall": spent.wall / batches.steps,
        "processor": spent.chief / batches.steps,
        "distinct": distinct / groups,
    }


# --- tables, here and on a server -----------------------------------------------------------------------------------


class Tables(NamedTuple):
    """The vectors and linear terms of a group, and their slots."""

    vectors: Any  # [values, rank - 1]
    terms: Any  # [values, 1]
    vector_slots: Any
    term_slots: Any

    @classmethod
    def new(cls, rank: int) -> Tables:
        """Tables of ones."""
        import tensorflow as tf

        return cls(*(tf.Variable(tf.ones([VALUES, size])) for size in (rank - 1, 1) * 2))


PIECE = [np.zeros(size, np.int64) for size in (2, 2, 2, 1, 2, 1)]  # of work: about what says which rows a worker reads


STEPS_OF_PIECE = 8  # that a worker makes of what the chief hands it at once
COUNTERS = 4  # numbers that each step changes: its own, the loss and its weight, the step that failed


def rows_function(
    groups: Sequence[Tables], counters: Sequence[Any], count: int, *, writes: bool, steps: int = 1
) -> Callable[..., Any]:
    """A function of steps that read the rows of `count` distinct keys of each group, and update them by Adagrad.

    It does so as a training does: rows are updated where they are, if the loss is finite; slots do not travel.
    """
    import tensorflow as tf

    from feat2vec.model.optimizers.adagrad import adagrad_rows

    size = VALUES // count

    def update(updates: Sequence[tuple[Any, Any, Any]]) -> bool:
        for table, slots, gradient in updates:
            with tf.device(table.device):
                adagrad_rows(table, slots, gradient, 0.01)
        return True

    def step(place: Any, total: Any) -> Any:
        updates = []
        for counter in counters:
            total += 0 * counter.assign_add(1.0)
        for group in groups:
            for table, slots in ((group.vectors, group.vector_slots), (group.terms, group.term_slots)):
                ids = tf.range(count) * size + tf.random.uniform([count], 0, size, tf.int32)  # [count], distinct
                rows = tf.gather(table, ids)  # [count, rank - 1] or [count, 1]
                total += tf.reduce_sum(rows[:, 0])
                updates.append((table, slots, tf.IndexedSlices(rows * 1e-3, ids)))
        if writes:
            tf.cond(tf.math.is_finite(total), lambda: update(updates), lambda: False)
        return place + 1, total

    @tf.function  # type: ignore[untyped-decorator]
    def of_piece(*piece: Any) -> Any:
        total = tf.cast(sum(tf.reduce_sum(part) for part in piece), tf.float32)
        begin = (tf.constant(0), total)
        _, total = tf.while_loop(lambda place, _: place < steps, step, begin, parallel_iterations=1)
        return total

    return of_piece  # type: ignore[no-any-return]


def tables_here(groups: int, count: int, rank: int) -> float:
    """Processor seconds of a step of tables that this process holds."""
    function = rows_function([Tables.new(rank) for _ in range(groups)], [], count, writes=True)

    def call(times: int) -> None:
        for _ in range(times):
            function()

    return timed(call, {}).chief


class Loopback:
    """A chief in this process, workers and one server, as a training on many machines has them."""

    def __init__(self, cluster: Mapping[str, Sequence[str]], processes: Mapping[str, int]) -> None:
        import tensorflow as tf

        self.processes = processes
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)

    def spent(self, function: Callable[..., Any]) -> Spent:
        """What a piece takes that the worker makes, of many that are scheduled."""

        def call(times: int) -> None:
            for _ in range(times):
                self.coordinator.schedule(function, args=tuple(PIECE))
            self.coordinator.join()

        return timed(call, self.processes)

    def step(self, groups: int, count: int, rank: int, *, writes: bool = True) -> Spent:
        """A piece of steps that only read rows and send their gradients; one that does nothing without groups."""
        import tensorflow as tf

        with self.strategy.scope():
            tables = [Tables.new(rank) for _ in range(groups)]
            counters = [tf.Variable(0.0) for _ in range(COUNTERS if groups else 0)]
        steps = STEPS_OF_PIECE if groups else 1
        return self.spent(rows_function(tables, counters, count, writes=writes, steps=steps))


# --- cores that are busy at once --------------------------------------------------------------------------------------

BUSY = """
import sys
from simulation.calibration import local_step

def wait():
    print("ready", flush=True)
    input()

print(local_step(*map(int, sys.argv[1:4]), at_once=False, is_ready=wait)["processor"])
"""


def busy_step(groups: int, rank: int, batch: int, processes: int) -> float:
    """Processor seconds of a step, on average, where so many processes compute one at a time each, all at once."""
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    tools = str(Path(__file__).parents[1])
    environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join([tools, os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-c", BUSY, str(groups), str(rank), str(batch)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    children: list[Any] = [subprocess.Popen(words, **pipes) for _ in range(processes)]
    try:
        for child in children:  # until all can begin at once
            if child.stdout.readline().strip() != "ready":
                raise RuntimeError("a process that measures a step has ended")
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        return float(np.mean([float(child.stdout.readline()) for child in children]))
    finally:
        for child in children:
            child.kill()
            child.communicate()


# --- all of it ------------------------------------------------------------------------------------------------------


def calibrate(groups: int, rank: int, batch: int, earlier: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Measure this machine.

    Args:
        groups: Groups of the training that is measured, all of them keys.
        rank: Numbers of each key, its linear term included.
        batch: Rows of a step.
        earlier: What an earlier measurement of the same returned: of each number the smaller one is taken, as whatever
            runs beside makes it larger. One of pieces of another size, or without a crowd of workers, is left out.

    Returns:
        The costs, and what they were derived from.

    """
    measured = measure(groups, rank, batch)
    if (
        earlier is not None
        and earlier["measured"]["steps_of_piece"] == STEPS_OF_PIECE
        and "crowd" in earlier["measured"]
    ):
        measured = least(earlier["measured"], measured)
    return {"costs": costs_of(measured).to_json(), "measured": measured}


def measure(groups: int, rank: int, batch: int) -> dict[str, Any]:
    """The measurements of `calibrate`, as JSON's types."""
    steps = {}
    for rows in (batch // 4, batch):
        step = local_step(groups, rank, rows, at_once=False)
        steps[str(rows)] = {**step, "tables": tables_here(groups, round(step["distinct"]), rank)}
    with server_processes(1, 1) as (cluster, processes):
        loopback = Loopback(cluster, processes)
        dispatch = loopback.step(0, 1, 1)
        process_bytes = {name: resident_bytes(process) for name, process in processes.items()}
        calls = [loopback.step(*point)._asdict() for point in POINTS]
        reads = [loopback.step(*point, writes=False)._asdict() for point in (POINTS[0], POINTS[-1])]
    cores = os.cpu_count() or 1
    with server_processes(cores, 1) as (cluster, processes):
        crowd = Loopback(cluster, processes).step(*POINTS[-1])._asdict()
    return {
        "groups": groups,
        "rank": rank,
        "batch": batch,
        "local_step": local_step(groups, rank, batch, at_once=True),
        "steps_by_group": steps,
        "dispatch": dispatch._asdict(),
        "steps_of_piece": STEPS_OF_PIECE,
        "calls": [
            dict(zip(("groups", "rows", "rank"), point, strict=True)) | call
            for point, call in zip(POINTS, calls, strict=True)
        ],
        "reads": reads,
        "process_bytes": process_bytes,
        "crowd": crowd,  # the last of the calls, by as many workers as there are cores
        "busy": {str(n): busy_step(groups, rank, batch, n) for n in (1, cores)},
        "cores": cores,
        "load": os.getloadavg()[0],
    }


def least(earlier: Any, later: Any) -> Any:
    """The smaller one of each number of two measurements of the same."""
    if isinstance(later, dict):
        return {key: least(earlier[key], value) for key, value in later.items()}
    if isinstance(later, list):
        return [least(*pair) for pair in zip(earlier, later, strict=True)]
    return min(earlier, later)


def costs_of(measured: Mapping[str, Any]) -> Costs:
    """The costs that follow from measurements."""
    batch = measured["batch"]
    own = {}  # of a step, processor seconds without reading and updating tables
    for rows, step in measured["steps_by_group"].items():
        own[int(rows)] = max(step["processor"] - step["tables"], 0.0)
    step_row = max(min((own[batch] - own[batch // 4]) / (batch - batch // 4), own[batch] / batch), 0.0)
    dispatch, calls, reads = measured["dispatch"], measured["calls"], measured["reads"]
    steps = measured["steps_of_piece"]
    points = [(call["groups"], call["rows"], call["rank"]) for call in calls]
    worker = [max(call["worker"] - dispatch["worker"], 1e-6) / steps for call in calls]
    server = [call["server"] / steps for call in calls]
    shares = [reads[0]["server"] / calls[0]["server"], reads[1]["server"] / calls[-1]["server"]]
    walls = [(call["wall"] - dispatch["wall"]) / steps for call in calls]
    waiting = walls[0] - worker[0] - server[0]
    most = max(range(len(calls)), key=lambda i: worker[i] + server[i])
    whole = measured["steps_by_group"][str(batch)]
    cores, busy, crowd = measured["cores"], measured["busy"], measured["crowd"]
    cores_of_crowd = (crowd["chief"] + crowd["worker"] + crowd["server"]) / crowd["wall"]
    return Costs(
        step=own[batch] - step_row * batch,
        step_row=step_row,
        threads=max(1.0, whole["processor"] / whole["wall"]),
        chief=fitted(points, [call["chief"] for call in calls], by_size=False),
        dispatch_worker=dispatch["worker"],
        dispatch_latency=max(dispatch["wall"] - dispatch["chief"] - dispatch["worker"], 0.0),
        worker=fitted(points, worker),
        server=fitted(points, server),
        read_share=min(sum(shares) / len(shares), 1.0),
        call_threads=max((worker[most] + server[most]) / max(walls[most], 1e-9), 1.0),
        call_latency=max(waiting / 4, 0.0),  # two messages of each of two calls
        id_bytes=ID_BYTES,
        contention=max(busy[str(cores)] / busy["1"], 1.0),
        idle_share=1 / cores,
        busy_share=min(cores_of_crowd / cores, 1.0),
    )
