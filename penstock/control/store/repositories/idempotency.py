"""Idempotency keys: a request that is sent again within a day creates nothing again."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, select

from penstock.control.store.repositories.repository import Repository, insert_into, record
from penstock.control.store.tables import idempotency_keys as keys

SECONDS = 86_400


@dataclass(frozen=True)
class IdempotencyKey:
    """Which request had a key: its digest, and the job that it created."""

    key: str
    digest: str
    job: str
    at: float


class IdempotencyKeys(Repository):
    """The keys of the last 24 hours."""

    def claim(self, key: str, digest: str, job: str) -> IdempotencyKey | None:
        """Take a key for a request, in the transaction that creates the job.

        Returns None if the key is new, or else the request that had it: with the same digest, answer with its job;
        with another, refuse.
        """
        now = self._clock()
        with self._writing() as connection:
            connection.execute(delete(keys).where(keys.c.key == key, keys.c.at < now - SECONDS))
            query = insert_into(connection, keys).values(key=key, digest=digest, job=job, at=now)
            # PostgreSQL waits here for another transaction that has the key, so the answer is final.
            taken = connection.execute(query.on_conflict_do_nothing().returning(keys.c.key)).one_or_none()
            if taken is not None:
                return None
            return record(IdempotencyKey, connection.execute(select(keys).where(keys.c.key == key)).one())

    def find(self, key: str) -> IdempotencyKey | None:
        """Return the request that had a key in the last 24 hours, or None."""
        query = select(keys).where(keys.c.key == key, keys.c.at >= self._clock() - SECONDS)
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else record(IdempotencyKey, row)

    def prune(self, now: float) -> int:
        """Delete keys that are older than a day; return how many."""
        with self._writing() as connection:
            return connection.execute(delete(keys).where(keys.c.at < now - SECONDS)).rowcount
