"""Real drivers for tests: processes in run folders, and a manager that talks to them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from penstock.driver.messages import Message
from tests.driver.manager import Manager
from tests.waiting import wait_for

START_SECONDS = 120


class DriverProcess:
    """A driver in a process of its own; `events` are those that the test has read."""

    def __init__(
        self, folder: Path, assignment: Mapping[str, Any] | None = None, spare: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        if assignment is not None:
            (folder / "assignment.json").write_text(json.dumps(assignment))
        command = [sys.executable, "-m", "penstock.driver", str(folder)]
        command += ["--spare", json.dumps(spare)] if spare is not None else []
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True)
        self.events: list[Message] = []
        self._manager: Manager | None = None

    def attach(self, token: int = 1) -> Message:
        """Attach as soon as it listens; return its hello."""

        def listens() -> bool:
            return (self.folder / "driver.sock").exists()

        def runs() -> bool:
            return self.process.poll() is None

        wait_for(listens, "no socket", seconds=START_SECONDS, while_=runs)
        self._manager = Manager(self.folder, token)
        self._manager.socket.settimeout(START_SECONDS)
        return self._manager.until("hello")[-1]

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._manager is not None
        self._manager.send(message)

    def event(self, kind: str, job: str, number: int = 1) -> Message:
        """Return the first event of a kind, or the second and so on, now or later."""
        while True:
            found = [event for event in self.events if (event["kind"], event["job"]) == (kind, job)]
            if len(found) >= number:
                return found[number - 1]
            for event in self.events:
                assert kind == "ended" or (event["kind"], event["job"]) != ("ended", job), event
            assert self._manager is not None
            message = self._manager.read()
            assert message is not None, f"it closed the connection: {self.log[-3000:]}"
            assert message["type"] != "rejected", message
            if message["type"] == "event":
                self.events.append(message)

    @property
    def log(self) -> str:
        log = self.folder / "driver.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def outcome(self, job: str) -> Message:
        content: Message = json.loads((self.folder / f"outcome-{job}.json").read_bytes())
        return content

    def kill(self) -> None:
        """Kill -9 its Python; the JVM follows by itself."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        return self.process.wait(START_SECONDS)

    def end(self) -> None:
        """Kill what is left of it."""
        if self._manager is not None:
            self._manager.close()
        if self.process.poll() is None:
            children = psutil.Process(self.process.pid).children(recursive=True)
            for one in [psutil.Process(self.process.pid), *children]:
                try:
                    one.send_signal(signal.SIGKILL)
                except psutil.NoSuchProcess:
                    continue
        self.process.wait()
