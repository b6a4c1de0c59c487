"""What the holder of the lease does: it feeds events to the state machine and carries its instructions out.

It ends with the first error of the store, or with the lease, and leaves all drivers running. The next one, in this
process or another, adopts them. So there is one way to recover, from whatever happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import Any

from penstock.control.machine.events import (
    DoesNotFit,
    DriverGone,
    Event,
    FitsNow,
    LaunchFailed,
    ShutdownRequested,
    Submitted,
    TimerDue,
    command_event,
)
from penstock.control.machine.failure import Failure
from penstock.control.machine.job import Job
from penstock.control.machine.outstanding import outstanding
from penstock.control.machine.states import JobState
from penstock.control.security.secrets import Secrets
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.store.store import Store
from penstock.control.supervisor.drivers import reports as driver_reports
from penstock.control.supervisor.drivers.connection import Message
from penstock.control.supervisor.drivers.driver import Driver, read_outcome
from penstock.control.supervisor.drivers.launchers import LocalLauncher
from penstock.control.supervisor.drivers.registry import Drivers
from penstock.control.supervisor.event_bus import EventBus
from penstock.control.supervisor.leader.adoption import adopt
from penstock.control.supervisor.leader.assignments import share
from penstock.control.supervisor.leader.file_removal import remove_files_of_deleted_jobs
from penstock.control.supervisor.leader.instruction_handler import InstructionHandler
from penstock.control.supervisor.leader.launching import Launching
from penstock.control.supervisor.leader.recording import Recording
from penstock.control.supervisor.leader.term import SLOTS, Slots
from penstock.control.supervisor.leader.transitions import Applied, Transitions, machine_job
from penstock.control.supervisor.leader.watchdog import Watchdog
from penstock.control.supervisor.options import Options
from penstock.errors import Fenced, PenstockError

_POLL_SECONDS = 1.0
_TICK_SECONDS = 1.0
_PRUNE_SECONDS = 300.0
_SHUTDOWN_SECONDS = 120.0
_logger = logging.getLogger(__name__)


class ActiveManager:
    """One term of an active manager, with the fencing token of its lease."""

    def __init__(
        self,
        store: Store,
        token: int,
        options: Options,
        launcher: LocalLauncher,
        bus: EventBus,
        recording: Recording,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.token, self.options, self.clock = store, token, options, clock
        self.bus, self.launcher, self.recording = bus, launcher, recording
        self.drivers = Drivers(options.data, launcher, token, self, time.monotonic)
        self.jobs: dict[str, StoredJob] = {}
        self.machines: dict[str, Job] = {}
        self.shutting_down = False
        self._transitions = Transitions(store, token, clock, lambda: random.uniform(-1, 1), launcher.name)
        self._events: asyncio.Queue[tuple[str, Event | Slots]] = asyncio.Queue()
        self._delivered: set[str] = set()
        self._wake = asyncio.Event()
        self._refused: str | None = None
        self.launching = Launching(self, Secrets(options.data.secrets, stored=store.secrets.value))
        self._handler = InstructionHandler(self, self.launching)
        self._watchdog = Watchdog(self)

    # --- the loop ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Act until the lease or the store is lost; raises what ended it."""
        try:
            await adopt(self)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work())
                group.create_task(self._read_commands())
                group.create_task(self._tick())
                group.create_task(self.recording.run(self))
                group.create_task(self._prune())
                group.create_task(self._autoscale())
        finally:
            self._handler.close()
            await self.launching.close()
            await self.drivers.leave_all()

    def wake(self) -> None:
        """Look for commands and new jobs now."""
        self._wake.set()

    def put(self, job: str, event: Event | Slots) -> None:
        """Queue an event of a job."""
        self._events.put_nowait((job, event))

    def resume(self, job: str) -> None:
        """Carry out what is outstanding for a job."""
        self._handler.carry_out(job, outstanding(self.machines[job]))

    def measured_memory(self, job: str, size: int) -> None:
        """Take the memory of a job's driver."""
        self.recording.measurements.of(job, self.jobs[job].name).memory = size

    def reap(self) -> None:
        """Collect ended children."""
        self.launcher.reap()

    async def shut_down(self) -> None:
        """Stop all jobs cleanly, and leave them to be resumed; end the spares."""
        self.shutting_down = True
        for job, machine in self.machines.items():
            if machine.state.has_run:
                self.put(job, ShutdownRequested())
        deadline = time.monotonic() + _SHUTDOWN_SECONDS
        while any(one.state.has_run for one in self.machines.values()) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        await self.drivers.end_idle()

    async def leave(self) -> None:
        """Leave all jobs running, for the next manager; end the spares, and start no other."""
        self.shutting_down = True
        await self.drivers.end_idle()

    async def _work(self) -> None:
        while True:
            job, event = await self._events.get()
            found = self._slots(job) if isinstance(event, Slots) else event
            if found is None or (self.shutting_down and isinstance(found, (FitsNow, TimerDue))):
                continue
            applied = await asyncio.to_thread(self._transitions.apply, job, found)
            if applied is not None:
                self._take(applied)

    def _take(self, applied: Applied) -> None:
        job = applied.job
        had_run = job.id in self.machines and self.machines[job.id].run
        self.jobs[job.id], self.machines[job.id] = job, applied.machine
        if had_run and applied.machine.run != had_run:
            self._release(job.id)
        if applied.states or applied.machine.deleted:
            self._publish_state(applied)
        self._handler.carry_out(job.id, applied.instructions)
        if applied.machine.state.is_final:
            del self.jobs[job.id], self.machines[job.id]
        if applied.machine.deleted:
            self.recording.forget(job.id)

    def _publish_state(self, applied: Applied) -> None:
        states = [str(state) for state in applied.states]
        error = applied.machine.error.summary if applied.machine.error else None
        path = " -> ".join(states) or "deleted"
        ends: dict[str, Any] = {"from": str(applied.before), "to": str(applied.machine.state)}
        _logger.info("job %s (%s): %s: %s", applied.job.name, applied.job.id, path, applied.cause)
        self.bus.publish(
            "deleted" if applied.machine.deleted else "state",
            applied.job.id,
            name=applied.job.name,
            **ends,
            states=states,
            cause=applied.cause,
            error=error,
        )

    def _release(self, job: str) -> None:
        """The run of a job is over: its driver has room, and so has the machine."""
        for driver in self.drivers:
            driver.runs.pop(job, None)
            driver.progress.pop(job, None)
        for waiting, machine in self.machines.items():
            if machine.state is JobState.CREATED and waiting != job:
                self.put(waiting, SLOTS)

    def _slots(self, job: str) -> Event | None:
        stored, machine = self.jobs.get(job), self.machines.get(job)
        if stored is None or machine is None or machine.state is not JobState.CREATED or self.shutting_down:
            return None
        used = [share(one) for id, one in self.jobs.items() if id != job and self.machines[id].state.has_run]
        refusal = self.options.capacity.refusal(share(stored), used)
        return FitsNow() if refusal is None else DoesNotFit(refusal)

    async def _read_commands(self) -> None:
        while True:
            self._wake.clear()
            if self._refused is not None:
                raise Fenced(self._refused, hint="another job manager has taken over")
            for command in await asyncio.to_thread(self.store.commands.open):
                if command.id not in self._delivered:
                    self._delivered.add(command.id)
                    await self._deliver(command.job, command.kind, command.id, command.arguments)
            for job in await asyncio.to_thread(self.store.jobs.all, [JobState.CREATED]):
                if job.id not in self.machines and not self.shutting_down:
                    self.jobs[job.id], self.machines[job.id] = job, machine_job(job)
                    self.put(job.id, Submitted())
            await _wait(self._wake, _POLL_SECONDS)

    async def _deliver(self, job: str, kind: str, command: str, arguments: dict[str, Any]) -> None:
        stored = await asyncio.to_thread(self.store.jobs.find, job)
        try:
            if stored is None:
                message = "the job is deleted"
                raise PenstockError(message)
            event = command_event(kind, command, arguments)
        except PenstockError as error:
            await asyncio.to_thread(self._refuse, command, str(error))
            return
        self.put(job, event)

    def _refuse(self, command: str, why: str) -> None:
        with self.store.begin(self.token) as write:
            write.commands.finish(command, failed=True, message=why)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            await self._watchdog.look()
            if not self.shutting_down:
                self.launching.keep_spares()

    async def _prune(self) -> None:
        while True:
            # First at the start: a manager may have been killed before it had removed the files of a deleted job.
            await asyncio.to_thread(remove_files_of_deleted_jobs, self.options.data, self.store)
            await asyncio.sleep(_PRUNE_SECONDS)
            await asyncio.to_thread(self.store.prune)

    async def _autoscale(self) -> None:
        from penstock.control.supervisor.leader.autoscaler import autoscale

        while True:
            await asyncio.sleep(self.options.autoscale_seconds)
            await autoscale(self)

    # --- what drivers report -----------------------------------------------------------------------

    def connected(self, driver: Driver) -> None:
        """Repeat to the driver what it has to do, and take what it says of its jobs."""
        here = driver.hello.get("jobs") or {}
        for job, run in tuple(driver.runs.items()):
            machine = self.machines.get(job)
            if machine is None or machine.run != run:
                continue
            if here.get(job) == "running" and machine.state is JobState.STARTING and driver.group.pool is None:
                self.put(job, driver_reports.event_of({"kind": "running"}, run, "") or SLOTS)
            self._handler.repeat(driver, machine, outstanding(machine), has_job=job in here)

    def heard(self, driver: Driver, message: Message) -> None:
        """Take an event of a driver."""
        job = str(message.get("job"))
        run = driver.runs.get(job)
        if run is None or not _is_of_run(driver, job, run, message):
            return
        stored = self.jobs.get(job)
        is_epoch = message.get("kind") == "epoch"
        if is_epoch and stored is not None and self.recording.take_epoch(stored, run, message):
            self.bus.publish("epoch", job, detail=driver_reports.shown_nodes(message), **driver_reports.shown(message))
        event = driver_reports.event_of(message, run, self.options.data.job_savepoints(job))
        if event is not None:
            self.put(job, event)
            if stored is not None:
                self.recording.take_savepoint(stored, event, self.options.data.job_savepoints(job))

    def rejected(self, driver: Driver, message: Message) -> None:
        """Take what a driver refused to do."""
        job = str(message.get("job"))
        run = driver.runs.get(job)
        reason = str(message.get("message"))
        if run is not None and message.get("request") == "run":
            self.put(job, LaunchFailed(run, Failure("DriverRefused", reason, transient=True)))
        elif run is not None and "no such job" in reason:
            self.put(job, DriverGone(run, "the driver does not have the job"))

    def gone(self, driver: Driver) -> None:
        """The driver has ended: its jobs ended as it wrote, or with it."""
        code = self.launcher.exit_code(driver.process)
        self.drivers.forget(driver)
        if driver.is_spare:
            self.launching.spare_ended(driver, code)
        for job, run in driver.runs.items():
            self.put(job, self.end_of(job, run, driver, code))

    def end_of(self, job: str, run: str, driver: Driver, code: int | None) -> Event:
        """Return how a run ended whose driver has ended."""
        outcome = read_outcome(driver.folder, job)
        if outcome is not None and run.endswith(f"-{outcome.get('attempt')}"):
            return driver_reports.ended(outcome, run, self.options.data.job_savepoints(job))
        return driver_reports.gone(run, code)

    def refused(self, reason: str) -> None:
        """A driver knows a newer manager."""
        self._refused = reason
        self.wake()


def _is_of_run(driver: Driver, job: str, run: str, message: Message) -> bool:
    """Say whether an event is of the present run: a driver of a pool may replay those of an earlier one."""
    if isinstance(message.get("attempt"), int):
        driver.attempts[job] = message["attempt"]
    attempt = driver.attempts.get(job)
    return attempt is None or run.endswith(f"-{attempt}")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
