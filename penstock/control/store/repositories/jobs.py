"""The jobs: one row each, with the state that the machine left it in."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, TypedDict, Unpack

from sqlalchemy import ColumnElement, Connection, Select, and_, case, delete, func, insert, literal, or_, select, update
from sqlalchemy.exc import IntegrityError

from penstock.control.store.repositories.pages import Page, read_page
from penstock.control.store.repositories.repository import Repository, record
from penstock.control.store.tables import jobs, series
from penstock.errors import JobExists, UnknownJob

# How long a deleted job's row and history are kept.
_DELETED_SECONDS = 7 * 86_400


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as it is stored. Times are seconds since the epoch.

    `machine` has the fields of the state machine that no list needs; `progress` the newest metrics of the driver, for
    lists. `reason` says why a job waits. Secrets are references, such as `${secret:NAME}`, never values.
    """

    id: str
    name: str
    state: str = "CREATED"
    reason: str | None = None
    version: int = 1
    entry: str | None = None
    run: str | None = None
    attempt: int = 0
    restarts: int = 0
    parallelism: int | None = None
    cores: float | None = None
    memory: str | None = None
    policy: dict[str, Any] | None = None
    until: str | None = None
    pid: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    error: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    autoscaling: dict[str, Any] | None = None
    pool: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    created_at: float = 0.0
    created_by: str | None = None
    updated_at: float = 0.0
    deleted_at: float | None = None


class JobChanges(TypedDict, total=False):
    """What of a job can change."""

    name: str
    state: str
    reason: str | None
    version: int
    entry: str | None
    run: str | None
    attempt: int
    restarts: int
    parallelism: int | None
    cores: float | None
    memory: str | None
    policy: dict[str, Any] | None
    until: str | None
    pid: int | None
    started_at: float | None
    ended_at: float | None
    error: dict[str, Any] | None
    settings: dict[str, Any]
    arguments: dict[str, Any]
    checkpoint: str | None
    autoscaling: dict[str, Any] | None
    pool: str | None
    labels: dict[str, str]
    machine: dict[str, Any] | None
    progress: dict[str, Any] | None


def new_id() -> str:
    """Return an id that is safe in paths and URLs, and that nobody has."""
    return secrets.token_hex(8)


