"""Adoption: a new manager finds the drivers that run, and learns how those ended that do not."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Protocol

from penstock.control.machine.job import Job
from penstock.control.machine.states import ACTIVE, JobState
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.store.repositories.runs import Run
from penstock.control.supervisor.drivers import reports as driver_reports
from penstock.control.supervisor.drivers.driver import Group, read_outcome
from penstock.control.supervisor.drivers.processes import kill_all
from penstock.control.supervisor.drivers.registry import end_orphans, find_process, folder_of
from penstock.control.supervisor.leader.assignments import group_of, job_settings
from penstock.control.supervisor.leader.term import Term
from penstock.control.supervisor.leader.transitions import machine_job
from penstock.control.supervisor.pending_submissions import remove_abandoned

_logger = logging.getLogger(__name__)


class Adopter(Term, Protocol):
    """A term that can continue a job where it is."""

    def resume(self, job: str) -> None:
        """Carry out what is outstanding for a job."""


async def adopt(term: Adopter) -> None:
    """Take over all jobs: attach to their drivers, read outcomes, and go on with what was not carried out."""
    jobs = await asyncio.to_thread(term.store.jobs.all, ACTIVE)
    runs = {run.id: run for run in await asyncio.to_thread(term.store.runs.running)}
    for job in jobs:
        term.jobs[job.id], term.machines[job.id] = job, machine_job(job)
        if term.machines[job.id].run is not None:
            await _adopt_run(term, job, term.machines[job.id], runs)
    await asyncio.to_thread(_end_lost_runs, term, runs)
    await asyncio.to_thread(remove_abandoned, term.options.data, term.store)
    orphans = await asyncio.to_thread(end_orphans, term.options.data, [driver.name for driver in term.drivers])
    if orphans:
        _logger.info("drivers without a job were ended: %s", ", ".join(orphans))
    for job in jobs:
        term.resume(job.id)


async def _adopt_run(term: Adopter, job: StoredJob, machine: Job, runs: dict[str, Run]) -> None:
    assert machine.run is not None
    run = runs.get(machine.run) or Run(id=machine.run, job=job.id)
    folder = folder_of(term.options.data, run.id, run.socket)
    process = await asyncio.to_thread(find_process, folder, run.pid, run.process_started)
    if process is None:
        await asyncio.to_thread(kill_all, folder.name)
        _report_end(term, job, machine, run, folder)
        return
    driver = term.drivers.adopt(folder, process, _group(term, job, run))
    driver.runs[job.id], driver.has_had_job = run.id, True
    if machine.state is not JobState.STARTING:
        driver.expect_answer()
    _logger.info("job %s (%s): driver %d is adopted", job.name, job.id, process.pid)


def _report_end(term: Adopter, job: StoredJob, machine: Job, run: Run, folder: Path) -> None:
    outcome = read_outcome(folder, job.id)
    if outcome is not None and outcome.get("attempt") == machine.attempt:
        term.put(job.id, driver_reports.ended(outcome, run.id, term.options.data.job_savepoints(job.id)))
    elif run.pid is not None or machine.state is not JobState.STARTING:
        term.put(job.id, driver_reports.gone(run.id, None))
    # Else it was stored and never launched, and is launched now.


def _group(term: Adopter, job: StoredJob, run: Run) -> Group:
    version = term.store.versions.get(job.id, run.version or job.version)
    settings = job_settings(term.options.settings, version.settings, job.memory, job.parallelism)
    return group_of(settings, job.pool)


def _end_lost_runs(term: Adopter, runs: dict[str, Run]) -> None:
    """Close the rows of runs that no job has any more."""
    current = {machine.run for machine in term.machines.values()}
    with term.store.begin(term.token) as write:
        for run in runs.values():
            if run.id not in current:
                write.runs.update(run.id, ended_at=term.clock(), outcome="lost")
