"""Asynchronous training with parameter servers, event by event.

The chief hands a step to each worker that is free. A worker asks all servers for its distinct rows at once, computes,
sends gradients to all servers at once, and is free when the last of them has updated its tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from simulation.arithmetic import NUMBER_BYTES, Group, distinct_by_server
from simulation.costs import Costs
from simulation.resources import Clock, Cores, Machine, Usage, transfer


@dataclass(frozen=True)
class Plan:
    """A cluster and what it trains.

    Args:
        groups: The groups whose tables are on the servers.
        costs: What a step costs.
        batch: Rows of a step of one worker.
        steps_a_dispatch: How many steps a worker makes of what the chief hands it at once.
        workers: How many workers.
        servers: How many servers.
        workers_a_machine: How many workers share a machine, its cores and its card.
        cores: Cores of each machine.
        bytes_per_second: Of each machine's card, in each direction.
        latency: Seconds of a message on the network.
        one_machine: Whether all processes share the cores of one machine and reach each other by loopback.
        contiguous: Whether servers hold contiguous ranges of ids instead of spread ones.
        variation: The share of each work that is exponentially distributed.
        seed: Of the draws of `variation`.

    """

    groups: tuple[Group, ...]
    costs: Costs
    batch: int = 4096
    steps_a_dispatch: int = 1
    workers: int = 1
    servers: int = 1
    workers_a_machine: int = 1
    cores: float = 1
    bytes_per_second: float = 1.25e9
    latency: float = 1e-4
    one_machine: bool = False
    contiguous: bool = False
    variation: float = 0.0
    seed: int = 0

    @property
    def step_seconds(self) -> float:
        """Seconds of a step's own work on the worker."""
        return self.costs.step + self.costs.step_row * self.batch

    @property
    def chief_seconds(self) -> float:
        """Seconds of the chief for a step."""
        return self.costs.chief.seconds(len(self.groups) * self.servers, 0, 0)


@dataclass(frozen=True)
class Call:
    """What a step of one worker exchanges with one server, and the seconds that it costs there and here."""

    ids: float  # bytes
    rows: float  # bytes, in each direction
    worker_seconds: float
    server_seconds: float


@dataclass
class Outcome:
    """What happened in the time that was measured."""

    workers: int
    seconds: float
    steps: int
    step_seconds: float  # the mean
    usages: dict[str, Usage] = field(default_factory=dict)  # by machine and part

    @property
    def steps_per_second(self) -> float:
        """Steps of all workers, by Little's law: those that end together do not change it as they change a count."""
        return self.workers / self.step_seconds


def calls_of(plan: Plan) -> list[Call]:
    """The call of a step to each server."""
    rows = np.array([distinct_by_server(group, plan.servers, plan.contiguous) for group in plan.groups])
    ranks = np.array([group.rank for group in plan.groups])  # [groups]
    costs, calls = plan.costs, []
    for server in range(plan.servers):
        count = float(rows[:, server].sum())
        size = float((rows[:, server] * ranks).sum()) * NUMBER_BYTES
        work = (len(plan.groups), count, size)
        calls.append(Call(count * costs.id_bytes, size, costs.worker.seconds(*work), costs.server.seconds(*work)))
    return calls


