"""Commands to jobs: stored in the transaction that checks them, and carried out later, in their order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, insert, select, update

from penstock.control.store.repositories.pages import Page, read_page
from penstock.control.store.repositories.repository import Repository
from penstock.control.store.tables import commands
from penstock.errors import UnknownJob

OPEN, DONE, FAILED = "open", "done", "failed"
_DONE_SECONDS = 30 * 86_400


@dataclass(frozen=True, kw_only=True)
class Command:
    """What was asked of a job; `state` is open, done or failed. Ids grow, and are texts, as others use them."""

    id: str
    job: str
    kind: str
    arguments: dict[str, Any]
    requested_by: str | None
    requested_at: float
    state: str = OPEN
    message: str | None = None
    done_at: float | None = None


class Commands(Repository):
    """Open commands, and those of the last month."""

    def add(
        self, job: str, kind: str, arguments: dict[str, Any] | None = None, requested_by: str | None = None
    ) -> Command:
        """Store a command; it is open until `finish`."""
        values: dict[str, Any] = {
            "job": job,
            "kind": kind,
            "arguments": arguments or {},
            "requested_by": requested_by,
            "requested_at": self._clock(),
            "state": OPEN,
        }
        with self._writing() as connection:
            number = connection.execute(insert(commands).values(values).returning(commands.c.id)).scalar_one()
        return Command(id=str(number), **values)

    def get(self, command: str) -> Command:
        """Return a command; raises UnknownJob."""
        with self._reading() as connection:
            row = connection.execute(select(commands).where(commands.c.id == _number(command))).one_or_none()
        if row is None:
            message = f"there is no command {command[:80]!r}"
            raise UnknownJob(message, hint="commands are kept for a month after they are done")
        return _command(**row._asdict())

    def open(self, limit: int = 1_000) -> list[Command]:
        """Return the open commands, in their order."""
        query = select(commands).where(commands.c.state == OPEN).order_by(commands.c.id).limit(limit)
        with self._reading() as connection:
            return [_command(**row._asdict()) for row in connection.execute(query)]

    def finish(self, command: str, *, failed: bool = False, message: str | None = None) -> bool:
        """Close an open command with its result; return whether it was open."""
        is_open = (commands.c.id == _number(command), commands.c.state == OPEN)
        values = {"state": FAILED if failed else DONE, "message": message, "done_at": self._clock()}
        with self._writing() as connection:
            return connection.execute(update(commands).where(*is_open).values(values)).rowcount > 0

    def page(self, job: str, cursor: str | None = None, limit: int = 50) -> Page[Command]:
        """Return commands of a job, the newest first."""
        query = select(commands).where(commands.c.job == job)
        with self._reading() as connection:
            found = read_page(connection, query, (commands.c.id,), Command, cursor, limit)
        return Page(tuple(replace(one, id=str(one.id)) for one in found.items), found.next)

    def prune(self, now: float, keep: float = _DONE_SECONDS) -> int:
        """Delete commands that were finished long ago; return how many."""
        old = (commands.c.state != OPEN, commands.c.done_at < now - keep)
        with self._writing() as connection:
            return connection.execute(delete(commands).where(*old)).rowcount


def _command(**fields: Any) -> Command:
    return Command(**fields | {"id": str(fields["id"])})


def _number(command: str) -> int:
    return int(command) if command.isascii() and command.isdigit() and len(command) <= 18 else -1
