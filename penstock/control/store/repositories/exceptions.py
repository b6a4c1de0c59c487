"""The newest errors of each job."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from penstock.control.store.repositories.pages import Page, read_page
from penstock.control.store.repositories.repository import Repository
from penstock.control.store.tables import exceptions

PER_JOB = 200


@dataclass(frozen=True, kw_only=True)
class JobException:
    """An error of a run."""

    id: int
    job: str
    at: float
    type: str
    message: str
    hint: str | None = None
    run: str | None = None


class JobExceptions(Repository):
    """At most `PER_JOB` errors of each job."""

    def add(
        self,
        job: str,
        type: str,
        message: str,
        *,
        hint: str | None = None,
        run: str | None = None,
        at: float | None = None,
    ) -> None:
        """Store an error; deletes the oldest of the job, once there are more than `PER_JOB`."""
        values = {"job": job, "type": type, "message": message, "hint": hint, "run": run}
        mine = exceptions.c.job == job
        oldest_kept = select(exceptions.c.id).where(mine).order_by(exceptions.c.id.desc()).offset(PER_JOB - 1).limit(1)
        with self._writing() as connection:
            connection.execute(insert(exceptions).values(**values, at=self._clock() if at is None else at))
            connection.execute(delete(exceptions).where(mine, exceptions.c.id < oldest_kept.scalar_subquery()))

    def page(self, job: str, cursor: str | None = None, limit: int = 50) -> Page[JobException]:
        """Return errors of a job, the newest first."""
        query = select(exceptions).where(exceptions.c.job == job)
        with self._reading() as connection:
            return read_page(connection, query, (exceptions.c.id,), JobException, cursor, limit)
