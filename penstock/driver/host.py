"""The host: the jobs of one driver process, and when the process is over."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from penstock.driver.assignment import Assignment, is_job_id, read_assignment
from penstock.driver.event_buffer import EventBuffer
from penstock.driver.job import DriverJob
from penstock.driver.messages import Message, Rejected, describe_error
from penstock.driver.outcome import Outcome
from penstock.driver.runtime import Runtime
from penstock.errors import PenstockError
from penstock.observe.thread_labels import labelled

# A canceled job that does not end by then, in a driver of its own, ends with the process.
CANCEL_SECONDS = 10.0
# A driver without jobs is of no use once its manager is gone.
ABANDONED_SECONDS = 600.0
_log = logging.getLogger(__name__)


class DriverHost:
    """Carries out a manager's messages.

    Invariant: a driver of one job is over when that job has ended; a pool or a spare when it is asked to exit, or has
    no job and had no manager for long. `publish` is called with every event, from any thread, and must not block.
    """

    def __init__(
        self,
        folder: Path,
        runtime: Runtime,
        *,
        spare: bool = False,
        token: int = 0,
        clock: Callable[[], float] = time.time,
        cancel_seconds: float = CANCEL_SECONDS,
    ) -> None:
        self.folder, self.spare, self.events = folder, spare, EventBuffer()
        self.publish: Callable[[Message], None] = lambda event: None
        self._runtime, self._clock, self._cancel_seconds = runtime, clock, cancel_seconds
        self._started = self._last_manager = clock()
        self._token = token
        self._jobs: dict[str, DriverJob] = {}
        self._pool: str | None = None
        self._exiting = False
        self._over = threading.Event()
        self._lock, self._emitting = threading.RLock(), threading.Lock()

    # --- what the manager asks -------------------------------------------------------------------

    def attach(self, token: int) -> str | None:
        """Accept a manager by its fencing token, or return why it is refused."""
        with self._lock:
            if token < self._token:
                return f"token {token} is older than {self._token}: another manager has taken over"
            newer, self._token = token > self._token, token
            self._last_manager = self._clock()
            jobs = [*self._jobs.values()] if newer else []
        for job in jobs:
            job.fence(token)
        return None

    def hello(self) -> Message:
        """Return the answer to `attach`."""
        with self._lock:
            jobs = {id: job.state for id, job in self._jobs.items()}
        about = {"pid": os.getpid(), "started": self._started, "seq": self.events.newest, "pool": self._pool}
        return {"type": "hello", **about, "spare": self.spare, "jobs": jobs}

    def heartbeat(self, *, attached: bool) -> Message:
        """Return a heartbeat; `attached` says whether a manager is there to get it."""
        with self._lock:
            now = self._clock()
            self._last_manager = now if attached else self._last_manager
            jobs = {id: job.describe() for id, job in self._jobs.items() if job.state != "ended"}
            if not jobs and now - self._last_manager > ABANDONED_SECONDS:
                _log.warning("no job, and no manager for %d s: the driver ends", ABANDONED_SECONDS)
                self._over.set()
        return {"type": "heartbeat", "at": now, "jobs": jobs, "rss": _resident_bytes()}

    def handle(self, message: Message) -> Message | None:
        """Carry out a message of an attached manager; return a message if it cannot be carried out."""
        kind = message["type"]
        try:
            if kind == "run":
                self.run(read_assignment({"token": self._token, **message}))
            elif kind == "exit":
                self.exit()
            else:
                self._to_job(kind, message)
        except (PenstockError, Rejected) as error:
            self._report_rejected(message, error)
            return {"type": "rejected", "request": kind, "job": message.get("job"), "message": str(error)}
        return None

    def run(self, assignment: Assignment) -> None:
        """Run one more job; a request for an attempt that is known is a repeated one."""
        with self._lock:
            known = self._jobs.get(assignment.job)
            if known is not None and (known.state != "ended" or known.assignment.attempt >= assignment.attempt):
                return
            self._refuse(assignment)
            self.spare, self._pool = False, assignment.pool
            self._token = max(self._token, assignment.token or 0)
            job = DriverJob(assignment, self._runtime, self.folder, self._emit, self._check_over, self._clock)
            self._jobs[assignment.job] = job
        with labelled(job.id if assignment.pool is not None else None):
            _log.info(
                "job %s (%s), attempt %d: %s", job.id, assignment.name, assignment.attempt, assignment.entry_point
            )
        job.start()

    def exit(self) -> None:
        """Stop all jobs, and end."""
        with self._lock:
            self._exiting = True
        self.stop_jobs()
        self._check_over()

    def stop_jobs(self) -> None:
        """Ask all jobs for a clean stop."""
        with self._lock:
            jobs = [*self._jobs.values()]
        for job in jobs:
            job.stop()

    # --- the end ---------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the driver is over; return whether it is."""
        return self._over.wait(timeout)

    @property
    def exit_code(self) -> int:
        """The exit code of the process: that of its job; a pool's jobs have outcomes of their own."""
        codes = [job.outcome.exit_code for job in self._jobs.values() if job.outcome is not None]
        return max(codes, default=0) if self._pool is None else 0

    def _check_over(self) -> None:
        with self._lock:
            busy = any(job.outcome is None for job in self._jobs.values())
            if not busy and (self._exiting or (self._jobs and self._pool is None)):
                self._over.set()

    def _refuse(self, assignment: Assignment) -> None:
        busy = [job for job in self._jobs.values() if job.state != "ended"]
        if self._exiting or self._over.is_set():
            text = "the driver is ending"
            raise Rejected(text)
        if busy and (assignment.pool is None or assignment.pool != self._pool):
            text = f"the driver runs job {busy[0].id}, in {self._named_pool}"
            raise Rejected(text)

    @property
    def _named_pool(self) -> str:
        return f"pool '{self._pool}'" if self._pool else "no pool"

    def _to_job(self, kind: str, message: Message) -> None:
        job = self._jobs.get(str(message.get("job")))
        if job is None or job.state == "ended":
            raise Rejected("no such job runs here" if job is None else "the job has ended")
        savepoint = message.get("savepoint")
        if kind == "stop":
            job.stop(savepoint)
        elif kind == "cancel":
            self._cancel(job)
        elif kind == "savepoint" and isinstance(savepoint, str):
            job.create_savepoint(savepoint)
        else:
            text = f"a message of type {kind!r} is not known, or lacks a field"
            raise Rejected(text)

    def _report_rejected(self, message: Message, error: PenstockError | Rejected) -> None:
        """Send the event that the manager waits for, where a message that is rejected would have led to one."""
        id, described = message.get("job"), describe_error(error)
        job = self._jobs.get(str(id))
        if message["type"] == "run" and isinstance(id, str) and is_job_id(id) and job is None:
            # The driver of another job, or one that is ending: the next start is in another one.
            described["transient"] |= isinstance(error, Rejected)
            outcome = Outcome(id, int(message.get("attempt") or 1), "failed", self._clock(), described)
            outcome.write(self.folder)
            self._emit(id, "ended", outcome.fields)
        elif message["type"] == "savepoint" and isinstance(id, str):
            self._emit(id, "savepoint_failed", {"savepoint": message.get("savepoint"), "error": described})

    def _cancel(self, job: DriverJob) -> None:
        job.cancel()
        if self._pool is None:
            timer = threading.Timer(self._cancel_seconds, job.abandon)
            timer.daemon = True
            timer.start()

    def _emit(self, job: str, kind: str, fields: Mapping[str, Any]) -> None:
        if kind != "epoch":
            _log.info("job %s: %s", job, _line(kind, fields))
        # In the order of their numbers: a manager asks for those after the highest that it has.
        with self._emitting:
            self.publish(self.events.add(job, kind, self._clock(), fields))


def _line(kind: str, fields: Mapping[str, Any]) -> str:
    """Return an event for the log: an error with its hint, and no report."""
    error = fields.get("error")
    shown = {name: value for name, value in fields.items() if value is not None and name not in ("error", "report")}
    text = " ".join([kind, *(f"{name}={value}" for name, value in shown.items())])
    if not error:
        return text
    hint = f"\n  {error['hint']}" if error["hint"] else ""
    return f"{text} {error['type']}: {error['message']}{hint}"


def _resident_bytes() -> int:
    """Return the resident memory of this process and its descendants; shared pages count once for each."""
    total = 0
    try:
        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
    except psutil.Error:
        return total
    return total
