"""One job of a driver: a thread that loads it, runs it, reports its epochs and writes its outcome."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from penstock.driver.assignment import Assignment
from penstock.driver.messages import Message, describe_epoch, describe_error, describe_progress, describe_report
from penstock.driver.outcome import Ending, Outcome, outcome_path
from penstock.driver.runtime import Run, Runtime
from penstock.errors import PenstockError
from penstock.observe.thread_labels import labelled
from penstock.report import Progress
from penstock.secret_references import PREFIX

POLL_SECONDS = 0.05
IDLE_SECONDS = 10.0
JobState = Literal["loading", "running", "stopping", "ended"]
Emit = Callable[[str, str, Mapping[str, Any]], None]
_log = logging.getLogger(__name__)


class DriverJob:
    """A job from its assignment to its outcome.

    Invariants: exactly one `ended` event, the last one; the outcome is on disk before it is sent. `emit` takes the
    job, the kind of an event and its fields; `on_end` is called after the last event.
    """

    def __init__(
        self,
        assignment: Assignment,
        runtime: Runtime,
        folder: Path,
        emit: Emit,
        on_end: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.assignment = assignment
        self.outcome: Outcome | None = None
        self.state: JobState = "loading"
        self._runtime, self._folder, self._emit, self._on_end, self._clock = runtime, folder, emit, on_end, clock
        self._run: Run | None = None
        self._shown, self._shown_at = Progress(), clock()
        self._stopping = self._canceled = self._ending = False
        self._stop_savepoint: str | None = None
        self._created: dict[str, Message] = {}
        self._token = assignment.token
        self._lock = threading.RLock()

    @property
    def id(self) -> str:
        """The job's id."""
        return self.assignment.job

    def start(self) -> None:
        """Start the job and return at once."""
        outcome_path(self._folder, self.id).unlink(missing_ok=True)
        self._spawn(self._main)

    def stop(self, savepoint: str | None = None) -> None:
        """Finish the epoch and stop, then create the savepoint; a later call may add the savepoint."""
        with self._lock:
            if self._ending:
                return
            first, self._stopping = not self._stopping, True
            self._stop_savepoint = self._stop_savepoint or savepoint
            if self.state == "running":
                self.state = "stopping"
            run = self._run
        if first:
            self._event("stopping", {"savepoint": savepoint})
        if run is not None:
            run.stop()

    def cancel(self) -> None:
        """Stop without finishing the epoch."""
        with self._lock:
            if self._ending or self._canceled:
                return
            self._stopping = self._canceled = True
            run = self._run
        self._event("stopping", {"savepoint": None, "canceled": True})
        if run is not None:
            # Spark waits for the threads of its queries.
            self._spawn(run.abort)

    def abandon(self) -> None:
        """Write the outcome of a canceled job that does not end; the process has to end right after."""
        self._end("canceled", None, None)

    def create_savepoint(self, name: str) -> None:
        """Create a savepoint, while the job goes on; a repeated request is answered with the first one's result."""
        with self._lock:
            done = self._created.get(name)
        if done is not None:
            self._event("savepoint", done)
        else:
            self._spawn(lambda: self._save(name))

    def fence(self, token: int) -> None:
        """Record the token of a newer manager in the checkpoint's lease."""
        with self._lock:
            self._token, run = token, self._run
        if run is not None:
            self._spawn(lambda: run.fence(token))

    def describe(self) -> Message:
        """Return the job's state and progress for a heartbeat; asks nobody, so that it never waits."""
        shown, now = self._shown, self._clock()
        if now - self._shown_at > max(IDLE_SECONDS, 3 * shown.epoch_ms / 1000):
            # The rates of the newest epoch are those of a moment that is over.
            shown = replace(shown, rows_in_per_s=0.0, rows_out_per_s=0.0)
        return {"state": self.state, "attempt": self.assignment.attempt, **describe_progress(shown, now)}

    # --- in threads of the job -------------------------------------------------------------------

    def _main(self) -> None:
        report: Message | None = None
        try:
            self._event("loading", {"attempt": self.assignment.attempt})
            run = self._runtime.start(self.assignment)
            self._begin(run)
            while not run.wait(POLL_SECONDS):
                self._report(run.progress())
            self._report(run.progress())
            done = run.report()
            report = describe_report(done)
            self._end("finished" if done.ended or not self._stopping else "stopped", None, report)
        except BaseException as error:  # user code may raise anything, and the manager must learn of it
            self._fail(error, report)

    def _begin(self, run: Run) -> None:
        with self._lock:
            self._run = run
            self.state = "stopping" if self._stopping else "running"
            stopping, canceled, token = self._stopping, self._canceled, self._token
        if token is not None and token != self.assignment.token:
            run.fence(token)
        self._shown = replace(run.progress(), epoch=-1)
        self._event("running", {"notice": run.notice})
        if stopping:
            run.abort() if canceled else run.stop()

    def _report(self, progress: Progress) -> None:
        if progress.epoch > self._shown.epoch:
            self._event("epoch", describe_epoch(progress, self._shown, self._clock()))
            # A run may return the same object every time, with new counts.
            self._shown, self._shown_at = replace(progress), self._clock()

    def _fail(self, error: BaseException, report: Message | None) -> None:
        if not isinstance(error, PenstockError):
            _log.error("job %s: unexpected error", self.id, exc_info=error)
        run = self._run
        if run is not None:
            # The last numbers of a run that has failed: without them the error is still reported.
            with contextlib.suppress(Exception):
                self._report(run.progress())
                report = report or describe_report(run.report())
        if self._canceled:
            self._end("canceled", None, report)
        else:
            self._end("failed", describe_error(error, self._secrets), report)

    def _end(self, ending: Ending, error: Message | None, report: Message | None) -> None:
        with self._lock:
            if self._ending:
                return
            self._ending, wanted = True, self._stop_savepoint
        if self._canceled and ending == "stopped":
            ending = "canceled"
        created = None
        if wanted is not None and ending in ("stopped", "finished"):
            created = wanted if self._save(wanted) else None
        elif wanted is not None:
            self._event("savepoint_failed", {"savepoint": wanted, "error": error})
        outcome = Outcome(self.id, self.assignment.attempt, ending, self._clock(), error, report, created)
        try:
            outcome.write(self._folder)
        except PenstockError as failed:
            _log.error("job %s: its outcome cannot be written: %s", self.id, failed)
        # Only now: a driver whose jobs all have an outcome may end at any time.
        self.outcome = outcome
        # Cleans up only; the outcome is written.
        with contextlib.suppress(Exception):
            self._runtime.ended(self.assignment)
        self.state = "ended"
        self._event("ended", outcome.fields)
        self._on_end()

    def _save(self, name: str) -> bool:
        """Create a savepoint and report it, or why it failed; return whether it was created."""
        try:
            made = {"savepoint": name, **self._runtime.savepoint(self.assignment, name)}
        except Exception as error:  # a savepoint that fails must not fail its job
            if not isinstance(error, PenstockError):
                _log.error("job %s: unexpected error in savepoint %s", self.id, name, exc_info=error)
            self._event("savepoint_failed", {"savepoint": name, "error": describe_error(error, self._secrets)})
            return False
        with self._lock:
            self._created[name] = made
        self._event("savepoint", made)
        return True

    @property
    def _secrets(self) -> list[str]:
        """The values that no error may show: those of this job, and those that the process was started with."""
        inherited = (value for name, value in os.environ.items() if name.startswith(PREFIX))
        return [*self.assignment.environment.values(), *inherited]

    def _event(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._emit(self.id, kind, fields)

    def _spawn(self, target: Callable[[], object]) -> None:
        def labelled_target() -> None:
            with labelled(self.id if self.assignment.pool is not None else None):
                target()

        threading.Thread(target=labelled_target, name=f"job-{self.id}", daemon=True).start()
