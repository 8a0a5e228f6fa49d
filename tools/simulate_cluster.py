"""How fast parameter servers train, on paper: steps a second, bytes, memory, loads, and where it saturates.

python tools/simulate_cluster.py --calibrate calibration.json [--groups 8] [--rank 64] [--batch 4096]
python tools/simulate_cluster.py calibration.json --workers 16 --servers 4 --cores 16 --bandwidth 1.25e9 --batch 4096 \\
    --group user:values=5e7,rank=64,draws=4096,zipf=1.05 --group item:values=5e7,rank=64,distinct=3100 [--rows 1e9]

The first measures this machine: the step of a training, and calls between TensorFlow's servers on loopback (again,
with the same file: the smaller ones of its numbers are kept, as whatever runs beside makes them larger). The
second lets workers, servers, links and the chief wait for each other, event by event (`tools/simulation/`), and prints
one JSON object. `draws` are the keys that a step draws of a group: the rows of a batch, and negatives; what is distinct
of them follows from Zipf's law, unless `distinct` says what was measured. `@FILE` stands for arguments, one a line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

from simulation.arithmetic import NUMBER_BYTES, Group, distinct_ids, memory, step_bytes
from simulation.cluster import Plan, saturation, simulate
from simulation.costs import REMEDY, Costs, read_costs

COUNTS_OF_PLAN = ("batch", "workers", "servers", "steps_a_dispatch", "workers_a_machine")  # options of a plan
OPTIONS_OF_PLAN = (*COUNTS_OF_PLAN, "cores", "latency", "one_machine", "contiguous", "variation", "seed")
NUMBERS = {"values": int, "rank": float, "draws": int, "zipf": float, "distinct": float}


def group_of(text: str) -> Group:
    """The group that `name:values=...,rank=...,draws=...,zipf=...` or `name:values=...,rank=...,distinct=...` names."""
    name, _, rest = text.partition(":")
    facts: dict[str, float] = {}
    for part in rest.split(","):
        key, _, value = part.partition("=")
        if key not in NUMBERS:
            raise argparse.ArgumentTypeError(f"{text!r}: {key!r} is none of {', '.join(NUMBERS)}")
        try:
            facts[key] = float(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: {key} must be a number") from None
    sizes = all(facts.get(key, 0) >= 1 for key in ("values", "rank"))
    if not name or not sizes or not ("distinct" in facts or {"draws", "zipf"} <= facts.keys()):
        raise argparse.ArgumentTypeError(f"{text!r}: a group has values, rank, and either distinct or draws and zipf")
    return Group(name, **{key: NUMBERS[key](value) for key, value in facts.items()})


def report(
    plan: Plan, steps: int, slots: int, rows: float | None = None, process_bytes: float | None = None
) -> dict[str, Any]:
    """What the plan does: speed, bytes, loads, memory, and where it saturates.

    A checkpoint brings all tables and slots to the chief. A row has the value id of each group, and a label.
    """
    outcome = simulate(plan, steps)
    tables = {
        group.name: {"distinct": distinct_ids(group), "bytes_a_step": step_bytes(group, plan.costs.id_bytes)}
        for group in plan.groups
    }
    bytes_a_step = sum(facts["bytes_a_step"] for facts in tables.values())
    loads: dict[str, list[float]] = {}
    for name, usage in outcome.usages.items():
        machine, _, part = name.partition(": ")
        loads.setdefault(f"{machine.split()[0]} {part}", []).append(usage.share)
    facts: dict[str, Any] = {
        "steps_per_second": outcome.steps_per_second,
        "rows_per_second": outcome.steps_per_second * plan.batch,
        "seconds_a_step": outcome.step_seconds,
        "bytes_a_step": bytes_a_step,
        "bytes_per_second": bytes_a_step * outcome.steps_per_second,
        "tables": tables,
        "loads": {name: {"mean": sum(shares) / len(shares), "most": max(shares)} for name, shares in loads.items()},
        "saturation": saturation(plan),
        "memory_bytes": memory(list(plan.groups), plan.servers, slots),
    }
    facts["seconds_of_a_checkpoint"] = (facts["memory_bytes"]["tables"] * (1 + slots)) / plan.bytes_per_second
    if process_bytes is not None:  # of a process that holds nothing yet
        facts["memory_bytes"]["a_process"] = process_bytes
    if rows is not None:
        facts["hours_an_epoch"] = rows / facts["rows_per_second"] / 3600
        facts["bytes_of_rows"] = rows * NUMBER_BYTES * (len(plan.groups) + 1)
    return facts


def rounded(facts: Any) -> Any:
    """The same with four digits a number."""
    if isinstance(facts, dict):
        return {key: rounded(value) for key, value in facts.items()}
    return float(f"{facts:.4g}") if isinstance(facts, float) else facts


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command's options."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape, fromfile_prefix_chars="@")
    parser.add_argument("calibration", help="its file; written with --calibrate, else read")
    parser.add_argument("--calibrate", action="store_true", help="measure this machine")
    parser.add_argument("--groups", type=int, default=8, help="of the training that is measured")
    parser.add_argument("--rank", type=int, default=64, help="of the training that is measured")
    parser.add_argument("--group", dest="tables", type=group_of, action="append", default=[])
    parser.add_argument("--batch", type=int, default=4096, help="rows of a step of one worker")
    parser.add_argument("--steps-a-dispatch", type=int, default=1, help="of what the chief hands to a worker at once")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--workers-a-machine", type=int, default=1, help="that share its cores and its card")
    parser.add_argument("--cores", type=float, default=16, help="of each machine")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes a second of each machine, each way")
    parser.add_argument("--latency", type=float, default=1e-4, help="seconds of a message on the network")
    parser.add_argument("--one-machine", action="store_true", help="all processes on one machine, by loopback")
    parser.add_argument("--contiguous", action="store_true", help="servers with ranges of ids, instead of spread ones")
    parser.add_argument("--variation", type=float, default=0.0, help="share of each work that is drawn, 0 to 1")
    parser.add_argument("--slots", type=int, default=1, help="of the optimizer: 1 for Adagrad")
    parser.add_argument("--rows", type=float, help="of the table, for hours an epoch")
    parser.add_argument("--steps", type=int, help="that are simulated (default: 40 of each worker, at least 200)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(words)
    counts = ("workers", "servers", "workers_a_machine", "steps_a_dispatch", "batch", "groups", "rank")
    if any(getattr(options, name) < 1 for name in counts) or not 0 <= options.variation <= 1:
        parser.error(f"{', '.join(counts)} must be at least 1, and --variation from 0 to 1")
    if min(options.cores, options.bandwidth) <= 0 or options.latency < 0:
        parser.error("--cores and --bandwidth must be above 0, and --latency at least 0")
    if not options.calibrate and not options.tables:
        parser.error("name the tables: --group NAME:values=...,rank=...,draws=...,zipf=...")
    return options


def refuse(message: str) -> NoReturn:
    """End with a message, and the status of a user's mistake."""
    sys.stderr.write(f"{message}\n")
    sys.exit(2)


