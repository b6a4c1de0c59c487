"""The audit log: who did what, when, on what, from where, with which result."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import delete, insert, select

from penstock.control.store.repositories.pages import Page, read_page
from penstock.control.store.repositories.repository import Repository
from penstock.control.store.tables import audit

_KEPT_SECONDS = 365 * 86_400


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One action. `detail` has no secrets: whoever records it masks them."""

    id: int = 0
    at: float = 0.0
    who: str
    role: str | None = None
    action: str
    target: str
    address: str | None = None
    outcome: str
    detail: dict[str, Any] | None = None


class Audit(Repository):
    """Actions of the last year. Nothing changes a record."""

    def add(self, action: AuditRecord) -> None:
        """Store an action, now unless it has a time."""
        stored = asdict(action) | {"at": action.at or self._clock()}
        del stored["id"]
        with self._writing() as connection:
            connection.execute(insert(audit).values(stored))

    def page(
        self, *, who: str | None = None, target: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[AuditRecord]:
        """Return actions, the newest first: of somebody, or on something, or all."""
        query = select(audit)
        if who is not None:
            query = query.where(audit.c.who == who)
        if target is not None:
            query = query.where(audit.c.target == target)
        with self._reading() as connection:
            return read_page(connection, query, (audit.c.id,), AuditRecord, cursor, limit)

    def prune(self, now: float, keep: float = _KEPT_SECONDS) -> int:
        """Delete what is older than a year; return how many records."""
        with self._writing() as connection:
            return connection.execute(delete(audit).where(audit.c.at < now - keep)).rowcount
