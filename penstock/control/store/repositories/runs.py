"""The runs: which process ran which version of a job, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, Unpack

from sqlalchemy import delete, select, update

from penstock.control.store.repositories.pages import Page, read_page
from penstock.control.store.repositories.repository import Repository, insert_into, record
from penstock.control.store.tables import runs

_ENDED_SECONDS = 30 * 86_400


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a job by a driver, or a spare driver, which has no job.

    `pid` and `process_started` together identify a process. `token` is the fencing token it was started with.
    """

    id: str
    job: str | None = None
    version: int | None = None
    attempt: int = 0
    launcher: str = "local"
    pid: int | None = None
    process_started: float | None = None
    socket: str | None = None
    token: int | None = None
    started_at: float = 0.0
    ended_at: float | None = None
    outcome: str | None = None
    exit_code: int | None = None
    error: dict[str, Any] | None = None


class RunChanges(TypedDict, total=False):
    """What of a run can change."""

    job: str | None
    version: int | None
    attempt: int
    pid: int | None
    process_started: float | None
    socket: str | None
    token: int | None
    started_at: float
    ended_at: float | None
    outcome: str | None
    exit_code: int | None
    error: dict[str, Any] | None


class Runs(Repository):
    """Runs that have not ended, and those that ended in the last month."""

    def add(self, run: Run) -> Run:
        """Store a run; again, it replaces the run of the same id."""
        stored = asdict(run) | {"started_at": run.started_at or self._clock()}
        with self._writing() as connection:
            query = insert_into(connection, runs).values(stored)
            connection.execute(query.on_conflict_do_update(index_elements=[runs.c.id], set_=stored))
        return Run(**stored)

    def update(self, run: str, **changes: Unpack[RunChanges]) -> bool:
        """Change fields of a run; return whether it exists."""
        with self._writing() as connection:
            return connection.execute(update(runs).where(runs.c.id == run).values(**changes)).rowcount > 0

    def find(self, run: str) -> Run | None:
        """Return a run, or None."""
        with self._reading() as connection:
            row = connection.execute(select(runs).where(runs.c.id == run)).one_or_none()
        return None if row is None else record(Run, row)

    def running(self, jobs: Iterable[str] | None = None) -> list[Run]:
        """Return the runs that have not ended, of all jobs and spares or of some jobs: what a new manager adopts."""
        query = select(runs).where(runs.c.ended_at.is_(None)).order_by(runs.c.started_at, runs.c.id)
        if jobs is not None:
            query = query.where(runs.c.job.in_(list(jobs)))
        with self._reading() as connection:
            return [record(Run, row) for row in connection.execute(query)]

    def page(self, job: str, cursor: str | None = None, limit: int = 50) -> Page[Run]:
        """Return runs of a job, the newest first."""
        keys = (runs.c.started_at, runs.c.id)
        query = select(runs).where(runs.c.job == job)
        with self._reading() as connection:
            return read_page(connection, query, keys, Run, cursor, limit)

    def prune(self, now: float, keep: float = _ENDED_SECONDS) -> int:
        """Delete runs that ended long ago; return how many."""
        with self._writing() as connection:
            return connection.execute(delete(runs).where(runs.c.ended_at < now - keep)).rowcount
