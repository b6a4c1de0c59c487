"""Leases: which of several managers is the active one. All times are those of the database's clock."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import or_, select, update

from penstock.control.store.columns import DatabaseClock
from penstock.control.store.repositories.repository import Repository, insert_into, record
from penstock.control.store.tables import leases

MANAGER = "manager"


@dataclass(frozen=True)
class Lease:
    """Who holds a lease, with which fencing token; `remaining` seconds are left of it, below 0 it has expired."""

    name: str
    holder: str
    token: int
    remaining: float


class Leases(Repository):
    """Leases by name. The token of a lease grows with every holder, and never goes back."""

    def acquire(self, name: str, holder: str, period: float, *, replaces: int | None = None) -> int | None:
        """Take a lease that nobody has or that has expired; return its new token, or None.

        `replaces` is the token of a holder that is known to be dead: its lease is taken before it expires.
        """
        now = DatabaseClock()
        with self._writing() as connection:
            query = insert_into(connection, leases).values(name=name, holder=holder, token=1, expires_at=now + period)
            free = or_(leases.c.expires_at <= now, leases.c.token == replaces)
            taken = {"holder": holder, "token": leases.c.token + 1, "expires_at": now + period}
            query = query.on_conflict_do_update(index_elements=[leases.c.name], set_=taken, where=free)
            token: int | None = connection.execute(query.returning(leases.c.token)).scalar_one_or_none()
        return token

    def renew(self, name: str, token: int, period: float) -> bool:
        """Hold a lease for another period; return whether it still has this token."""
        mine = (leases.c.name == name, leases.c.token == token)
        with self._writing() as connection:
            query = update(leases).where(*mine).values(expires_at=DatabaseClock() + period)
            return connection.execute(query).rowcount > 0

    def release(self, name: str, token: int) -> bool:
        """Give a lease up, so that the next holder need not wait; return whether it still had this token."""
        mine = (leases.c.name == name, leases.c.token == token)
        with self._writing() as connection:
            # The row stays: with it the token would start over.
            return connection.execute(update(leases).where(*mine).values(holder="", expires_at=0.0)).rowcount > 0

    def find(self, name: str) -> Lease | None:
        """Return a lease as it is stored, expired or not; None if nobody ever had it."""
        remaining = (leases.c.expires_at - DatabaseClock()).label("remaining")
        query = select(leases.c.name, leases.c.holder, leases.c.token, remaining).where(leases.c.name == name)
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else record(Lease, row)

    def lock(self, name: str, token: int) -> bool:
        """Return whether a lease has this token; if so, nobody can take it before the transaction ends."""
        mine = (leases.c.name == name, leases.c.token == token)
        # SQLite needs no row lock: a transaction that writes is alone.
        query = select(leases.c.token).where(*mine).with_for_update(read=True)
        with self._writing() as connection:
            return connection.execute(query).one_or_none() is not None
