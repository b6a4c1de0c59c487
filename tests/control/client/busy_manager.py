"""The manager in memory of the REST tests, whose jobs and commands get on each time that they are looked at.

So waiting for them is seen without waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.control.api.commands import Command
from penstock.control.api.jobs import Job, JobError, Submission
from penstock.control.machine.states import JobState
from penstock.control.rest.app import create_app
from penstock.control.rest.manager import Caller, IdempotencyKey, Source, Submitted
from penstock.errors import UnknownColumn, choices
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving

AFTER = {
    "stop": JobState.STOPPED,
    "cancel": JobState.CANCELED,
    "restart": JobState.RUNNING,
    "rescale": JobState.RUNNING,
    "update": JobState.RUNNING,
}


class BusyManager(MemoryManager):
    """Jobs get on when they are looked at; `failing` is why they, or the commands to them, fail."""

    def __init__(self) -> None:
        super().__init__()
        self.submissions: list[Submission] = []
        self.failing: str | None = None

    def change(self, job: str, **fields: Any) -> None:
        self.jobs[job] = self.jobs[job].model_copy(update=fields)

    def submit(self, submission: Submission, source: Source, caller: Caller, key: IdempotencyKey | None) -> Submitted:
        if b"pirce" in source.content:
            message = "unknown column 'pirce'"
            raise UnknownColumn(message, node="aggregate 'vwap'", hint=choices("columns here", ["price"], "pirce"))
        self.submissions.append(submission)
        return super().submit(submission, source, caller, key)

    def get_job(self, job: str) -> Job:
        found = super().get_job(job)
        if following := self._following(found):
            error = JobError(type="SinkFailed", message=str(self.failing)) if following == JobState.FAILED else None
            self.change(found.id, state=following, error=error)
        return found

    def _following(self, job: Job) -> JobState | None:
        if job.state == JobState.RUNNING and self.failing:
            return JobState.FAILED
        if job.state == JobState.RUNNING and job.until != "stopped":
            return JobState.FINISHED
        return {JobState.CREATED: JobState.STARTING, JobState.STARTING: JobState.RUNNING}.get(job.state)

    def command(self, command: str) -> Command:
        found = super().command(command)
        if found.state == "open":
            self.asked[self.asked.index(found)] = self._carried_out(found)
        return found

    def _carried_out(self, command: Command) -> Command:
        if self.failing:
            return command.model_copy(update={"state": "failed", "message": self.failing})
        if command.kind == "delete":
            del self.jobs[command.job]
        elif command.kind in AFTER:
            self.change(command.job, state=AFTER[command.kind])
        return command.model_copy(update={"state": "done", "message": f"{command.kind} is done"})


@contextmanager
def busy_server() -> Iterator[tuple[BusyManager, str]]:
    """Serve the REST API of such a manager; yield the manager and its address."""
    manager = BusyManager()
    with serving(create_app(manager)) as url:
        yield manager, url
