"""Looks after drivers: silent ones, stalled epochs, memory limits, and drivers that should have ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.control.machine.events import DriverLost, EpochStalled
from penstock.control.supervisor.capacity import GIB
from penstock.control.supervisor.drivers.driver import Driver
from penstock.control.supervisor.drivers.memory_usage import tree_memory
from penstock.control.supervisor.leader.assignments import memory_limit
from penstock.control.supervisor.leader.term import Term

_MEMORY_SECONDS = 5.0
# A driver whose only job has ended ends by itself, after its JVM.
_IDLE_SECONDS = 30.0
_logger = logging.getLogger(__name__)


class Watched(Term, Protocol):
    """A term that keeps what is measured."""

    def measured_memory(self, job: str, size: int) -> None:
        """Take the memory of a job's driver."""

    def reap(self) -> None:
        """Collect ended children."""


class StallDetector:
    """Finds jobs without a new epoch for too long, although there is input. Pure but for the clock."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._since: dict[str, tuple[str, int, float]] = {}

    def is_stalled(self, job: str, run: str, progress: Mapping[str, Any]) -> bool:
        """Take the progress of a job; say whether it stalls."""
        epoch, now = int(progress.get("epoch", -1)), self._clock()
        known = self._since.get(job)
        has_input = bool(progress.get("lag"))
        if known is None or known[:2] != (run, epoch) or not has_input or progress.get("state") != "running":
            self._since[job] = (run, epoch, now)
            return False
        return now - known[2] >= self._seconds


class Watchdog:
    """Looks every second; kills through the state machine, which knows why."""

    def __init__(self, term: Watched) -> None:
        self._term = term
        self._stalls = StallDetector(term.options.stall_seconds)
        self._memory_due = 0.0
        self._idle_since: dict[str, float] = {}

    async def look(self) -> None:
        """Look at all drivers once."""
        self._term.reap()
        for driver in self._term.drivers:
            if driver.silence() > self._term.options.lost_seconds:
                await self._lose(driver)
            else:
                self._look_for_stalls(driver)
            await self._end_idle(driver)
        if time.monotonic() >= self._memory_due:
            self._memory_due = time.monotonic() + _MEMORY_SECONDS
            await self._look_at_memory()

    async def _lose(self, driver: Driver) -> None:
        why = f"no heartbeat of the driver for {self._term.options.lost_seconds:g} s"
        for job, run in driver.runs.items():
            self._term.put(job, DriverLost(run, why))
        if not driver.runs:
            await driver.kill()

    def _look_for_stalls(self, driver: Driver) -> None:
        for job, run in driver.runs.items():
            progress = driver.progress.get(job)
            if progress is not None and self._stalls.is_stalled(job, run, progress):
                self._term.put(job, EpochStalled(run))

    async def _end_idle(self, driver: Driver) -> None:
        if driver.runs or driver.is_spare:
            self._idle_since.pop(driver.name, None)
            return
        since = self._idle_since.setdefault(driver.name, time.monotonic())
        if driver.group.pool is not None and time.monotonic() - since < _IDLE_SECONDS:
            return
        if driver.group.pool is not None:
            await driver.send({"type": "exit"})
        if time.monotonic() - since > 2 * _IDLE_SECONDS:
            _logger.warning("driver %s has no job and does not end: it is killed", driver.name)
            await driver.kill()

    async def _look_at_memory(self) -> None:
        drivers = list(self._term.drivers)
        sizes = await asyncio.to_thread(tree_memory, [driver.process.pid for driver in drivers])
        for driver in drivers:
            driver.resident = sizes.get(driver.process.pid, 0)
            self._check_memory(driver)

    def _check_memory(self, driver: Driver) -> None:
        jobs = [self._term.jobs[job] for job in driver.runs if job in self._term.jobs]
        limit = sum(memory_limit(job, self._term.options.capacity.memory) for job in jobs)
        for job in jobs:
            self._term.measured_memory(job.id, driver.resident // len(jobs))
        if not jobs or driver.resident <= limit:
            return
        why = f"the job uses {driver.resident / GIB:.1f} GiB of memory, and its limit is {limit / GIB:.1f} GiB"
        for job in jobs:
            self._term.put(job.id, DriverLost(driver.runs[job.id], why))
