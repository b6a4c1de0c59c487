"""`penstock up` as a process, with Spark or with scripted drivers, and a client of its API."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from penstock.cli.control.token import Role, create_in_store, store_of
from penstock.control.supervisor.drivers.processes import kill_all, marks
from penstock.control.supervisor.embedded_log import EmbeddedLog
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]


class Up:
    """One server on ports that stay the same when it is started again."""

    def __init__(self, folder: Path, *, scripted: bool) -> None:
        self._folder, self.data = folder, folder / "data"
        self._ports = [_free_port(), _free_port()]
        program = ["-m", "tests.crash.control_scripted", str(folder)] if scripted else ["-m", "penstock.cli"]
        self._command = [sys.executable, *program, "up", "--data", str(self.data), "--spares", "0"]
        self._command += ["--port", str(self._ports[0]), "--log-port", str(self._ports[1])]
        self._process: subprocess.Popen[bytes] | None = None
        self.token: str | None = None

    @property
    def url(self) -> str:
        """Where the dashboard is."""
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def log(self) -> str:
        """The address of the log."""
        return f"127.0.0.1:{self._ports[1]}"

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        with (self._folder / "up.log").open("ab") as out:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        wait_for(self._is_ready, "the job manager is not ready", while_=lambda: self._process.poll() is None)  # type: ignore[union-attr]

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the job manager; at the next start its jobs go on."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)

    def end(self) -> None:
        """End it, its jobs and its log."""
        if self._process is not None and self._process.poll() is None:
            self.stop(signal.SIGKILL)
        runs = self.data / "runs"
        names = {path.name for path in runs.iterdir()} if runs.exists() else set()
        for mark in marks() & (names | {EmbeddedLog(self.data / "log").mark}):
            kill_all(mark)

    def create_token(self, name: str, role: Role) -> str:
        """Create a token; from then on every request needs one."""
        return create_in_store(store_of(self.data), name, role).token

    def call(self, method: str, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        """Send a request to the API."""
        text = token or self.token
        headers = {"Authorization": f"Bearer {text}"} if text else {}
        url = f"{self.url}/api/v1{path}"
        return httpx.request(method, url, headers=headers, timeout=60, trust_env=False, **options)

    def get(self, path: str) -> Any:
        """Return what a path of the API has."""
        response = self.call("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    def submit(self, code: str, **fields: str) -> str:
        """Submit a job and return its id."""
        response = self.call("POST", "/jobs", files={"file": ("job.py", code)}, data=fields)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    def state(self, job: str) -> str:
        """Return the state of a job."""
        return str(self.get(f"/jobs/{job}")["state"])

    def produce(self, topic: str, **record: Any) -> None:
        """Write a record."""
        response = self.call("POST", f"/topics/{topic}/messages", json=record)
        assert response.status_code == 201, response.text


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