class Cluster:
    """The machines of a plan, and the steps that run on them."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.clock = plan, Clock()
        self.calls = calls_of(plan)
        self._random = np.random.default_rng(plan.seed)
        if plan.one_machine:
            machine = Machine(self.clock, "machine", self._cores(plan.cores), None)
            self.chief, self.workers, self.servers = machine, [machine] * plan.workers, [machine] * plan.servers
            self.machines = [machine]
        else:
            self.chief = self._machine("chief", min(plan.cores, 1))  # Python runs one thread at a time
            of_workers = [self._machine(f"workers {i}") for i in range(-(-plan.workers // plan.workers_a_machine))]
            self.workers = [of_workers[i // plan.workers_a_machine] for i in range(plan.workers)]
            self.servers = [self._machine(f"server {i}") for i in range(plan.servers)]
            self.machines = [self.chief, *of_workers, *self.servers]
        self.finished, self.step_seconds = 0, 0.0

    def _machine(self, name: str, cores: float | None = None) -> Machine:
        return Machine(self.clock, name, self._cores(cores or self.plan.cores), self.plan.bytes_per_second)

    def _cores(self, cores: float) -> Cores:
        costs = self.plan.costs
        if cores <= 1:
            return Cores(self.clock, cores)
        return Cores(self.clock, cores, costs.contention, costs.idle_share, costs.busy_share)

    @property
    def _latency(self) -> float:
        return self.plan.costs.call_latency + (0.0 if self.plan.one_machine else self.plan.latency)

    def run(self, steps: int) -> Outcome:
        """Let so many steps of all workers end, after a quarter as many that are not measured."""
        costs = self.plan.costs  # workers begin one after the other: those that begin together would stay so
        seconds = self.plan.chief_seconds + costs.dispatch_worker + self.plan.step_seconds
        seconds += sum(call.worker_seconds + call.server_seconds for call in self.calls)
        for number, worker in enumerate(self.workers):
            self.clock.after(seconds * number / len(self.workers), partial(self._begin_step, worker))
        self.clock.run(lambda: self.finished >= steps // 4)
        start, before, step_seconds = self.clock.now, self.finished, self.step_seconds
        for machine in self.machines:
            for _, usage in machine.parts():
                usage.reset()
        self.clock.run(lambda: self.finished >= before + steps)
        usages = {f"{machine.name}: {part}": usage for machine in self.machines for part, usage in machine.parts()}
        mean = (self.step_seconds - step_seconds) / steps
        return Outcome(self.plan.workers, self.clock.now - start, self.finished - before, mean, usages)

    # --- the parts of a step ----------------------------------------------------------------------------------------

    def _varied(self, seconds: float) -> float:
        share = self.plan.variation
        return seconds if not share else seconds * (1 - share + share * float(self._random.exponential()))

    def _begin_step(self, worker: Machine, number: int = 0) -> None:
        costs, begun = self.plan.costs, self.clock.now
        network = 0.0 if self.plan.one_machine else self.plan.latency

        def finish() -> None:
            self.finished += 1
            self.step_seconds += self.clock.now - begun
            self._begin_step(worker, number + 1)

        def write() -> None:
            self._call_all(worker, finish, is_read=False)

        def compute() -> None:
            worker.cores.work(self._varied(self.plan.step_seconds), costs.threads, write)

        def read() -> None:
            self._call_all(worker, compute, is_read=True)

        def receive() -> None:
            worker.cores.work(self._varied(costs.dispatch_worker), 1, read)

        def dispatch() -> None:  # to the worker, and its answer
            self.clock.after(costs.dispatch_latency + 2 * network, receive)

        if number % self.plan.steps_a_dispatch:
            read()
        else:
            self.chief.cores.work(self._varied(self.plan.chief_seconds), 1, dispatch)

    def _call_all(self, worker: Machine, done: Callable[[], None], *, is_read: bool) -> None:
        """Call all servers at once, and go on when the last of them has answered."""
        waiting = len(self.servers)

        def answered() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0:
                done()

        for server, call in zip(self.servers, self.calls, strict=True):
            self._call(worker, server, call, answered, is_read=is_read)

    def _call(self, worker: Machine, server: Machine, call: Call, done: Callable[[], None], *, is_read: bool) -> None:
        costs = self.plan.costs
        share = costs.read_share if is_read else 1 - costs.read_share
        threads = max(1.0, min(costs.call_threads, self.plan.cores))
        sent, answer = (call.ids / 2, call.rows) if is_read else (call.ids / 2 + call.rows, 0.0)

        def back() -> None:
            transfer(self.clock, answer, server, worker, self._latency, done)

        def serve() -> None:
            server.cores.work(self._varied(call.server_seconds * share), threads, back)

        def send() -> None:
            transfer(self.clock, sent, worker, server, self._latency, serve)

        worker.cores.work(self._varied(call.worker_seconds * share), threads, send)


def simulate(plan: Plan, steps: int) -> Outcome:
    """Let a plan run for so many measured steps."""
    return Cluster(plan).run(steps)


def saturation(plan: Plan) -> dict[str, float | str]:
    """What bounds the steps a second however many workers there are, and from how many workers on.

    A resource that all steps share can do capacity / demand of them. The workers that keep it busy are those steps a
    second times the seconds of a step that waits for nothing (the asymptotic bounds of a closed network).
    """
    calls, demands = calls_of(plan), {}
    chief = plan.chief_seconds / plan.steps_a_dispatch
    crowded = plan.costs.contention / plan.costs.busy_share if plan.cores > 1 else 1.0
    if plan.one_machine:
        costs = plan.costs
        total = chief + costs.dispatch_worker / plan.steps_a_dispatch + plan.step_seconds
        total += sum(call.worker_seconds + call.server_seconds for call in calls)
        demands["machine: cores"] = total * crowded / plan.cores
    else:
        demands["chief: cores"] = chief / min(plan.cores, 1)
        for server, call in enumerate(calls):
            demands[f"server {server}: cores"] = call.server_seconds * crowded / plan.cores
            demands[f"server {server}: sends"] = call.rows / plan.bytes_per_second
            demands[f"server {server}: receives"] = (call.ids + call.rows) / plan.bytes_per_second
    resource = max(demands, key=lambda name: demands[name])
    bound = 1 / demands[resource]
    alone = simulate(replace(plan, workers=1, variation=0.0), 4 * plan.steps_a_dispatch).step_seconds
    return {"resource": resource, "steps_per_second": bound, "workers": bound * alone}
