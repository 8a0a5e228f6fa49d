"""What a cluster's processes wait for: a clock with its events, the cores of a machine, and links."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

Action = Callable[[], None]


class Clock:
    """Events in the order of their times; those of one time in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def after(self, seconds: float, action: Action) -> None:
        """Plan an action for so many seconds from now."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), action))

    def run(self, is_over: Callable[[], bool]) -> None:
        """Let events happen until it is over, or none is left."""
        while self._events and not is_over():
            self.now, _, action = heapq.heappop(self._events)
            action()


class Usage:
    """How busy a resource is, and what is in it, as integrals over time."""

    def __init__(self, clock: Clock, capacity: float) -> None:
        self.clock, self.capacity = clock, capacity
        self.start = clock.now
        self.busy = 0.0  # seconds of one unit of the capacity
        self.present = 0.0  # jobs times seconds
        self.sojourn = 0.0  # seconds that finished jobs were here
        self.finished = 0

    def reset(self) -> None:
        """Forget what was, at the end of the time in which a cluster fills."""
        self.start, self.busy, self.present, self.sojourn, self.finished = self.clock.now, 0.0, 0.0, 0.0, 0

    @property
    def share(self) -> float:
        """The share of the capacity that was busy."""
        elapsed = self.clock.now - self.start
        return self.busy / (elapsed * self.capacity) if elapsed > 0 else 0.0


class _Job(NamedTuple):
    """Work on cores, in the order in which it ends."""

    end: float  # in the seconds that each thread has had since the cores began
    number: int
    threads: float
    begun: float
    done: Action


class Cores:
    """The cores of one machine, which all threads that are ready share evenly, as a fair scheduler does it.

    Args:
        clock: The clock.
        cores: How many.
        contention: How many times as long work takes when all cores are busy; in between it grows evenly.
        idle_share: The share of busy cores up to which work takes as long as on one alone.
        busy_share: The share of the cores that can be busy at once.

    """

    def __init__(
        self, clock: Clock, cores: float, contention: float = 1.0, idle_share: float = 0.0, busy_share: float = 1.0
    ) -> None:
        self.clock, self.cores = clock, cores
        self.contention, self.idle_share = contention, idle_share
        self.most_busy = cores * busy_share
        self.usage = Usage(clock, cores)
        self._jobs: list[_Job] = []
        self._threads = 0.0
        self._thread_seconds = 0.0  # that a thread had which was always ready
        self._seen = clock.now
        self._numbers = count()
        self._plan = 0

    def work(self, seconds: float, threads: float, done: Action) -> None:
        """Spend seconds of one core, by so many threads at once, and then do what is next."""
        self.advance()
        job = _Job(self._thread_seconds + seconds / threads, next(self._numbers), threads, self.clock.now, done)
        heapq.heappush(self._jobs, job)
        self._threads += threads
        self._plan_next()

    def advance(self) -> None:
        """Bring the integrals up to now."""
        elapsed = self.clock.now - self._seen
        self._seen = self.clock.now
        if self._jobs and elapsed > 0:
            self._thread_seconds += elapsed * self._rate()
            self.usage.busy += elapsed * min(self._threads, self.most_busy)
            self.usage.present += elapsed * len(self._jobs)

    def _rate(self) -> float:
        """How fast each thread is, of one that has a core while the others are idle."""
        busy_share = min(self._threads / self.cores, 1.0)
        crowding = max(busy_share - self.idle_share, 0.0) / (1 - self.idle_share) if self.idle_share < 1 else 0.0
        return min(1.0, self.most_busy / self._threads) / (1 + (self.contention - 1) * crowding)

    def _plan_next(self) -> None:
        self._plan += 1
        if self._jobs:
            plan = self._plan
            seconds = max(self._jobs[0].end - self._thread_seconds, 0.0) / self._rate()
            self.clock.after(seconds, lambda: self._finish(plan))

    def _finish(self, plan: int) -> None:
        if plan != self._plan:  # a job came in between
            return
        self.advance()
        job = heapq.heappop(self._jobs)
        self._thread_seconds = max(self._thread_seconds, job.end)
        self._threads = self._threads - job.threads if self._jobs else 0.0
        self.usage.sojourn += self.clock.now - job.begun
        self.usage.finished += 1
        self._plan_next()
        job.done()


class Link:
    """One direction of a machine's network card: messages pass one after the other."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self.clock, self.bytes_per_second = clock, bytes_per_second
        self.usage = Usage(clock, 1.0)
        self._free = 0.0  # when the last message has passed
        self._accepted = 0.0  # seconds of all messages
        self._passed = 0.0  # of them, when the usage was brought up to date

    def start(self) -> float:
        """When a message that comes now begins to pass."""
        return max(self.clock.now, self._free)

    def occupy(self, size: float) -> float:
        """Let a message of so many bytes pass, and return when it has."""
        seconds = size / self.bytes_per_second
        self._free = self.start() + seconds
        self._accepted += seconds
        self.usage.sojourn += self._free - self.clock.now
        self.usage.finished += 1
        return self._free

    def advance(self) -> None:
        """Bring the usage up to now: what waits has not passed yet."""
        passed = self._accepted - max(self._free - self.clock.now, 0.0)
        self.usage.busy += passed - self._passed
        self._passed = passed


class Machine:
    """Cores, and a link in each direction; no links for processes that reach each other by loopback."""

    def __init__(self, clock: Clock, name: str, cores: Cores, bytes_per_second: float | None) -> None:
        self.name, self.cores = name, cores
        self.sends = None if bytes_per_second is None else Link(clock, bytes_per_second)
        self.receives = None if bytes_per_second is None else Link(clock, bytes_per_second)

    def parts(self) -> Iterator[tuple[str, Usage]]:
        """The usage of each part, by name."""
        parts = {"cores": self.cores, "sends": self.sends, "receives": self.receives}
        for name, part in parts.items():
            if part is not None:
                part.advance()
                yield name, part.usage


def transfer(clock: Clock, size: float, source: Machine, target: Machine, latency: float, done: Action) -> None:
    """Send a message: it enters the target's link while it leaves the source's, `latency` seconds later."""
    sends, receives = source.sends, target.receives
    if source is target or sends is None or receives is None:
        clock.after(latency, done)
        return
    start, left = sends.start(), sends.occupy(size)

    def enter() -> None:
        passed = max(receives.occupy(size), left + latency)
        clock.after(passed - clock.now, done)

    clock.after(start + latency - clock.now, enter)
