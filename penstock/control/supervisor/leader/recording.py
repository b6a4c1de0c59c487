"""Records what jobs measure: epochs, the newest progress, savepoints, and series, in batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.control.machine.events import Event, SavepointCreated, SavepointFailed
from penstock.control.store.repositories.epochs import Epoch
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.store.repositories.nodes import NodeFigures
from penstock.control.store.repositories.savepoints import Savepoint
from penstock.control.store.rollup import Sample
from penstock.control.store.store import Store
from penstock.control.supervisor.drivers.reports import epoch_of
from penstock.control.supervisor.leader.measurements import JobStatus, Measurements
from penstock.control.supervisor.leader.term import Term

_FLUSH_SECONDS = 1.0
# While the store is away epochs are dropped, oldest first: a manager must not grow.
_MOST_EPOCHS = 10_000
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Waiting:
    """What is stored together."""

    epochs: list[Epoch]
    first_epochs: Mapping[str, int]
    savepoints: list[Savepoint]
    progress: Mapping[str, dict[str, Any]]
    nodes: Mapping[str, NodeFigures]
    samples: list[Sample]

    def __bool__(self) -> bool:
        return bool(self.epochs or self.savepoints or self.progress or self.nodes or self.samples)

    @property
    def jobs(self) -> set[str]:
        """The jobs that something is to be stored of, but for samples."""
        named = (*(epoch.job for epoch in self.epochs), *(savepoint.job for savepoint in self.savepoints))
        return {*self.progress, *self.nodes, *named}


class Recording:
    """What waits to be stored, and the measurements of all jobs. It outlives the terms of its manager."""

    def __init__(self) -> None:
        self.measurements = Measurements()
        self._epochs: list[Epoch] = []
        self._savepoints: list[Savepoint] = []
        self._progress: dict[str, dict[str, Any]] = {}
        self._nodes: dict[str, NodeFigures] = {}
        self._first_epochs: dict[str, int] = {}

    def take_epoch(self, job: StoredJob, run: str, message: Mapping[str, Any]) -> bool:
        """Take an epoch of a job; return whether it is new, or was replayed by a driver."""
        measured, epoch = self.measurements.of(job.id, job.name), epoch_of(message, job.id, run)
        is_first = measured.run != run
        if not measured.take_epoch(message, run):
            return False
        if is_first:
            self._first_epochs[job.id] = epoch.number
        self._epochs = [*self._epochs[-_MOST_EPOCHS:], epoch]
        self._progress[job.id] = dict(measured.progress)
        if message.get("nodes"):
            self._nodes[job.id] = NodeFigures(job=job.id, epoch=epoch.number, at=epoch.at, nodes=measured.nodes)
        return True

    def take_progress(self, job: StoredJob, progress: Mapping[str, Any]) -> None:
        """Take what a heartbeat says of a job."""
        measured = self.measurements.of(job.id, job.name)
        is_older = measured.run == job.run and int(progress.get("epoch", -1)) < measured.newest_epoch
        # Heartbeats come every few seconds: what an epoch has reported meanwhile is newer.
        if measured.progress != progress and not is_older:
            measured.take_progress(progress)
            self._progress[job.id] = _with_epoch(progress, job.progress or {})

    def take_savepoint(self, job: StoredJob, event: Event, folder: str) -> None:
        """Take a savepoint that a driver has created, or failed to create."""
        match event:
            case SavepointCreated(_, name, path):
                self._savepoints.append(
                    Savepoint(job=job.id, name=name, path=path, state="complete", version=job.version)
                )
            case SavepointFailed(_, name, error):
                failed = Savepoint(
                    job=job.id,
                    name=name,
                    path=f"{folder}/{name}",
                    state="failed",
                    version=job.version,
                    message=error.summary,
                )
                self._savepoints.append(failed)
            case _:
                pass

    def forget(self, job: str) -> None:
        """Forget a deleted job."""
        self.measurements.forget(job)
        self._progress.pop(job, None)
        self._nodes.pop(job, None)
        self._epochs = [epoch for epoch in self._epochs if epoch.job != job]
        self._savepoints = [one for one in self._savepoints if one.job != job]

    async def run(self, term: Term) -> None:
        """Store what is new, every second; and samples, every ten."""
        due = 0.0
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            for driver in term.drivers:
                for job, progress in driver.progress.items():
                    if job in term.jobs and job in driver.runs:
                        self.take_progress(term.jobs[job], progress)
            samples: list[Sample] = []
            now = term.clock()
            if now >= due:
                due = now + term.options.sample_seconds
                samples = self._samples(term.jobs.values(), now)
            await self.flush(term.store, term.token, samples)

    async def flush(self, store: Store, token: int, samples: Iterable[Sample] = ()) -> None:
        """Store what waits."""
        waiting = _Waiting(
            self._epochs, self._first_epochs, self._savepoints, self._progress, self._nodes, list(samples)
        )
        if not waiting:
            return
        self._first_epochs, self._epochs, self._savepoints, self._progress, self._nodes = {}, [], [], {}, {}
        await asyncio.to_thread(_write, store, token, waiting)

    def _samples(self, jobs: Iterable[StoredJob], now: float) -> list[Sample]:
        return [sample for job in jobs for sample in self.measurements.stored_samples(status(job), now)]


def _with_epoch(progress: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a heartbeat says; before the first epoch of a run, with the newest of the run before."""
    is_new = progress.get("epoch") is None or progress["epoch"] < 0
    return {**progress, "epoch": before.get("epoch", -1)} if is_new else dict(progress)


def status(job: StoredJob) -> JobStatus:
    """Return what the metrics need of a stored job; one that does not run has no uptime."""
    return JobStatus(job.id, job.state, job.restarts, job.started_at if job.run else None, job.parallelism)


def _write(store: Store, token: int, waiting: _Waiting) -> None:
    with store.begin(token) as write:
        existing = {job for job in waiting.jobs if write.jobs.find(job)}
        for job, number in waiting.first_epochs.items():
            if job in existing:
                # A run that was restored from a savepoint counts from there again.
                write.epochs.forget_after(job, number - 1)
        write.epochs.add(epoch for epoch in waiting.epochs if epoch.job in existing)
        for savepoint in waiting.savepoints:
            if savepoint.job in existing:
                write.savepoints.put(savepoint)
        for job, values in waiting.progress.items():
            if job in existing:
                write.jobs.update(job, progress=values)
        write.nodes.put(figures for job, figures in waiting.nodes.items() if job in existing)
        write.series.record(waiting.samples)
