"""What a cluster on this machine costs: speed, processor time and bytes a step, beside the arithmetic and a simulation.

python tools/bench_cluster.py CALIBRATION [--groups 8] [--rank 64] [--batch 4096] [--clusters 1x1 2x1] > cluster.json

A table of clicks by Zipf's law is made here and encoded, and the same factorization machine is trained by one process
and by each cluster (workers x servers) of processes on this machine. The first epoch is not measured. CALIBRATION is
what `tools/simulate_cluster.py --calibrate` wrote with the same groups, rank and batch; from it, and the cores that
are free, the simulation predicts each training. Bytes are those of the machine's loopback: for bytes of this training
alone, give it one of its own: unshare -rn sh -c 'ip link set lo up && exec python tools/bench_cluster.py ...'.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from simulation.arithmetic import Group, step_bytes
from simulation.calibration import clicks, schema
from simulation.cluster import Plan, calls_of, saturation, simulate
from simulation.costs import REMEDY, Costs, read_costs
from simulation.loopback import loopback_bytes, processor_seconds, resident_bytes

PROGRAM = (sys.executable, "-m", "feat2vec")
EPOCHS = 6
SPIN = """
from time import perf_counter, process_time
begin, spent = perf_counter(), process_time()
while perf_counter() < begin + 2:
    pass
