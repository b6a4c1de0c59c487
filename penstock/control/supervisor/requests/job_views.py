"""Stored records as the REST API returns them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

from penstock.control.api.access import AuditEntry, Secret, Token
from penstock.control.api.commands import Command
from penstock.control.api.history import Checkpoint, Epoch, JobException, Savepoint, Transition
from penstock.control.api.jobs import Job, JobError, Version
from penstock.control.api.pages import Page
from penstock.control.api.series import Point, Series
from penstock.control.machine.states import JobState
from penstock.control.store.repositories import (
    commands,
    epochs,
    exceptions,
    jobs,
    savepoints,
    series,
    transitions,
    versions,
)
from penstock.control.store.repositories import secrets as stored_secrets
from penstock.control.store.repositories import tokens as stored_tokens
from penstock.control.store.repositories.pages import Page as StoredPage
from penstock.control.store.rollup import RETENTION
from penstock.control.supervisor.drivers.reports import END_OF_INPUT, seconds

Record = TypeVar("Record")
View = TypeVar("View")


def at(value: float | None) -> datetime | None:
    """Return a stored time."""
    return None if value is None else time_of(value)


def time_of(value: float) -> datetime:
    """Return seconds since 1970 as a time, or the last one that there is."""
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def watermark(value: float | None) -> dict[str, Any]:
    """Return the fields of a watermark; at the end of input there is none."""
    ended = value is not None and value >= END_OF_INPUT
    return {"watermark": None if ended else at(value), "ended_input": ended}


def page(found: StoredPage[Record], view: Callable[[Record], View]) -> Page[View]:
    """Return a page of records as a page of views."""
    return Page[Any](items=[view(one) for one in found.items], next=found.next)


def job_view(job: jobs.Job) -> Job:
    """Return a job."""
    progress, machine = job.progress or {}, job.machine or {}
    runs = job.state == JobState.RUNNING
    error = job.error or machine.get("error")
    return Job(
        id=job.id,
        name=job.name,
        state=JobState(job.state),
        version=job.version,
        running_version=machine.get("running_version") if job.run else None,
        restarts=job.restarts,
        pid=job.pid,
        created_at=time_of(job.created_at),
        started_at=at(job.started_at),
        ended_at=at(job.ended_at),
        updated_at=at(job.updated_at),
        error=JobError(**error) if error else None,
        lag=progress.get("lag"),
        rows_per_second=progress.get("rows_in_per_s") if runs else None,
        epoch=_epoch(progress.get("epoch")),
        **watermark(seconds(progress.get("watermark"))),
        checkpoint=job.checkpoint,
        waiting_for=job.reason,
        restart_at=at(machine.get("restart_at")),
        entry=job.entry,
        until=job.until or "stopped",  # type: ignore[arg-type]
        parallelism=job.parallelism,
        restart_policy=job.policy,
        autoscaling=job.autoscaling,
        pool=job.pool,
        memory=job.memory,
        cores=job.cores,
        settings=job.settings,
        arguments=job.arguments,
    )


class JobViews:
    """The views of jobs, kept until their rows change: most jobs of a long list have ended."""

    def __init__(self, most: int = 2_000) -> None:
        self._most = most
        self._views: dict[str, tuple[float, Job]] = {}

    def __call__(self, job: jobs.Job) -> Job:
        """Return the view of a job; every change of a row changes its `updated_at`."""
        known = self._views.get(job.id)
        if known is not None and known[0] == job.updated_at:
            return known[1]
        if len(self._views) >= self._most:
            self._views = {}
        made = job_view(job)
        self._views[job.id] = (job.updated_at, made)
        return made


def _epoch(newest: int | None) -> int | None:
    """Return the newest committed epoch; a driver reports -1 before the first."""
    return None if newest is None or newest < 0 else newest


def command_view(command: commands.Command) -> Command:
    """Return a command."""
    return Command(
        id=command.id,
        job=command.job,
        kind=command.kind,
        arguments=command.arguments,
        requested_by=command.requested_by,
        requested_at=time_of(command.requested_at),
        state=command.state,  # type: ignore[arg-type]
        message=command.message,
        done_at=at(command.done_at),
    )


def version_view(version: versions.Version) -> Version:
    """Return a version, without its plan."""
    return Version(
        number=version.number,
        entry=version.entry,
        digest=version.digest,
        created_at=time_of(version.created_at),
        created_by=version.created_by,
    )


def epoch_view(epoch: epochs.Epoch) -> Epoch:
    """Return an epoch."""
    return Epoch(
        number=epoch.number,
        at=time_of(epoch.at),
        rows_in=epoch.rows_in,
        rows_out=epoch.rows_out,
        late=epoch.late,
        rejected=epoch.rejected,
        duration_ms=epoch.duration_ms,
        phases=epoch.phases or {},
        **watermark(epoch.watermark),
    )


def checkpoint_view(epoch: epochs.Epoch, location: str) -> Checkpoint:
    """Return an epoch as what the job can restart from."""
    phases = epoch.phases or {}
    written = [phases[name] for name in ("walCommit", "commitOffsets") if name in phases]
    return Checkpoint(
        epoch=epoch.number, location=location, at=time_of(epoch.at), duration_ms=sum(written) if written else None
    )


def savepoint_view(savepoint: savepoints.Savepoint) -> Savepoint:
    """Return a savepoint."""
    return Savepoint(
        name=savepoint.name,
        path=savepoint.path,
        created_at=time_of(savepoint.created_at),
        state=savepoint.state,
        version=savepoint.version,
    )


def exception_view(error: exceptions.JobException) -> JobException:
    """Return an error of a job."""
    return JobException(at=time_of(error.at), type=error.type, message=error.message, hint=error.hint, run=error.run)


def transition_view(transition: transitions.Transition) -> Transition:
    """Return a transition."""
    # Two of its fields have names that Python reserves.
    fields = {"from": transition.from_state, "to": transition.to_state, "cause": transition.cause}
    return Transition.model_validate({**fields, "seq": transition.seq, "at": time_of(transition.at)})


def series_views(found: Iterable[series.Series]) -> list[Series]:
    """Return series."""
    return [
        Series(
            metric=one.metric,
            node=one.node or None,
            resolution=one.resolution,
            points=[
                Point(
                    at=time_of(point.at),
                    min=point.minimum,
                    max=point.maximum,
                    mean=point.mean,
                    last=point.last,
                    count=point.count,
                )
                for point in one.points
            ],
        )
        for one in found
    ]


def secret_view(secret: stored_secrets.Secret) -> Secret:
    """Return a secret, which has no value here."""
    return Secret(
        name=secret.name,
        created_at=time_of(secret.created_at),
        updated_at=time_of(secret.updated_at),
        updated_by=secret.updated_by,
    )


def sparkline_resolution(minutes: int) -> int:
    """Return the finest resolution that has at most 60 points in so many minutes.

    >>> sparkline_resolution(10), sparkline_resolution(11), sparkline_resolution(60), sparkline_resolution(1_440)
    (10, 60, 60, 600)
    """
    return next((length for length in RETENTION if minutes <= length), max(RETENTION))


def token_view(token: stored_tokens.Token) -> Token:
    """Return a token, without its text."""
    return Token(
        id=token.id,
        name=token.name,
        role=token.role,  # type: ignore[arg-type]
        created_at=at(token.created_at),
        expires_at=at(token.expires_at),
        last_used_at=at(token.last_used_at),
    )


def audit_view(entry: Any) -> AuditEntry:
    """Return an entry of the audit log."""
    return AuditEntry(
        at=time_of(entry.at),
        who=entry.who,
        role=entry.role,
        action=entry.action,
        target=entry.target,
        address=entry.address,
        outcome=entry.outcome,
    )
