"""The newest epochs of each job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import delete, select

from penstock.control.store.repositories.pages import Page, read_page
from penstock.control.store.repositories.repository import Repository, insert_into
from penstock.control.store.tables import epochs

PER_JOB = 1_000


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A committed epoch; `phases` has durations in ms, `watermark` is in seconds since the epoch."""

    job: str
    number: int
    run: str | None = None
    at: float
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    rejected: int = 0
    duration_ms: float = 0
    phases: dict[str, Any] | None = None
    watermark: float | None = None


class Epochs(Repository):
    """At most `PER_JOB` epochs of each job, those with the largest numbers."""

    def add(self, added: Iterable[Epoch]) -> None:
        """Store epochs; one that comes again, because a manager was killed, replaces itself."""
        rows = sorted((asdict(epoch) for epoch in added), key=lambda row: (row["job"], row["number"]))
        if not rows:
            return
        newest = {row["job"]: row["number"] for row in rows}
        with self._writing() as connection:
            query = insert_into(connection, epochs)
            changes = {column.key: column for column in query.excluded if not column.primary_key}
            keys = [epochs.c.job, epochs.c.number]
            connection.execute(query.on_conflict_do_update(index_elements=keys, set_=changes), rows)
            for job, number in newest.items():
                old = epochs.c.number <= number - PER_JOB
                connection.execute(delete(epochs).where(epochs.c.job == job, old))

    def forget_after(self, job: str, number: int) -> int:
        """Delete the epochs after one: the job was restored from there, and counts from there again."""
        with self._writing() as connection:
            return connection.execute(delete(epochs).where(epochs.c.job == job, epochs.c.number > number)).rowcount

    def newest(self, job: str) -> Epoch | None:
        """Return the epoch with the largest number, or None."""
        return next(iter(self.page(job, limit=1).items), None)

    def page(self, job: str, cursor: str | None = None, limit: int = 50) -> Page[Epoch]:
        """Return epochs of a job, the newest first."""
        query = select(epochs).where(epochs.c.job == job)
        with self._reading() as connection:
            return read_page(connection, query, (epochs.c.number,), Epoch, cursor, limit)
