"""The savepoints that jobs were asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import delete, select

from penstock.control.store.repositories.pages import Page, read_page
from penstock.control.store.repositories.repository import Repository, insert_into, record
from penstock.control.store.tables import savepoints


@dataclass(frozen=True, kw_only=True)
class Savepoint:
    """A savepoint of a job; `state` is creating, complete or failed, and `message` says why it failed."""

    job: str
    name: str
    path: str
    created_at: float = 0.0
    state: str = "creating"
    version: int = 1
    message: str | None = None


class Savepoints(Repository):
    """Savepoints by the name of each job."""

    def put(self, savepoint: Savepoint) -> Savepoint:
        """Store a savepoint, or change what is stored of it."""
        stored = asdict(savepoint) | {"created_at": savepoint.created_at or self._clock()}
        with self._writing() as connection:
            query = insert_into(connection, savepoints).values(stored)
            keys = [savepoints.c.job, savepoints.c.name]
            connection.execute(query.on_conflict_do_update(index_elements=keys, set_=stored))
        return Savepoint(**stored)

    def find(self, job: str, name: str) -> Savepoint | None:
        """Return a savepoint, or None."""
        query = select(savepoints).where(savepoints.c.job == job, savepoints.c.name == name)
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else record(Savepoint, row)

    def remove(self, job: str, name: str) -> bool:
        """Delete the row of a savepoint; return whether it existed."""
        query = delete(savepoints).where(savepoints.c.job == job, savepoints.c.name == name)
        with self._writing() as connection:
            return connection.execute(query).rowcount > 0

    def page(self, job: str, cursor: str | None = None, limit: int = 50) -> Page[Savepoint]:
        """Return savepoints of a job, the newest first."""
        query = select(savepoints).where(savepoints.c.job == job)
        with self._reading() as connection:
            return read_page(connection, query, (savepoints.c.created_at, savepoints.c.name), Savepoint, cursor, limit)
