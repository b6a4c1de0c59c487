"""A job in miniature: a queue with an arrival rate, served by cores. Rescaling it takes some seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import pi, sin
from random import Random

from penstock.control.autoscaling.decisions import Decision, decide
from penstock.control.autoscaling.figures import Sample
from penstock.control.autoscaling.policies import AutoscalingPolicy
from penstock.control.autoscaling.state import ScalingState

Trace = Callable[[float], float]  # time in seconds -> rows per second
EPOCH = 2.0
TICK = 5  # seconds


def constant(rate: float) -> Trace:
    return lambda _: rate


def step(before: float, after: float, at: float) -> Trace:
    return lambda time: before if time < at else after


def ramp(start: float, end: float, seconds: float) -> Trace:
    return lambda time: start + (end - start) * min(1.0, time / seconds)


def sine(low: float, high: float, period: float) -> Trace:
    return lambda time: low + (high - low) * (1 - sin(pi / 2 + 2 * pi * time / period)) / 2


def bursts(low: float, high: float, every: float, length: float) -> Trace:
    return lambda time: high if time % every < length else low


@dataclass
class Change:
    at: float
    before: int
    after: int
    reason: str


@dataclass
class Simulation:
    """Runs a trace, with a sample every 10 s and a decision every 30 s."""

    policy: AutoscalingPolicy
    trace: Trace
    rows_per_core: float = 1_000.0
    efficiency: float = 1.0  # below 1, twice the cores are less than twice the rate
    downtime: float = 15.0
    parallelism: int = 1
    noise: float = 0.0
    measures_busy: bool = True
    queue: float = 0.0
    seed: int = 0
    now: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    state: ScalingState = field(init=False)
    _up_at: float = 0.0
    _processed: float = 0.0
    _busy: float = 0.0
    _ticks: int = 0

    def __post_init__(self) -> None:
        self.state = ScalingState(self.parallelism)
        self.random = Random(self.seed)

    @property
    def service_rate(self) -> float:
        return self.rows_per_core * self.parallelism**self.efficiency

    def run(self, seconds: int) -> Simulation:
        for _ in range(seconds // TICK):
            self._tick()
            if self.now % 10 == 0 and self._ticks:
                self._sample()
            if self.now % 30 == 0 and self.now >= self._up_at:
                self._decide()
        return self

    def _tick(self) -> None:
        self.now += TICK
        self.queue += TICK * self.trace(self.now) * (1 + self.noise * self.random.uniform(-1, 1))
        self.lags.append(self.queue)
        self.levels.append(self.parallelism)
        if self.now < self._up_at:
            return
        done = min(self.queue, TICK * self.service_rate)
        self.queue -= done
        self._processed += done / TICK
        self._busy += done / (TICK * self.service_rate)
        self._ticks += 1

    def _sample(self) -> None:
        rows = self._processed / self._ticks
        sample = Sample(
            at=self.now,
            parallelism=self.parallelism,
            lag=self.queue + rows * EPOCH,  # the rows of the epoch that is being processed are not committed
            rows=rows,
            busy=self._busy / self._ticks if self.measures_busy else None,
            latency=EPOCH / 4 + self.queue / self.service_rate,
        )
        self.samples = [*self.samples[-90:], sample]
        self._processed = self._busy = self._ticks = 0

    def _decide(self) -> Decision:
        decision = decide(self.policy, self.samples, self.state, self.now)
        if decision.changes:
            self.changes.append(Change(self.now, self.parallelism, decision.parallelism, decision.reason))
            self.parallelism, self.state = decision.parallelism, decision.state
            self._up_at = self.now + self.downtime
            self._processed = self._busy = self._ticks = 0
        return decision

    def changes_after(self, time: float) -> list[Change]:
        return [change for change in self.changes if change.at > time]

    @property
    def reversals(self) -> int:
        """How often the direction of the changes turned."""
        directions = [change.after > change.before for change in self.changes]
        return sum(1 for first, second in pairwise(directions) if first != second)
