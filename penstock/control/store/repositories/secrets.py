"""Secrets that jobs refer to by `${secret:NAME}`.

Values are not encrypted: a key would have to be where the manager finds it, beside what it protects. Whoever may read
the store may read them; the API never returns them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, insert, select, update

from penstock.control.store.repositories.repository import Repository, record
from penstock.control.store.tables import secrets


@dataclass(frozen=True, kw_only=True)
class Secret:
    """A secret without its value."""

    name: str
    created_at: float
    updated_at: float
    updated_by: str | None = None


_SHOWN = (secrets.c.name, secrets.c.created_at, secrets.c.updated_at, secrets.c.updated_by)


class StoredSecrets(Repository):
    """All secrets of the store."""

    def put(self, name: str, value: str, by: str | None = None) -> Secret:
        """Store a secret, or change its value; drivers that start from now on get it."""
        changes = {"value": value, "updated_at": self._clock(), "updated_by": by}
        with self._writing() as connection:
            if not connection.execute(update(secrets).where(secrets.c.name == name).values(changes)).rowcount:
                connection.execute(insert(secrets).values({**changes, "name": name, "created_at": self._clock()}))
            return record(Secret, connection.execute(select(*_SHOWN).where(secrets.c.name == name)).one())

    def value(self, name: str) -> str | None:
        """Return the value of a secret, for a driver; None if there is none."""
        with self._reading() as connection:
            found: str | None = connection.execute(select(secrets.c.value).where(secrets.c.name == name)).scalar()
        return found

    def all(self) -> list[Secret]:
        """Return all secrets by their names, without values."""
        with self._reading() as connection:
            return [record(Secret, row) for row in connection.execute(select(*_SHOWN).order_by(secrets.c.name))]

    def delete(self, name: str) -> bool:
        """Delete a secret; return whether it existed."""
        with self._writing() as connection:
            return connection.execute(delete(secrets).where(secrets.c.name == name)).rowcount > 0
