"""A job manager in memory behind the real REST API: what the client and the commands are tested against.

Commands are carried out when they are looked at the second time, so that waiting for them is seen.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any

import uvicorn
from fastapi import FastAPI

from penstock.control.api.access import AuditEntry, NewToken, Token, TokenRequest
from penstock.control.api.commands import Command, Kind
from penstock.control.api.history import Epoch, JobException, Savepoint, Transition
from penstock.control.api.jobs import Job, JobError, JobFilter, Plan, Submission, Update, Version
from penstock.control.api.pages import Page, Paging
from penstock.control.machine.states import JobState
from penstock.control.rest.app import create_app
from penstock.control.rest.manager import Caller, IdempotencyKey, Source, Submitted
from penstock.errors import PenstockError, RequestRefused, UnknownColumn, UnknownJob, choices
from tests.waiting import wait_for

AT = datetime(2026, 11, 17, 10, 0, tzinfo=UTC)
AFTER = {
    "stop": JobState.STOPPED,
    "cancel": JobState.CANCELED,
    "restart": JobState.RUNNING,
    "rescale": JobState.RUNNING,
    "update": JobState.RUNNING,
}


class Events:
    """The events of one client."""

    missed = 0

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._events = events

    async def __aiter__(self) -> AsyncIterator[Mapping[str, Any]]:
        for event in self._events:
            yield event

    def close(self) -> None:
        pass


class MemoryManager:
    """Jobs that change their states when they are asked to."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.sources: dict[str, list[Source]] = {}
        self.submissions: list[Submission] = []
        self.updates: list[Update] = []
        self.stored: dict[str, Command] = {}
        self.keys: dict[str, str] = {}
        self.lines = ["starting", "epoch 0"]
        self.held: list[Token] = []
        self.failing: str | None = None
        self._numbers = count(1)

    def add(self, name: str, **fields: Any) -> Job:
        number = next(self._numbers)
        fields = {"state": JobState.RUNNING, "version": 1, "created_at": AT, "started_at": AT, **fields}
        job = Job(id=f"{number:04}-{name}", name=name, **fields)
        self.jobs[job.id] = job
        self.sources.setdefault(job.id, [])
        return job

    def change(self, job: str, **fields: Any) -> None:
        self.jobs[job] = self.jobs[job].model_copy(update=fields)

    def submit(self, submission: Submission, source: Source, caller: Caller, key: IdempotencyKey | None) -> Submitted:
        if b"pirce" in source.content:
            message = "unknown column 'pirce'"
            raise UnknownColumn(message, node="aggregate 'vwap'", hint=choices("columns here", ["price"], "pirce"))
        if key and key.key in self.keys:
            return Submitted(self.jobs[self.keys[key.key]], created=False)
        given = submission.model_dump(include={"until", "parallelism", "pool", "arguments", "settings", "entry"})
        job = self.add(submission.name or source.filename.partition(".")[0], **given, state=JobState.CREATED)
        self.submissions.append(submission)
        self.sources[job.id].append(source)
        if key:
            self.keys[key.key] = job.id
        return Submitted(job)

    def list_jobs(self, filters: JobFilter) -> Page[Job]:
        found = [
            job
            for job in reversed(self.jobs.values())
            if (not filters.state or job.state in filters.state) and (filters.name or "") in job.name
        ]
        start = int(filters.cursor or 0)
        end = start + filters.limit
        return Page[Job](items=found[start:end], next=str(end) if end < len(found) else None)

    def get_job(self, job: str) -> Job:
        found = self._find(job)
        # A job gets on when it is looked at.
        following = {JobState.CREATED: JobState.STARTING, JobState.STARTING: JobState.RUNNING}
        ended = {JobState.RUNNING: JobState.FINISHED} if found.until != "stopped" else {}
        ended = {JobState.RUNNING: JobState.FAILED} if self.failing else ended
        if following_state := {**following, **ended}.get(found.state):
            error = JobError(type="SinkFailed", message=str(self.failing)) if following_state == "FAILED" else None
            self.change(found.id, state=following_state, error=error)
        return found

    def _find(self, job: str) -> Job:
        found = [one for one in self.jobs.values() if job in (one.id, one.name)]
        if not found:
            message = f"there is no job '{job}'"
            raise UnknownJob(message, hint=choices("jobs", [one.name for one in self.jobs.values()], job))
        return found[0]

    def request(self, job: str, kind: Kind, arguments: Mapping[str, Any], caller: Caller) -> Command:
        found = self._find(job)
        if kind == "delete" and not found.state.is_final:
            message = f"job {found.name} is {found.state}"
            raise RequestRefused(message, hint="stop it first")
        number = f"c{next(self._numbers)}"
        self.stored[number] = Command(
            id=number, job=found.id, kind=kind, arguments=dict(arguments), requested_at=AT, state="open"
        )
        return self.stored[number]

    def update(self, job: str, update: Update, source: Source, caller: Caller) -> Command:
        self.updates.append(update)
        self.sources[self._find(job).id].append(source)
        return self.request(job, "update", {}, caller)

    def command(self, command: str) -> Command:
        if command not in self.stored:
            message = f"there is no command '{command}'"
            raise UnknownJob(message)
        found = self.stored[command]
        if found.state == "open":
            self._carry_out(found)
        return found

    def _carry_out(self, command: Command) -> None:
        if self.failing:
            done = command.model_copy(update={"state": "failed", "message": self.failing})
        else:
            done = command.model_copy(update={"state": "done", "message": f"{command.kind} is done"})
            if command.kind == "delete":
                del self.jobs[command.job]
            elif command.kind in AFTER:
                self.change(command.job, state=AFTER[command.kind], parallelism=command.arguments.get("parallelism"))
        self.stored[command.id] = done

    def plan(self, job: str, version: int | None) -> Plan:
        return Plan(job=self._find(job).id, version=1, plan={"queries": []})

    def versions(self, job: str, paging: Paging) -> Page[Version]:
        self._find(job)
        return Page[Version](items=[Version(number=1, digest="ab" * 32, created_at=AT, entry="vwap.py")])

    def epochs(self, job: str, paging: Paging) -> Page[Epoch]:
        self._find(job)
        found = [Epoch(number=n, at=AT, rows_in=100, rows_out=n, duration_ms=12.4) for n in (3, 2, 1)]
        return Page[Epoch](items=found[: paging.limit])

    def savepoints(self, job: str, paging: Paging) -> Page[Savepoint]:
        self._find(job)
        return Page[Savepoint](items=[Savepoint(name="one", created_at=AT, state="complete", path="/s/one")])

    def exceptions(self, job: str, paging: Paging) -> Page[JobException]:
        self._find(job)
        return Page[JobException](items=[JobException(at=AT, type="SinkFailed", message="disk\nfull")])

    def transitions(self, job: str, paging: Paging) -> Page[Transition]:
        self._find(job)
        found = Transition(seq=1, source="STARTING", target="RUNNING", cause="the driver reports it", at=AT)
        return Page[Transition](items=[found])

    def logs(self, job: str, tail: int) -> list[str]:
        self._find(job)
        return self.lines[len(self.lines) - tail :] if tail else []

    async def follow_logs(self, job: str, tail: int) -> AsyncIterator[str]:
        for line in [*self.logs(job, tail), "epoch 1"]:
            yield line

    def subscribe(self, job: str | None, after: int | None) -> Events:
        state = {"seq": 1, "at": AT, "kind": "state", "job": job or "all", "state": "RUNNING"}
        return Events([state])

    def tokens(self) -> list[Token]:
        return self.held

    def create_token(self, request: TokenRequest, caller: Caller) -> NewToken:
        token = Token(id=f"t{next(self._numbers)}", name=request.name, role=request.role, created_at=AT)
        self.held.append(token)
        return NewToken(**token.model_dump(), token="pst_secret")

    def revoke_token(self, token: str) -> None:
        if token not in [one.id for one in self.held]:
            message = f"there is no token '{token}'"
            raise UnknownJob(message)
        self.held = [one for one in self.held if one.id != token]

    def record(self, entry: AuditEntry) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        message = f"the manager of the tests has no {name}"
        raise PenstockError(message)


@contextmanager
def memory_server() -> Iterator[tuple[MemoryManager, str]]:
    """Serve the REST API of a manager in memory; yield the manager and its address."""
    manager = MemoryManager()
    with _serving(create_app(manager)) as url:  # type: ignore[arg-type]
        yield manager, url


@contextmanager
def _serving(app: FastAPI) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        wait_for(lambda: server.started, "the server did not start", while_=thread.is_alive)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
