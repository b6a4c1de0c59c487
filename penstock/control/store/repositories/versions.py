"""The versions of a job's source: which may run again, in an update that is rolled back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError

from penstock.control.store.repositories.pages import Page, read_page
from penstock.control.store.repositories.repository import Repository, record
from penstock.control.store.tables import versions
from penstock.errors import RequestRefused, UnknownJob


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a job's source, with the settings and arguments that were submitted with it."""

    job: str
    number: int
    entry: str
    digest: str
    plan: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    created_at: float = 0.0
    created_by: str | None = None


_BRIEF = [column for column in versions.c if column.name != "plan"]  # plans are large


class Versions(Repository):
    """All versions of all jobs."""

    def add(self, version: Version) -> Version:
        """Store a version; raises RequestRefused if another request was first with its number."""
        stored = asdict(version) | {"created_at": version.created_at or self._clock()}
        with self._writing() as connection:
            try:
                connection.execute(insert(versions).values(stored))
            except IntegrityError as error:
                message = f"version {version.number} of job {version.job!r} was stored by another request"
                raise RequestRefused(message, hint="look at it, then try again") from error
        return Version(**stored)

    def get(self, job: str, number: int) -> Version:
        """Return a version with its plan; raises UnknownJob."""
        query = select(versions).where(versions.c.job == job, versions.c.number == number)
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            message = f"job {job!r} has no version {number}"
            raise UnknownJob(message, hint=f"GET /api/v1/jobs/{job}/versions lists them")
        return record(Version, row)

    def page(self, job: str, cursor: str | None = None, limit: int = 50) -> Page[Version]:
        """Return versions of a job, the newest first, without their plans."""
        query = select(*_BRIEF).where(versions.c.job == job)
        with self._reading() as connection:
            return read_page(connection, query, (versions.c.number,), Version, cursor, limit)

    def next_number(self, job: str) -> int:
        """Return the number of the next version."""
        query = select(func.coalesce(func.max(versions.c.number), 0)).where(versions.c.job == job)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one()) + 1