print((process_time() - spent) / (perf_counter() - begin))
"""  # the share of a core that the process had
ROLES = {"chief": "chief", "worker": "workers", "ps": "servers"}


class Moment(NamedTuple):
    """What had been spent when an epoch ended."""

    seconds: float
    processor: dict[str, float]  # by role
    bytes: int
    most_resident: dict[str, int]  # by role, of one process


def children(process: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for word in path.read_text().split():
            yield int(word)
            yield from children(int(word))


def role(process: int) -> str:
    """What a process of a cluster is, by its `TF_CONFIG`; `chief` without one."""
    for variable in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name == b"TF_CONFIG":
            return ROLES[str(json.loads(value)["task"]["type"])]
    return "chief"


def moment(process: int) -> Moment:
    """What a training has spent until now."""
    spent: dict[str, float] = {}
    resident: dict[str, int] = {}
    for part in (process, *children(process)):
        name = role(part)
        spent[name] = spent.get(name, 0.0) + processor_seconds(part)
        resident[name] = max(resident.get(name, 0), resident_bytes(part))
    return Moment(time.perf_counter(), spent, loopback_bytes(), resident)


def measure(words: Sequence[object], steps: int) -> dict[str, Any]:
    """Run a training, and return what a step of it takes."""
    moments, lines = [], []
    command = [*PROGRAM, *map(str, words)]
    with subprocess.Popen(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if re.match(r"epoch \d+/", line):
                moments.append(moment(process.pid))
    if process.returncode != 0 or len(moments) < 2:
        raise RuntimeError("".join(lines[-20:]))
    pieces = re.search(r"workers got up to (\d+) steps at once", "".join(lines))
    return {"steps_a_piece": int(pieces[1]) if pieces else 1, **spent_a_step(moments, steps)}


def free_cores(count: int) -> float:
    """The cores that so many processes get which have always something to do, beside whatever else runs."""
    children = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) for _ in range(count)]
    return sum(float(child.communicate()[0]) for child in children)


def spent_a_step(moments: Sequence[Moment], steps: int) -> dict[str, Any]:
    """What a step takes, from the ends of epochs of so many steps each, without those with a checkpoint.

    A checkpoint brings the chief whole tables, so that such an epoch has more bytes.
    """
    epochs = list(pairwise(moments))
    least = min(after.bytes - before.bytes for before, after in epochs)
    plain = [pair for pair in epochs if pair[1].bytes - pair[0].bytes <= 1.1 * least]
    count = steps * len(plain)
    seconds = [after.seconds - before.seconds for before, after in plain]
    processor = {
        name: sum(after.processor[name] - before.processor[name] for before, after in plain) / count
        for name in moments[-1].processor
    }
    return {
        "epochs": len(plain),
        "steps_per_second": count / sum(seconds),
        "steps_per_second_of_the_fastest_epoch": steps / min(seconds),
        "processor_seconds_a_step": processor,
        "cores": sum(processor.values()) * count / sum(seconds),
        "bytes_a_step": sum(after.bytes - before.bytes for before, after in plain) / count,
        "most_resident_bytes": moments[-1].most_resident,
    }


def predict(plan: Plan) -> dict[str, Any]:
    """What the simulation says of the same training; busy cores take more seconds for the same work."""
    outcome, calls = simulate(plan, 60 * plan.workers * plan.steps_a_dispatch), calls_of(plan)
    dispatch = plan.costs.dispatch_worker / plan.steps_a_dispatch
    processor = {
        "chief": plan.chief_seconds / plan.steps_a_dispatch,
        "workers": dispatch + plan.step_seconds + sum(call.worker_seconds for call in calls),
        "servers": sum(call.server_seconds for call in calls),
    }
    spent = outcome.usages["machine: cores"].share * plan.cores / outcome.steps_per_second
    processor = {name: seconds * spent / sum(processor.values()) for name, seconds in processor.items()}
    return {
        "steps_per_second": outcome.steps_per_second,
        "processor_seconds_a_step": processor,
        "cores": outcome.usages["machine: cores"].share * plan.cores,
        "bytes_a_step": sum(step_bytes(group, plan.costs.id_bytes) for group in plan.groups),
        "saturation": saturation(plan),
    }


def local_prediction(measured: dict[str, Any]) -> dict[str, float]:
    """What the calibration measured of the same step in one process."""
    whole = measured["local_step"]
    return {"steps_per_second": 1 / whole["wall"], "processor_seconds_a_step": whole["processor"]}


def groups_of(table: pa.Table, rank: int, batch: int) -> tuple[Group, ...]:
    """The groups of a table of clicks, with the distinct keys of a batch of its rows in random order."""
    order = np.random.default_rng(0).permutation(len(table))[: len(table) // batch * batch]
    groups = []
    for name in table.column_names[:-1]:
        blocks = table[name].to_numpy()[order].reshape(-1, batch)
        distinct = float(np.mean([len(np.unique(block)) for block in blocks]))
        groups.append(Group(name, len(np.unique(table[name])), rank, distinct=distinct))
    return tuple(groups)


def read_calibration(path: str, shape: dict[str, int]) -> tuple[Costs, dict[str, Any]]:
    """The costs in a calibration's file, and what was measured.

    Args:
        path: The file.
        shape: Groups, rank and batch of the training that it is to be of.

    Raises:
        ValueError: If it is not there, is no calibration, or one of another training.

    """
    words = " ".join(f"--{name} {value}" for name, value in shape.items())
    remedy = f"write one with `python tools/simulate_cluster.py --calibrate {path} {words}`"
    try:
        costs = read_costs(path)
        calibrated = json.loads(Path(path).read_text(encoding="utf-8"))["measured"]
        received = {name: calibrated[name] for name in shape}
        if received == shape:
            local_prediction(calibrated)
    except (KeyError, TypeError) as problem:
        raise ValueError(f"{path}: has no measurement {problem}\n{remedy}") from problem
    except ValueError as problem:
        raise ValueError(f"{str(problem).removesuffix(f'; {REMEDY}')}\n{remedy}") from problem
    if received != shape:
        raise ValueError(f"{path}: is of {received}, not of {shape}\n{remedy.replace(path, 'ANOTHER_FILE')}")
    return costs, calibrated


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibration")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--values", type=int, default=50_000, help="of each group")
    parser.add_argument("--steps", type=int, default=128, help="of an epoch")
    parser.add_argument("--clusters", nargs="*", default=["1x1", "2x1"], help="workers x servers")
    parser.add_argument("--cores", type=float, help="by default those that are free before and after each training")
    options = parser.parse_args()
    shape = {name: getattr(options, name) for name in ("groups", "rank", "batch")}
    try:
        costs, calibrated = read_calibration(options.calibration, shape)
    except ValueError as problem:
        sys.stderr.write(f"{problem}\n")
        sys.exit(2)
    facts: dict[str, Any] = {**shape, "values": options.values, "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        data, yaml_file, encoded = (Path(folder) / name for name in ("clicks.parquet", "fm.yaml", "encoded"))
        table = clicks(options.steps * options.batch, options.groups, options.values)
        pq.write_table(table, data)
        document = schema(options.groups, options.rank, options.batch)
        document["training"]["epochs"] = EPOCHS
        yaml_file.write_text(yaml.safe_dump(document))
        subprocess.run([*PROGRAM, "encode", yaml_file, "--data", data, "--out", encoded], check=True, stdout=sys.stderr)
        groups = groups_of(table, options.rank, options.batch)
        facts["tables"] = {
            group.name: {"distinct": group.distinct, "bytes_a_step": step_bytes(group, costs.id_bytes)}
            for group in groups
        }
        del table
        train = ["train", yaml_file, "--data", encoded, "--out"]
        facts["local"] = {
            "measured": measure([*train, Path(folder) / "local"], options.steps),
            "calibrated": local_prediction(calibrated),
        }
        for size in options.clusters:
            workers, servers = map(int, size.split("x"))
            words = [*train, Path(folder) / size, "--local-cluster", size]
            free = [free_cores(os.cpu_count() or 1)]
            measured = measure(words, options.steps)
            free.append(free_cores(os.cpu_count() or 1))
            cores = options.cores or sum(free) / 2
            pieces = {"steps_a_dispatch": measured["steps_a_piece"], "cores": cores, "one_machine": True}
            plan = Plan(groups, costs, options.batch, workers=workers, servers=servers, **pieces)
            predicted = predict(plan)
            all_busy = replace(plan, cores=measured["cores"], costs=replace(costs, busy_share=1.0))
            had = predict(all_busy)["steps_per_second"]
            ratios = {
                "steps_per_second": predicted["steps_per_second"] / measured["steps_per_second"],
                "steps_per_second_on_the_cores_it_had": had / measured["steps_per_second"],
                "bytes_a_step": predicted["bytes_a_step"] / measured["bytes_a_step"],
                "processor_seconds_a_step": sum(predicted["processor_seconds_a_step"].values())
                / sum(measured["processor_seconds_a_step"].values()),
            }
            facts[size] = {
                "free_cores": free,
                "measured": measured,
                "predicted": predicted,
                "predicted_of_measured": ratios,
            }
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
