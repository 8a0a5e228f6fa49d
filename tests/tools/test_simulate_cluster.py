"""The simulation of parameter servers: closed forms of queueing theory, arithmetic, and its command."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from simulation import arithmetic
from simulation.arithmetic import Group, distinct_by_server, distinct_ids, memory, step_bytes
from simulation.cluster import Cluster, Plan, calls_of, saturation, simulate
from simulation.costs import CallCost, Costs, read_costs
from simulation.resources import Clock, Cores, Machine, transfer

TOOLS = Path(__file__).parents[2] / "tools"
FREE = CallCost(0, 0, 0, 0)
COSTS = Costs(
    step=0.02,
    step_row=1e-6,
    threads=1,
    chief=CallCost(0.0008, 0.0002, 0, 0),
    dispatch_worker=0.0005,
    dispatch_latency=0.0002,
    worker=CallCost(0.0003, 0.0001, 1e-7, 1e-9),
    server=CallCost(0.0004, 0.0002, 2e-7, 2e-9),
    read_share=0.4,
    call_threads=1,
    call_latency=0.00005,
    id_bytes=4,
    contention=1,
    idle_share=0.5,
    busy_share=1,
)
NOTHING = Costs(0, 0, 1, FREE, 0, 0, FREE, FREE, 0.5, 1, 0, 4, 1, 0.5, 1)
GROUP = Group("user", 1000, 16, distinct=500)
PLAN = Plan((GROUP,), COSTS, batch=1000, cores=4, bytes_per_second=1e8, latency=0.0001)


def test_one_worker_and_one_server_take_the_sum_of_all_times() -> None:
    rows, ids = 500 * 16 * 4, 500 * 4
    worker = 0.0003 + 0.0001 + 500e-7 + rows * 1e-9
    server = 0.0004 + 0.0002 + 1000e-7 + rows * 2e-9
    messages = (ids + rows + rows) / 1e8 + 4 * (0.0001 + 0.00005)
    dispatch = 0.001 + 0.0005 + 0.0002 + 2 * 0.0001
    expected = dispatch + 0.02 + 1000 * 1e-6 + worker + server + messages
    assert simulate(PLAN, 8).step_seconds == pytest.approx(expected, rel=1e-9)
    together = replace(PLAN, one_machine=True)  # nothing passes a link, and nothing waits
    assert simulate(together, 8).step_seconds == pytest.approx(
        expected - (ids + rows + rows) / 1e8 - 6 * 0.0001, rel=1e-9
    )


@pytest.mark.parametrize(("workers", "servers"), [(16, 1), (24, 4)])
def test_a_slow_network_bounds_the_steps_by_the_bytes_that_the_servers_receive(workers: int, servers: int) -> None:
    plan = replace(PLAN, costs=NOTHING, workers=workers, servers=servers, bytes_per_second=1e6)
    bound = servers * 1e6 / (500 * 16 * 4 + 500 * 4)
    outcome = simulate(plan, 1200)
    assert outcome.steps_per_second == pytest.approx(bound, rel=0.05)
    assert outcome.usages["server 0: receives"].share == pytest.approx(1, rel=0.05)
    assert saturation(plan)["resource"].endswith(": receives")  # type: ignore[union-attr]
    assert saturation(plan)["steps_per_second"] == pytest.approx(bound)


def test_busy_servers_bound_the_steps_by_their_cores() -> None:
    costs = replace(NOTHING, step=0.01, server=CallCost(0.008, 0, 0, 0))
    plan = replace(PLAN, costs=costs, workers=32, cores=2, bytes_per_second=1e12, latency=0)
    outcome = simulate(plan, 600)
    assert outcome.steps_per_second == pytest.approx(2 / 0.008, rel=0.01)
    assert outcome.usages["server 0: cores"].share == pytest.approx(1, rel=0.01)
    facts = saturation(plan)
    assert facts["resource"] == "server 0: cores"
    assert facts["workers"] == pytest.approx(250 * 0.018, rel=1e-4)


def test_below_saturation_workers_do_not_wait_for_each_other() -> None:
    alone = simulate(PLAN, 20).steps_per_second
    assert simulate(replace(PLAN, workers=3, cores=64, bytes_per_second=1e8), 60).steps_per_second == pytest.approx(
        3 * alone, rel=0.05
    )


@pytest.mark.parametrize(("cores", "times"), [(1, 1), (2, 2), (4, 2)])
def test_two_workers_on_one_core_are_no_faster_than_one(cores: float, times: float) -> None:
    plan = replace(PLAN, costs=replace(NOTHING, step=0.01), cores=cores, one_machine=True)
    alone = simulate(plan, 20).steps_per_second
    assert alone == pytest.approx(100)
    assert simulate(replace(plan, workers=2), 40).steps_per_second == pytest.approx(times * alone)


def test_work_of_many_threads_takes_several_cores_where_they_are_free() -> None:
    plan = replace(PLAN, costs=replace(NOTHING, step=0.01, threads=2), cores=2, one_machine=True)
    assert simulate(plan, 20).steps_per_second == pytest.approx(200)
    assert simulate(replace(plan, workers=2), 40).steps_per_second == pytest.approx(200)


def test_threads_share_cores_evenly() -> None:
    clock, ends = Clock(), {}
    cores = Cores(clock, 1)
    for name, seconds in {"short": 1.0, "long": 3.0}.items():
        cores.work(seconds, 1, lambda name=name: ends.update({name: clock.now}))  # type: ignore[misc]
    clock.after(0.5, lambda: cores.work(0.25, 1, lambda: ends.update(late=clock.now)))
    clock.run(lambda: False)
    # From 0.5 on each of three has a third: `late` ends at 1.25, when `short` has had 0.5; then halves, then all.
    assert ends == pytest.approx({"late": 1.25, "short": 2.25, "long": 4.25})


def test_a_message_passes_both_links_at_once_and_waits_for_those_before_it() -> None:
    clock, ends = Clock(), []
    fast, slow = (Machine(clock, name, Cores(clock, 1), rate) for name, rate in (("fast", 1000.0), ("slow", 100.0)))
    for _ in range(2):
        transfer(clock, 100, fast, slow, 0.01, lambda: ends.append(clock.now))
    transfer(clock, 100, slow, fast, 0.01, lambda: ends.append(clock.now))
    clock.run(lambda: False)
    assert ends == pytest.approx([1.01, 1.01, 2.01])  # the second direction does not wait for the first


def test_busy_cores_are_slower() -> None:
    costs = replace(NOTHING, step=0.01, contention=1.5, idle_share=0.25)
    plan = replace(PLAN, costs=costs, cores=4, one_machine=True)
    alone, half, busy, waiting = (simulate(replace(plan, workers=n), 60 * n).steps_per_second for n in (1, 2, 4, 8))
    assert alone == pytest.approx(100)
    assert half == pytest.approx(2 * 100 / (1 + 0.5 / 3))  # the second of four cores is a third of the way to all
    assert (busy, waiting) == pytest.approx((4 * 100 / 1.5, 4 * 100 / 1.5))
    assert saturation(plan)["steps_per_second"] == pytest.approx(4 * 100 / 1.5)


def test_cores_that_wait_for_each_other_are_never_all_busy() -> None:
    costs = replace(NOTHING, step=0.01, busy_share=0.75)
    plan = replace(PLAN, costs=costs, cores=4, one_machine=True)
    few, many = (simulate(replace(plan, workers=n), 60 * n) for n in (3, 8))
    assert few.steps_per_second == pytest.approx(300)
    assert many.steps_per_second == pytest.approx(300)
    assert many.usages["machine: cores"].share == pytest.approx(0.75)
    assert saturation(plan)["steps_per_second"] == pytest.approx(300)


@pytest.mark.parametrize("variation", [0.0, 1.0])
def test_littles_law_holds(variation: float) -> None:
    plan = replace(PLAN, workers=6, servers=2, cores=1, variation=variation)
    outcome = simulate(plan, 1500)
    counted = outcome.steps / outcome.seconds
    assert counted * outcome.step_seconds == pytest.approx(6, rel=0.01)
    assert counted == pytest.approx(outcome.steps_per_second, rel=0.01)
    for machine in ("server 0", "server 1"):
        usage = outcome.usages[f"{machine}: cores"]
        assert usage.present == pytest.approx(usage.sojourn, rel=0.02)  # the integral of jobs, and the sum of stays
        assert usage.present > 0


def test_exponential_times_follow_mean_value_analysis() -> None:
    think, service, workers = 0.01, 0.004, 5
    costs = replace(NOTHING, step=think, server=CallCost(service, 0, 0, 0), read_share=0)
    plan = replace(PLAN, costs=costs, workers=workers, cores=1, bytes_per_second=1e15, latency=0, variation=1.0)
    queue = speed = 0.0
    for present in range(1, workers + 1):  # Reiser and Lavenberg (1980)
        seconds = service * (1 + queue)
        speed = present / (think + seconds)
        queue = speed * seconds
    outcome = simulate(plan, 4000)
    assert outcome.steps_per_second == pytest.approx(speed, rel=0.03)
    assert outcome.usages["server 0: cores"].share == pytest.approx(speed * service, rel=0.03)


def test_the_same_seed_gives_the_same_numbers() -> None:
    plan = replace(PLAN, workers=4, servers=2, variation=0.5)
    first, second, third = (simulate(replace(plan, seed=seed), 100) for seed in (0, 0, 1))
    assert (first.seconds, first.step_seconds) == (second.seconds, second.step_seconds)
    assert first.seconds != third.seconds


def test_a_slow_chief_bounds_the_steps_unless_it_hands_out_several_at_once() -> None:
    costs = replace(NOTHING, step=0.02, chief=CallCost(0.002, 0.001, 0, 0))
    plan = replace(PLAN, costs=costs, workers=16, servers=2, cores=4, bytes_per_second=1e12, latency=0)
    outcome = simulate(plan, 640)
    assert outcome.steps_per_second == pytest.approx(1 / (0.002 + 2 * 0.001), rel=0.01)  # one core, and both servers
    assert saturation(plan)["resource"] == "chief: cores"
    several = replace(plan, steps_a_dispatch=8)
    assert simulate(several, 1280).steps_per_second == pytest.approx(16 / (0.02 + 0.004 / 8), rel=0.1)
    assert saturation(several)["steps_per_second"] == pytest.approx(8 / 0.004)


def test_workers_of_one_machine_share_its_cores() -> None:
    plan = replace(PLAN, costs=replace(NOTHING, step=0.01), workers=8, cores=2, bytes_per_second=1e12, latency=0)
    apart, together = (replace(plan, workers_a_machine=count) for count in (1, 4))
    assert simulate(apart, 80).steps_per_second == pytest.approx(2 * simulate(together, 80).steps_per_second, rel=0.01)
    assert len(Cluster(together).machines) == 1 + 2 + 1


# --- arithmetic -----------------------------------------------------------------------------------------------------


def test_distinct_ids_are_those_of_draws() -> None:
    group = Group("user", 300, 8, draws=400, zipf=1.1)
    shares = np.arange(1, 301) ** -1.1
    shares /= shares.sum()
    assert distinct_ids(group) == pytest.approx((1 - (1 - shares) ** 400).sum())
    rng = np.random.default_rng(0)
    drawn = [len(np.unique(rng.choice(300, 400, p=shares))) for _ in range(300)]
    assert distinct_ids(group) == pytest.approx(np.mean(drawn), rel=0.01)


def test_the_tail_in_blocks_is_the_tail_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "HEAD", 1000)
    group = Group("user", 80_000, 8, draws=2500, zipf=1.05)
    shares = np.arange(1, group.values + 1) ** -1.05
    shares /= shares.sum()
    expected = -np.expm1(2500 * np.log1p(-shares))
    assert distinct_ids(group) == pytest.approx(expected.sum(), rel=1e-4)
    spread, contiguous = (distinct_by_server(group, 4, flag) for flag in (False, True))
    assert contiguous == pytest.approx(expected.reshape(4, -1).sum(axis=1), rel=1e-3)
    assert spread == pytest.approx(expected.reshape(-1, 4).sum(axis=0), rel=2e-3)
    assert contiguous[0] > 3 * spread[0]  # which is why ids are spread


def test_bytes_and_memory() -> None:
    assert step_bytes(GROUP, 4) == 500 * 16 * 2 * 4 + 500 * 4
    calls = calls_of(replace(PLAN, servers=4))
    assert sum(2 * call.rows + call.ids for call in calls) == pytest.approx(step_bytes(GROUP, 4))
    whole = memory([Group("all", 100_000_000, 64, distinct=1)], servers=8, slots=1)
    assert whole == {"tables": 25.6e9, "slots": 25.6e9, "a_server": 6.4e9}


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_fit_returns_the_costs_that_made_the_times() -> None:
    from simulation.calibration import POINTS, fitted

    costs = CallCost(call=4e-4, group=2e-4, row=3e-7, byte=1e-9)
    seconds = [costs.seconds(groups, groups * rows, groups * rows * rank * 4) for groups, rows, rank in POINTS]
    result = fitted(POINTS, seconds)
    for name in ("call", "group", "row", "byte"):
        assert getattr(result, name) == pytest.approx(getattr(costs, name), rel=1e-6)


def test_costs_follow_from_measurements_and_of_two_the_smaller_numbers_count() -> None:
    from simulation.calibration import POINTS, costs_of, least

    cost = CallCost(call=4e-4, group=2e-4, row=3e-7, byte=1e-9)
    calls = []
    for groups, rows, rank in POINTS:
        seconds = cost.seconds(groups, groups * rows, groups * rows * rank * 4)
        spent = {"wall": 8.0, "chief": 0.001 + groups * 1e-4, "worker": 0.002 + 8 * seconds, "server": 16 * seconds}
        calls.append({"groups": groups, "rows": rows, "rank": rank, **spent, "bytes": 0.0})
    measured = {
        "batch": 400,
        "steps_by_group": {
            "100": {"wall": 1.0, "processor": 0.004, "tables": 0.001},
            "400": {"wall": 1.0, "processor": 0.010, "tables": 0.001},
        },
        "dispatch": {"wall": 0.004, "chief": 0.001, "worker": 0.002},
        "steps_of_piece": 8,
        "calls": calls,
        "cores": 2,
        "busy": {"1": 0.010, "2": 0.013},
        "crowd": {"chief": 0.1, "worker": 1.0, "server": 0.5, "wall": 1.0},
        "reads": [{"server": calls[0]["server"] * 0.3}, {"server": calls[-1]["server"] * 0.5}],
    }
    costs = costs_of(measured)
    assert costs.step == pytest.approx(0.001)
    assert costs.step_row == pytest.approx(2e-5)
    assert costs.server.group == pytest.approx(4e-4)
    assert costs.worker.byte == pytest.approx(1e-9)
    assert costs.chief.group == pytest.approx(1e-4)
    assert costs.read_share == pytest.approx(0.4)
    assert costs.dispatch_latency == pytest.approx(0.001)
    assert (costs.contention, costs.idle_share) == pytest.approx((1.3, 0.5))
    assert costs.busy_share == pytest.approx(0.8)
    assert costs.call_threads == 1
    assert Costs.of_json(json.loads(json.dumps(costs.to_json()))) == costs
    slower = {**measured, "dispatch": {"wall": 0.009, "chief": 0.0005, "worker": 0.004}}
    assert least(measured, slower)["dispatch"] == {"wall": 0.004, "chief": 0.0005, "worker": 0.002}


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    path = tmp_path / "calibration.json"
    path.write_text(
        json.dumps({"costs": COSTS.to_json(), "measured": {"process_bytes": {"ps 0": 7e8, "worker 0": 6e8}}})
    )
    return path


def command(*words: object) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(TOOLS / "simulate_cluster.py")]
    return subprocess.run([*script, *map(str, words)], capture_output=True, text=True, check=False)


def test_the_command_prints_one_json_object(calibration: Path) -> None:
    group = "user:values=1e6,rank=16,draws=1024,zipf=1.1"
    done = command(calibration, "--group", group, "--workers", 2, "--batch", 1024, "--rows", 1e6)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["rows_per_second"] == pytest.approx(1024 * facts["steps_per_second"], rel=1e-3)
    assert facts["hours_an_epoch"] == pytest.approx(1e6 / facts["rows_per_second"] / 3600, rel=1e-3)
    assert facts["tables"]["user"]["bytes_a_step"] == facts["bytes_a_step"]
    assert set(facts["loads"]) >= {"server cores", "server sends", "workers receives", "chief cores"}
    assert facts["memory_bytes"]["a_server"] == 1e6 * 16 * 4 * 2
    assert facts["memory_bytes"]["a_process"] == 7e8
    assert facts["seconds_of_a_checkpoint"] == pytest.approx(1e6 * 16 * 4 * 2 / 1.25e9, rel=1e-3)
    assert facts["bytes_of_rows"] == 1e6 * 2 * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--group", "user:rank=3,distinct=4"], "a group has values, rank, and either"),
        (["--group", "user:values=9,rank=3,draws=4"], "either distinct or draws and zipf"),
        (["--group", "user:values=9,rank=x,draws=4"], "rank must be a number"),
        (["--group", "user:values=9,rnk=3"], "'rnk' is none of values, rank"),
        (["--group", "user:values=9,rank=3,distinct=4", "--workers", "0"], "must be at least 1"),
        ([], "name the tables"),
    ],
)
def test_wrong_words_are_told(calibration: Path, words: list[str], message: str) -> None:
    done = command(calibration, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "has no 'costs'"),
        ("[", "Expecting value"),
        ('{"costs": {"step": 1}}', "chief: needs byte, call, group, row; received None"),
        (json.dumps({"costs": COSTS.to_json() | {"step": -1}}), r"costs.step: must be a number of at least 0"),
        (json.dumps({"costs": COSTS.to_json() | {"more": 1}}), "costs: needs"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as problem:
        read_costs(path)
    assert "--calibrate" in str(problem.value)


@pytest.mark.parametrize("words", [["--calibrate"], ["--group", "user:values=9,rank=3,distinct=4"]])
def test_a_file_without_measurements_is_told_in_one_line(
    calibration: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    main = importlib.import_module("simulate_cluster").main
    calibration.write_text(json.dumps({"costs": COSTS.to_json()}))
    with pytest.raises(SystemExit, match=r"^2$"):
        main([str(calibration), *words])
    assert capsys.readouterr().err == (
        f"{calibration}: has no 'measured'; write one with `python tools/simulate_cluster.py --calibrate FILE`\n"
    )
