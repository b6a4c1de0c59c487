"""The history of a job: every transition of its state, with its cause."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select

from penstock.control.store.repositories.pages import Page, read_page
from penstock.control.store.repositories.repository import Repository
from penstock.control.store.tables import transitions

PER_JOB = 1_000


@dataclass(frozen=True)
class Transition:
    """One transition; the first one of a job has no `from_state`."""

    job: str
    seq: int
    from_state: str | None
    to_state: str
    cause: str
    at: float


class Transitions(Repository):
    """The newest transitions of each job."""

    def add(self, job: str, from_state: str | None, to_state: str, cause: str, at: float | None = None) -> Transition:
        """Store a transition; deletes the oldest of the job, once there are more than `PER_JOB`."""
        with self._writing() as connection:
            newest = select(func.coalesce(func.max(transitions.c.seq), 0)).where(transitions.c.job == job)
            seq = int(connection.execute(newest).scalar_one()) + 1
            stored = Transition(job, seq, from_state, to_state, cause, self._clock() if at is None else at)
            connection.execute(insert(transitions).values(vars(stored)))
            old = transitions.c.seq <= seq - PER_JOB
            connection.execute(delete(transitions).where(transitions.c.job == job, old))
        return stored

    def page(self, job: str, cursor: str | None = None, limit: int = 50) -> Page[Transition]:
        """Return transitions of a job, the newest first."""
        query = select(transitions).where(transitions.c.job == job)
        with self._reading() as connection:
            return read_page(connection, query, (transitions.c.seq,), Transition, cursor, limit)
