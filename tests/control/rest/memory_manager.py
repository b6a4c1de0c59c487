"""A job manager without a store: for tests of the routes, which only pass on what it returns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from penstock.control.api.access import AuditEntry, NewToken, Secret, Token, TokenRequest
from penstock.control.api.cluster import Check, Cluster, Driver, Readiness
from penstock.control.api.commands import Command, Kind
from penstock.control.api.history import Checkpoint, Epoch, JobException, Savepoint, Transition
from penstock.control.api.jobs import Job, JobError, JobFilter, Plan, Submission, Update, Version
from penstock.control.api.pages import Page, Paging
from penstock.control.api.series import Point, Series, SeriesQuery
from penstock.control.api.state import StateQuery, StateTable
from penstock.control.machine.states import JobState
from penstock.control.rest.manager import Caller, IdempotencyKey, Source, Submitted
from penstock.control.supervisor.event_bus import EventBus, Subscription
from penstock.errors import BadCursor, JobExists, RequestRefused, UnknownJob, choices
from tests.control.rest.memory_graphs import MemoryGraphs

T = TypeVar("T")
NOW = datetime(2026, 11, 17, 10, 0, tzinfo=UTC)


class MemoryManager(MemoryGraphs):
    """Jobs in a dict. `failure` is raised by whatever is asked next; `asked` are the commands."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.keys: dict[str, tuple[str, str]] = {}
        self.sources: dict[str, Source] = {}
        self.asked: list[Command] = []
        self.updates: list[Update] = []
        self.entries: list[AuditEntry] = []
        self.kept_tokens: dict[str, Token] = {}
        self.kept_secrets: dict[str, str] = {}
        self.lines = ["first", "second", "third"]
        self.failure: Exception | None = None
        self.ready = True
        self.bus = EventBus(now=NOW.timestamp)
        self._lock = threading.Lock()

    def add(self, name: str, state: JobState = JobState.RUNNING, **fields: Any) -> Job:
        with self._lock:
            number = len(self.jobs) + 1
            job = Job(id=f"job{number:04}", name=name, state=state, version=1, created_at=NOW, **fields)
            self.jobs[job.id] = job
        return job

    def submit(self, submission: Submission, source: Source, caller: Caller, key: IdempotencyKey | None) -> Submitted:
        self._raise()
        if key and key.key in self.keys:
            digest, job = self.keys[key.key]
            if digest != key.digest:
                message = f"the Idempotency-Key {key.key!r} was used for another request"
                raise RequestRefused(message, hint="choose a new key")
            return Submitted(self.jobs[job], created=False)
        name = submission.name or source.filename.partition(".")[0]
        if any(job.name == name for job in self.jobs.values()):
            message = f"there is a job '{name}' already"
            raise JobExists(message, hint="choose another name, or update it")
        options = submission.model_dump(exclude={"name", "restart_policy", "autoscaling"})
        policies = {
            "restart_policy": _object(submission.restart_policy),
            "autoscaling": _object(submission.autoscaling),
        }
        job = self.add(name, JobState.CREATED, **options, **policies)
        self.sources[job.id] = source
        if key:
            self.keys[key.key] = (key.digest, job.id)
        return Submitted(job)

    def request(self, job: str, kind: Kind, arguments: Mapping[str, Any], caller: Caller) -> Command:
        self._raise()
        found = self.get_job(job)
        if kind == "delete" and not found.state.is_final:
            message = f"job '{found.name}' is {found.state}"
            raise RequestRefused(message, hint="stop or cancel it first")
        command = Command(
            id=str(len(self.asked) + 1),
            job=found.id,
            kind=kind,
            arguments=dict(arguments),
            requested_by=caller.name,
            requested_at=NOW,
            state="open",
        )
        self.asked.append(command)
        return command

    def update(self, job: str, update: Update, source: Source, caller: Caller) -> Command:
        found = self.get_job(job)
        self.updates.append(update)
        self.sources[found.id] = source
        return self.request(job, "update", {"version": 2}, caller)

    def list_jobs(self, filters: JobFilter) -> Page[Job]:
        self._raise()
        wanted = [job for job in reversed(self.jobs.values()) if not filters.state or job.state in filters.state]
        return _page([job for job in wanted if not filters.name or filters.name in job.name], filters)

    def get_job(self, job: str) -> Job:
        self._raise()
        found = next((each for each in self.jobs.values() if job in (each.id, each.name)), None)
        if found is None:
            message = f"there is no job '{job}'"
            raise UnknownJob(message, hint=choices("jobs", (each.name for each in self.jobs.values()), job))
        return found

    def plan(self, job: str, version: int | None) -> Plan:
        spec = {"kind": "topic", "options": {"sasl.password": "topsecret"}}
        return Plan(job=self.get_job(job).id, version=version or 1, plan={"sources": [spec]})

    def versions(self, job: str, paging: Paging) -> Page[Version]:
        self.get_job(job)
        return _page([Version(number=1, entry="vwap", digest="ab" * 32, created_at=NOW)], paging)

    def epochs(self, job: str, paging: Paging) -> Page[Epoch]:
        self.get_job(job)
        return _page([Epoch(number=number, at=NOW, rows_in=10) for number in range(9, -1, -1)], paging)

    def checkpoints(self, job: str, paging: Paging) -> Page[Checkpoint]:
        self.get_job(job)
        return _page([Checkpoint(epoch=9, location="s3://KEY:topsecret@lake/jobs", at=NOW)], paging)

    def savepoints(self, job: str, paging: Paging) -> Page[Savepoint]:
        self.get_job(job)
        return _page([Savepoint(name="before", path="savepoints/before", created_at=NOW, state="complete")], paging)

    def exceptions(self, job: str, paging: Paging) -> Page[JobException]:
        self.get_job(job)
        return _page(
            [JobException(at=NOW, type="SinkFailed", message="no answer of kafka://ada:topsecret@a:1")], paging
        )

    def transitions(self, job: str, paging: Paging) -> Page[Transition]:
        self.get_job(job)
        made = {"seq": 1, "from": "CREATED", "to": "STARTING", "cause": "submitted", "at": NOW}
        return _page([Transition.model_validate(made)], paging)

    def commands(self, job: str, paging: Paging) -> Page[Command]:
        found = self.get_job(job)
        return _page([command for command in reversed(self.asked) if command.job == found.id], paging)

    def command(self, command: str) -> Command:
        self._raise()
        found = next((each for each in self.asked if each.id == command), None)
        if found is None:
            message = f"there is no command '{command}'"
            raise UnknownJob(message)
        return found

    def logs(self, job: str, tail: int) -> list[str]:
        self.get_job(job)
        return self.lines[-tail:] if tail else []

    async def follow_logs(self, job: str, tail: int) -> AsyncIterator[str]:
        for line in self.logs(job, tail):
            yield line
        yield "password=topsecret"

    def series(self, job: str, query: SeriesQuery) -> list[Series]:
        self.get_job(job)
        point = Point(at=NOW, min=1, max=3, mean=2, last=3, count=2)
        return [
            Series(metric=name, resolution=query.resolution or 10, points=[point]) for name in query.name or ["lag"]
        ]

    def state(self, job: str, query: StateQuery) -> StateTable:
        self.get_job(job)
        return StateTable(node=query.node or "vwap", epoch=9, columns=["symbol"], rows=[{"symbol": query.key or "A"}])

    def subscribe(self, job: str | None, after: int | None) -> Subscription:
        self.bus.bind(asyncio.get_running_loop())
        return self.bus.subscribe(job, after)

    def cluster(self) -> Cluster:
        self._raise()
        return Cluster(
            version="0.1.0",
            manager="m1",
            role="active",
            started_at=NOW,
            store="postgresql://ada:topsecret@db/jobs",
            cores=2,
            memory_bytes=2**31,
            drivers=[Driver(run="r1", pid=1, jobs=["job0001"])],
        )

    def readiness(self) -> Readiness:
        check = Check(name="store", ok=self.ready, detail=None if self.ready else "no answer of the database")
        return Readiness(ready=self.ready, checks=[check])

    def metrics_page(self) -> bytes:
        return b"# TYPE penstock_jobs gauge\npenstock_jobs 1\n"

    def tokens(self) -> list[Token]:
        self._raise()
        return list(self.kept_tokens.values())

    def create_token(self, request: TokenRequest, caller: Caller) -> NewToken:
        made = Token(
            id=f"t{len(self.kept_tokens)}", name=request.name, role=request.role, expires_at=request.expires_at
        )
        self.kept_tokens[made.id] = made
        return NewToken(**made.model_dump(), token="pst_" + "x" * 43)

    def revoke_token(self, token: str) -> None:
        if token not in self.kept_tokens:
            message = f"there is no token '{token}'"
            raise UnknownJob(message)
        del self.kept_tokens[token]

    def secrets(self) -> list[Secret]:
        self._raise()
        return [Secret(name=name, created_at=NOW, updated_at=NOW) for name in sorted(self.kept_secrets)]

    def set_secret(self, name: str, value: str, caller: Caller) -> Secret:
        self.kept_secrets[name] = value
        return Secret(name=name, created_at=NOW, updated_at=NOW, updated_by=caller.name)

    def delete_secret(self, name: str) -> None:
        if self.kept_secrets.pop(name, None) is None:
            message = f"there is no secret '{name}'"
            raise UnknownJob(message)

    def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)

    def audit(self, paging: Paging) -> Page[AuditEntry]:
        return _page(self.entries[::-1], paging)

    def fail(self, job: Job) -> None:
        error = JobError(type="SinkFailed", message="https://ada:topsecret@a/ refuses", hint="set password=topsecret")
        self.jobs[job.id] = job.model_copy(update={"state": JobState.FAILED, "error": error})

    def _raise(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


def _page(items: list[T], paging: Paging) -> Page[T]:
    if paging.cursor and not paging.cursor.isdecimal():
        message = "not a cursor of this list"
        raise BadCursor(message)
    start = int(paging.cursor or 0)
    end = start + paging.limit
    return Page(items=items[start:end], next=str(end) if end < len(items) else None)


def _object(policy: Any) -> dict[str, Any] | None:
    return {"kind": policy} if isinstance(policy, str) else policy
