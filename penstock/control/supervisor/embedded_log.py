"""The event log of `penstock up`: a process of its own that is started, adopted, restarted and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.control.supervisor.drivers.processes import MARKER, ProcessIdentity, find_driver, identify, kill_all
from penstock.errors import PortTaken, RunError
from penstock.storage.durable_files import replace_file

_ADDRESS = "address.json"
_OUTPUT = "output.log"
_LARGEST_OUTPUT = 10 * 1024**2
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.1
_WATCH_SECONDS = 1.0
_READY = re.compile(r"^listening on (\S+)$", re.MULTILINE)
_METRICS = re.compile(r"^metrics on (\S+)$", re.MULTILINE)
DEFAULT_PORT = 9092
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogAddress:
    """Where the log listens, and where its metrics are."""

    bootstrap: str
    metrics: str


class EmbeddedLog:
    """The log of one data folder. Jobs use it, so it outlives a manager that is killed, and the next one adopts it.

    It has the same port again after a restart, for running jobs know its address.
    """

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int | None = None) -> None:
        self._folder, self._host, self._port = folder, host, port
        self.mark = "log-" + hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
        self._process: ProcessIdentity | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self.address = LogAddress("", "")

    async def start(self) -> LogAddress:
        """Start the log, or adopt the one that a killed manager left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        known = self._known()
        self._process = await asyncio.to_thread(find_driver, self.mark)
        if self._process is not None and known is not None:
            self.address = known
        else:
            kill_all(self.mark)
            self.address = await self._launch(self._choose_port(known))
        return self.address

    async def watch(self) -> None:
        """Restart the log whenever it has ended; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if self._child is not None:
                self._child.poll()
            if self._process is not None and not self._process.alive:
                _logger.error("the event log has ended; it is started again on %s", self.address.bootstrap)
                try:
                    self.address = await self._launch(_port(self.address.bootstrap))
                except (RunError, PortTaken) as error:
                    _logger.error("the event log did not start: %s", error.message)

    async def stop(self) -> None:
        """Stop the log gracefully."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            os.kill(self._process.pid, signal.SIGTERM)
        for _ in range(int(_STOP_SECONDS / _POLL_SECONDS)):
            if self._child is not None:
                self._child.poll()
            if not self._process.alive:
                return
            await asyncio.sleep(_POLL_SECONDS)
        kill_all(self.mark, self._process)

    async def _launch(self, port: int) -> LogAddress:
        output = self._folder.parent / f"log-{_OUTPUT}"
        if output.exists() and output.stat().st_size > _LARGEST_OUTPUT:
            os.replace(output, output.with_suffix(".1.log"))
        from_here = output.stat().st_size if output.exists() else 0
        listen = ["--listen", f"{self._host}:{port}", "--metrics", "127.0.0.1:0"]
        command = [sys.executable, "-m", "penstock.cli", "log", "serve", "--data", str(self._folder), *listen]
        with output.open("ab") as out:
            environment = {**os.environ, MARKER: self.mark, "PYTHONUNBUFFERED": "1"}
            self._child = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._process = identify(self._child.pid)
        address = await self._wait_until_ready(output, from_here)
        replace_file(self._folder.parent / f"log-{_ADDRESS}", json.dumps(asdict(address)).encode(), mode=0o600)
        return address

    async def _wait_until_ready(self, output: Path, from_here: int) -> LogAddress:
        assert self._child is not None
        for _ in range(int(_START_SECONDS / _POLL_SECONDS)):
            with output.open("rb") as file:
                file.seek(from_here)
                printed = file.read().decode(errors="replace")
            ready, metrics = _READY.search(printed), _METRICS.search(printed)
            if ready is not None:
                return LogAddress(ready[1], metrics[1] if metrics else "")
            if self._child.poll() is not None:
                last = (printed.strip().splitlines() or ["no output"])[-1]
                message = f"the event log did not start: {last}"
                raise RunError(message, hint=f"see {output}")
            await asyncio.sleep(_POLL_SECONDS)
        self._child.kill()
        message = f"the event log was not ready within {_START_SECONDS:.0f} s"
        raise RunError(message, hint=f"see {output}")

    def _known(self) -> LogAddress | None:
        try:
            return LogAddress(**json.loads((self._folder.parent / f"log-{_ADDRESS}").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _choose_port(self, known: LogAddress | None) -> int:
        """Return the port that was asked for, or the last one, or Kafka's, or any."""
        if self._port is not None:
            return self._port
        candidates = [_port(known.bootstrap)] if known is not None else []
        return next((port for port in (*candidates, DEFAULT_PORT) if self._is_free(port)), 0)

    def _is_free(self, port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self._host, port))
            except OSError:
                return False
            return True


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
