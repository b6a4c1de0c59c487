"""What takes a job's code: samples, rejected rows and replays, each in a process of its own with limits."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.control.machine.instructions import Launch
from penstock.control.security.secrets import Secrets
from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.versions import Version
from penstock.control.supervisor.drivers.launchers import DriverStart, driver_environment
from penstock.control.supervisor.drivers.processes import kill_all
from penstock.control.supervisor.leader.assignments import assign
from penstock.control.supervisor.options import Options
from penstock.control.supervisor.requests.plan_checks import error_of
from penstock.errors import RequestRefused, RunError

_READ_SECONDS, _REPLAY_SECONDS = 20.0, 600.0
_AT_ONCE = 2


class JobRequests:
    """Asks a job's code, in a child process. At most two at once: each loads the libraries of pipelines."""

    def __init__(self, options: Options) -> None:
        self._options, self._secrets = options, Secrets(options.data.secrets)
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    def ask(self, job: Job, version: Version, what: str, **request: Any) -> dict[str, Any]:
        """Return the answer of the child; raises the error that it describes."""
        seconds = _REPLAY_SECONDS if what == "replay" else _READ_SECONDS
        options = self._options
        environment = self._secrets.environment(options.settings, version.settings, version.arguments)
        launch = Launch("request", 1, version.number, job.parallelism)
        assigned = assign(job, version, launch, options.data, options.settings, 0, environment)
        with self._room():
            return _run({"assignment": assigned.content, "what": what, **request}, environment, seconds)

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        if not self._free.acquire(timeout=_READ_SECONDS):
            message = "other requests of this kind are running"
            raise RunError(message, hint="try again in some seconds", transient=True)
        try:
            yield
        finally:
            self._free.release()


def _run(request: Mapping[str, Any], environment: Mapping[str, str], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-request-") as folder:
        path = Path(folder) / "request.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(request))
        start = DriverStart(Path(folder), environment=environment)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "penstock.driver.job_requests", str(path)],
                env=driver_environment(start),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            message = f"no answer within {seconds:g} s"
            raise RequestRefused(message, hint="the source or sink may be away; try again") from None
        finally:
            # Also what it started and left behind.
            kill_all(start.mark)
    return _read(done)


def _read(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines()
        message = f"the request ended with code {done.returncode}"
        raise RequestRefused(message, hint=lines[-1] if lines else None) from None
    if not found.pop("ok", False):
        raise error_of(found.get("error") or {})
    return found
