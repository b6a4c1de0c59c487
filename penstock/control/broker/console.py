"""Runs what users write in SQL in processes of their own, with limits; one process waits ready for the next request."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any

from penstock import errors
from penstock.connectors.topics.connection import Connection
from penstock.errors import PenstockError, RequestRefused, RunError

MOST_AT_ONCE = 4
IDLE_SECONDS = 120.0
# No secrets: what runs there is whatever a user has written.
_INHERITED = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
_SHOWN_LINES = 3
_ENDED = "the process of the query ended before its answer was complete"
# A process may take so long to start beside the time that a request has.
_START_SECONDS = 20.0


class Console:
    """Starts processes that answer one request each."""

    def __init__(self, connection: Connection, idle_seconds: float = IDLE_SECONDS) -> None:
        self._connection = connection
        self._idle_seconds = idle_seconds
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._lock = threading.Lock()
        self._spare: _Process | None = None

    def ask(self, request: Mapping[str, Any], seconds: float) -> Answer:
        """Start to answer a request; a process that takes longer is killed."""
        if not self._free.acquire(blocking=False):
            message = f"{MOST_AT_ONCE} queries are running already"
            raise RequestRefused(message, hint="wait until one of them has ended")
        try:
            process = self._take()
            process.send({**request, "seconds": seconds, "connection": _described(self._connection)}, seconds)
        except OSError:  # it has just been killed, after it waited for long
            process.kill()
            self._free.release()
            raise RunError(_ENDED, transient=True) from None
        except BaseException:
            self._free.release()
            raise
        self._prepare()
        return Answer(process, seconds, self._free.release)

    def _take(self) -> _Process:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and spare.claim():
            return spare
        if spare is not None:
            spare.kill()
        return _Process()

    def _prepare(self) -> None:
        """Start the next process, so that the next request does not wait for it."""
        with self._lock:
            if self._spare is None:
                self._spare = _Process()
                self._spare.kill_after(self._idle_seconds)

    def close(self) -> None:
        """End the process that waits."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.kill()


class Answer:
    """The lines of an answer. An error that a line describes is raised; `close` ends the process."""

    def __init__(self, process: _Process, seconds: float, release: Any) -> None:
        self._process, self._seconds, self._release = process, seconds, release
        self._closed = threading.Lock()
        self._done = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._done:
            raise StopIteration
        try:
            line = self._process.output.readline()
        except ValueError:  # closed by another thread, for the client has left
            line = b""
        if not line:
            raise self._ended()
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            self.close()
            raise _error(found["error"])
        if found.get("done"):
            self._done = True
            self.close()
        return found

    def close(self) -> None:
        """End the process."""
        if self._closed.acquire(blocking=False):
            self._process.kill()
            self._release()

    def _ended(self) -> PenstockError:
        self._process.wait()
        complaint = self._process.complaint()
        self.close()
        if self._process.timed_out:
            message = f"the query took more than {self._seconds:g} s"
            return RunError(message, hint="read fewer records, or filter them first")
        last = "\n  ".join(complaint.splitlines()[-_SHOWN_LINES:])
        return RunError(_ENDED, hint=last or None)


class _Process:
    """A child process that reads a request from its standard input. It ends by itself if nobody can send one."""

    def __init__(self) -> None:
        self._complaint: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = subprocess.Popen(
            [sys.executable, "-m", "penstock.sql_console"],
            cwd="/",
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaint,
            start_new_session=True,
        )
        self._timer: threading.Timer | None = None
        self._is_over = False

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    @property
    def output(self) -> IO[bytes]:
        assert self._child.stdout is not None
        return self._child.stdout

    def claim(self) -> bool:
        """Take a process that waits, if its time is not over; return whether it runs."""
        if self._timer is not None:
            self._timer.cancel()
        return self.alive

    def send(self, request: Mapping[str, Any], seconds: float) -> None:
        assert self._child.stdin is not None
        # It watches its own time too, from when it has the request.
        self.kill_after(seconds + _START_SECONDS)
        with self._child.stdin as stdin:
            stdin.write(json.dumps(request).encode() + b"\n")

    def kill_after(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._time_is_over)
        self._timer.daemon = True
        self._timer.start()

    @property
    def timed_out(self) -> bool:
        """Whether its time was over before it ended."""
        return self._is_over or -(self._child.poll() or 0) in (signal.SIGALRM, signal.SIGXCPU)

    def _time_is_over(self) -> None:
        self._is_over = True
        self._child.kill()

    def wait(self) -> None:
        self._child.wait()

    def kill(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._complaint):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def complaint(self) -> str:
        if self._complaint.closed:
            return ""
        self._complaint.seek(0)
        return self._complaint.read(10_000).decode(errors="replace").strip()


def _described(connection: Connection) -> dict[str, Any]:
    return {
        "servers": connection.servers,
        "user": connection.user,
        "password": connection.password,
        "options": dict(connection.options),
    }


def _error(described: Mapping[str, Any]) -> PenstockError:
    """Return the error that the child has described, as the class that it had there."""
    kind = getattr(errors, str(described.get("type")), None)
    known = kind if isinstance(kind, type) and issubclass(kind, PenstockError) else RunError
    return known(
        str(described.get("message", "")),
        node=described.get("node"),
        hint=described.get("hint"),
        transient=bool(described.get("transient")),
    )
