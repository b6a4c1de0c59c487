"""Launches runs: in a spare driver, in the driver of a pool, or in a new one; and keeps spares ready."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets as random_names
from dataclasses import replace

import psutil

from penstock.control.machine.events import LaunchFailed
from penstock.control.machine.failure import Failure
from penstock.control.machine.instructions import Launch
from penstock.control.machine.states import JobState
from penstock.control.security.secrets import Secrets
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.supervisor.capacity import GIB
from penstock.control.supervisor.drivers.driver import Driver
from penstock.control.supervisor.drivers.registry import remove_old_runs, socket_path
from penstock.control.supervisor.leader.assignments import (
    Assigned,
    assign,
    group_of,
    job_settings,
    session_settings,
    write_assignment,
)
from penstock.control.supervisor.leader.term import Term
from penstock.errors import Fenced, PenstockError, StoreUnavailable

# A spare that ended before it was ready is not replaced at once: the next one would end in the same way.
_SPARE_PAUSE_SECONDS = 60.0
# The first epochs of a job need the cores that the start of a JVM would take.
_QUIET_SECONDS = 5.0
_SPARE_MEMORY = GIB
_logger = logging.getLogger(__name__)


class Launching:
    """Launches for one term of an active manager."""

    def __init__(self, term: Term, secrets: Secrets) -> None:
        self._term, self._secrets = term, secrets
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._spare_task: asyncio.Task[None] | None = None
        self._next_spare = 0.0
        self._choosing = asyncio.Lock()

    def launch(self, job: str, launch: Launch) -> None:
        """Launch a run, unless that is being done; its driver reports what comes of it."""
        if launch.run not in self._tasks:
            task = asyncio.create_task(self._launch(job, launch), name=f"launch {launch.run}")
            self._tasks[launch.run] = task
            task.add_done_callback(lambda _: self._tasks.pop(launch.run, None))

    def is_launching(self, run: str) -> bool:
        """Say whether a run has no driver yet because it is being launched."""
        return run in self._tasks

    async def abandon(self, run: str) -> None:
        """Stop launching a run."""
        await _cancel(self._tasks.get(run))

    async def close(self) -> None:
        """Stop launching; what was started is found by the next manager."""
        for task in (*self._tasks.values(), self._spare_task):
            await _cancel(task)

    async def _launch(self, job: str, launch: Launch) -> None:
        stored = self._term.jobs.get(job)
        if stored is None:
            return
        try:
            assigned = await asyncio.to_thread(self._assign, stored, launch)
            await self._start(stored, launch, assigned)
        except (Fenced, StoreUnavailable) as error:
            # The term ends by the same error; the next one launches what was not launched.
            _logger.warning("run %s: %s", launch.run, error.message)
        except PenstockError as error:
            self._failed(job, launch, error)
        except OSError as error:
            self._failed(job, launch, PenstockError(f"cannot launch a driver: {error.strerror}", transient=True))

    def _failed(self, job: str, launch: Launch, error: PenstockError) -> None:
        text = f"{error.node}: {error.message}" if error.node else error.message
        failure = Failure(type(error).__name__, text, error.hint, error.transient, error.exit_code)
        self._term.put(job, LaunchFailed(launch.run, failure))

    def _assign(self, job: StoredJob, launch: Launch) -> Assigned:
        term, options = self._term, self._term.options
        version = term.store.versions.get(job.id, launch.version)
        environment = self._secrets.environment(options.settings, version.settings, version.arguments)
        remove_old_runs(options.data, job.id, launch.attempt, options.runs_kept)
        return assign(job, version, launch, options.data, options.settings, term.token, environment)

    async def _start(self, job: StoredJob, launch: Launch, assigned: Assigned) -> None:
        # One at a time: two jobs must not take the same spare, nor start two drivers of one pool.
        async with self._choosing:
            driver = self._term.drivers.of_run(launch.run) or await self._waiting_driver(assigned)
            if driver is None:
                driver = await self._new_driver(launch, assigned)
            driver.runs[job.id], driver.has_had_job = launch.run, True
        # Stored before the driver gets the run, so that the next manager looks for it there.
        await asyncio.to_thread(self._record, job.id, launch.run, driver)
        if job.id in self._term.jobs:
            self._term.jobs[job.id] = replace(self._term.jobs[job.id], pid=driver.process.pid)
        if driver.name != launch.run and driver.is_connected:
            await driver.send(assigned.message)

    async def _new_driver(self, launch: Launch, assigned: Assigned) -> Driver:
        folder = self._term.options.data.run(launch.run).resolve()
        await asyncio.to_thread(write_assignment, folder, assigned.content)
        return await self._term.drivers.start(folder, assigned.group, assigned.environment)

    async def _waiting_driver(self, assigned: Assigned) -> Driver | None:
        """Return the driver of the job's pool, or a spare."""
        drivers, group = self._term.drivers, assigned.group
        if group.pool is None:
            return next(iter(drivers.spares(group)), None)
        found = drivers.pool(group)
        if found is not None:
            return found
        folder = self._term.options.data.run(f"pool-{random_names.token_hex(6)}").resolve()
        return await drivers.start(folder, group, {}, session_settings(assigned.content["settings"]))

    def _record(self, job: str, run: str, driver: Driver) -> None:
        with self._term.store.begin(self._term.token) as write:
            write.runs.update(
                run,
                pid=driver.process.pid,
                process_started=driver.process.started,
                socket=socket_path(driver.folder),
            )
            write.jobs.update(job, pid=driver.process.pid)

    # --- spares ------------------------------------------------------------------------------------

    def keep_spares(self) -> None:
        """Start the spares that are missing, when the machine has time and memory for it."""
        now = self._term.clock()
        if any(one.state is JobState.STARTING for one in self._term.machines.values()):
            self._next_spare = max(self._next_spare, now + _QUIET_SECONDS)
        busy = self._spare_task is not None and not self._spare_task.done()
        if not self._term.options.spares or busy or now < self._next_spare:
            return
        self._spare_task = asyncio.create_task(self._start_spares(), name="spares")

    async def _start_spares(self) -> None:
        options = self._term.options
        settings = job_settings(options.settings, {}, None, None)
        group = group_of(settings)
        if len(self._term.drivers.spares(group)) >= options.spares:
            return
        if psutil.virtual_memory().available < _SPARE_MEMORY:
            self._next_spare = self._term.clock() + _SPARE_PAUSE_SECONDS
            return
        try:
            environment = await asyncio.to_thread(self._secrets.environment, options.settings)
            if self._term.shutting_down:
                return
            await self._term.drivers.keep_spares(options.spares, group, session_settings(settings), environment)
        except (PenstockError, OSError) as error:
            _logger.warning("no spare driver: %s", error)
            self._next_spare = self._term.clock() + _SPARE_PAUSE_SECONDS

    def spare_ended(self, driver: Driver, exit_code: int | None) -> None:
        """A spare has ended; if it was never ready, the next one waits."""
        if not driver.hello and not self._term.shutting_down:
            _logger.warning("spare %s ended with code %s: see %s", driver.name, exit_code, driver.folder)
            self._next_spare = self._term.clock() + _SPARE_PAUSE_SECONDS


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