def read_calibration(path: str | Path) -> tuple[Costs, dict[str, Any]]:
    """The costs in a calibration's file, and all that it holds; end with a message if it is none."""
    try:
        costs = read_costs(path)
    except ValueError as problem:
        refuse(str(problem))
    facts = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(facts.get("measured"), dict):
        refuse(f"{path}: has no 'measured'; {REMEDY}")
    return costs, facts


def main(words: Sequence[str] | None = None) -> None:
    """Print the simulation, or the calibration, as JSON."""
    options = parse(words)
    if options.calibrate:
        from simulation.calibration import calibrate

        path, earlier = Path(options.calibration), None
        if path.exists():
            earlier = read_calibration(path)[1]
            shape = {name: getattr(options, name) for name in ("groups", "rank", "batch")}
            if any(earlier["measured"].get(name) != value for name, value in shape.items()):
                refuse(f"{path}: is of another training than {shape}; give another name")
        facts = calibrate(options.groups, options.rank, options.batch, earlier)
        Path(options.calibration).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(facts, indent=1))
        return
    costs, facts = read_calibration(options.calibration)
    sizes = facts["measured"].get("process_bytes", {})
    of_plan = {name: getattr(options, name) for name in OPTIONS_OF_PLAN}
    plan = Plan(groups=tuple(options.tables), costs=costs, bytes_per_second=options.bandwidth, **of_plan)
    steps = options.steps or max(200, 40 * options.workers, 4 * options.steps_a_dispatch * options.workers)
    print(
        json.dumps(
            rounded(report(plan, steps, options.slots, options.rows, max(sizes.values(), default=None))), indent=1
        )
    )


if __name__ == "__main__":
    main()