class Jobs(Repository):
    """Jobs that are not deleted; names are unique among them."""

    def create(self, job: Job) -> Job:
        """Store a new job, and return it with its times; raises JobExists if its name is taken."""
        now = self._clock()
        stored = asdict(job) | {"created_at": job.created_at or now, "updated_at": now}
        with self._writing() as connection:
            existing = connection.execute(_by_name(job.name)).one_or_none()
            if existing is not None:
                raise _name_taken(job.name, f": job {existing.id}, {existing.state}")
            try:
                connection.execute(insert(jobs).values(stored))
            except IntegrityError as error:  # another manager stored it at the same time
                raise _name_taken(job.name) from error
        return Job(**stored)

    def get(self, job: str) -> Job:
        """Return a job by its id, or else by its name; raises UnknownJob, with close names in its hint."""
        named = or_(jobs.c.id == job, jobs.c.name == job)
        by_id_first = case((jobs.c.id == job, 0), else_=1)
        query = select(jobs).where(named, jobs.c.deleted_at.is_(None)).order_by(by_id_first).limit(1)
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                raise _unknown(job, connection)
        return record(Job, row)

    def find(self, job: str) -> Job | None:
        """Return a job by its id, or None."""
        with self._reading() as connection:
            row = connection.execute(select(jobs).where(_is(job))).one_or_none()
        return None if row is None else record(Job, row)

    def named(self, name: str) -> Job | None:
        """Return the job of a name, or None."""
        with self._reading() as connection:
            row = connection.execute(_by_name(name)).one_or_none()
        return None if row is None else record(Job, row)

    def page(
        self, *, states: Iterable[str] = (), name: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Job]:
        """Return a page of jobs, the newest first: those in one of the states, whose name contains `name`."""
        query = select(jobs).where(jobs.c.deleted_at.is_(None))
        if wanted := [str(state) for state in states]:
            query = query.where(jobs.c.state.in_(wanted))
        if name:
            pattern = func.lower(literal(_containing(name), jobs.c.name.type))
            query = query.where(func.lower(jobs.c.name).like(pattern, escape="\\"))
        keys = (jobs.c.created_at, jobs.c.id)
        with self._reading() as connection:
            return read_page(connection, query, keys, Job, cursor, limit)

    def all(self, states: Iterable[str] = ()) -> list[Job]:
        """Return all jobs, or those in one of the states, the oldest first."""
        query = select(jobs).where(jobs.c.deleted_at.is_(None)).order_by(jobs.c.created_at, jobs.c.id)
        if wanted := [str(state) for state in states]:
            query = query.where(jobs.c.state.in_(wanted))
        with self._reading() as connection:
            return [record(Job, row) for row in connection.execute(query)]

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state."""
        query = (
            select(jobs.c.state, func.count().label("jobs")).where(jobs.c.deleted_at.is_(None)).group_by(jobs.c.state)
        )
        with self._reading() as connection:
            return {row.state: row.jobs for row in connection.execute(query.group_by(jobs.c.state))}

    def update(self, job: str, **changes: Unpack[JobChanges]) -> None:
        """Change fields of a job; raises UnknownJob."""
        values = {**changes, "updated_at": self._clock()}
        with self._writing() as connection:
            try:
                done = connection.execute(update(jobs).where(_is(job)).values(values))
            except IntegrityError as error:
                raise _name_taken(changes.get("name", job)) from error
            if not done.rowcount:
                raise _unknown(job, connection)

    def delete(self, job: str) -> bool:
        """Mark a job as deleted, which frees its name; return whether it existed."""
        now = self._clock()
        query = update(jobs).where(_is(job)).values(deleted_at=now, updated_at=now)
        with self._writing() as connection:
            return connection.execute(query).rowcount > 0

    def deleted(self) -> list[Job]:
        """Return deleted jobs whose files may still exist."""
        query = select(jobs).where(jobs.c.deleted_at.is_not(None), jobs.c.checkpoint.is_not(None))
        with self._reading() as connection:
            return [record(Job, row) for row in connection.execute(query)]

    def files_removed(self, job: str) -> None:
        """Note that the files of a deleted job are removed: it has no checkpoint any more."""
        query = update(jobs).where(jobs.c.id == job, jobs.c.deleted_at.is_not(None)).values(checkpoint=None)
        with self._writing() as connection:
            connection.execute(query)

    def purge(self, now: float, keep: float = _DELETED_SECONDS) -> int:
        """Remove jobs that were deleted long ago, with all that is stored about them; return how many."""
        old = and_(jobs.c.deleted_at < now - keep, jobs.c.checkpoint.is_(None))
        with self._writing() as connection:
            connection.execute(delete(series).where(series.c.job.in_(select(jobs.c.id).where(old))))
            return connection.execute(delete(jobs).where(old)).rowcount


def _is(job: str) -> ColumnElement[bool]:
    return and_(jobs.c.id == job, jobs.c.deleted_at.is_(None))


def _by_name(name: str) -> Select[*tuple[Any, ...]]:
    return select(jobs).where(jobs.c.name == name, jobs.c.deleted_at.is_(None))


def _containing(part: str) -> str:
    for special in "\\%_":
        part = part.replace(special, f"\\{special}")
    return f"%{part}%"


def _unknown(job: str, connection: Connection) -> UnknownJob:
    newest = select(jobs.c.name).where(jobs.c.deleted_at.is_(None)).order_by(jobs.c.created_at.desc()).limit(1_000)
    close = get_close_matches(job[:100], connection.execute(newest).scalars(), n=1)
    meant = f"did you mean {close[0]!r}?      " if close else ""
    return UnknownJob(f"there is no job {job[:100]!r}", hint=f"{meant}penstock jobs lists them")


def _name_taken(name: str, by: str = "") -> JobExists:
    return JobExists(
        f"there is a job named {name!r} already{by}",
        hint="choose another name, delete that job, or change it: penstock update",
    )
