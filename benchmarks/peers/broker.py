"""A broker in a process of its own, for a bench or a test: started, measured, and ended by its process id."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.process import Peak, stop_process

START_SECONDS = 60
POLL_SECONDS = 0.005
# The smallest request of the Kafka protocol: ApiVersions, version 0, of a client without a name.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class NotStarted(Exception):
    """A broker ended, or did not answer in time."""


class Broker(ABC):
    """A context manager: inside, a broker runs on a data folder that is removed in the end.

    bootstrap       HOST:PORT, for clients
    start_seconds   from the start of the process until it answered a request
    """

    bootstrap: str
    start_seconds: float

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent

    @abstractmethod
    def _prepare(self, folder: Path) -> list[str]:
        """Make what the broker needs in this folder, and return the command that runs it."""

    @abstractmethod
    def _address(self, log: Path) -> str | None:
        """Return HOST:PORT, as soon as it is known."""

    @property
    def pid(self) -> int:
        """The process, for a test that ends it."""
        return self._process.pid

    @property
    def peak_mb(self) -> float:
        """The most resident memory that it had since `watch_memory` was called last."""
        return self._peak.mb

    def watch_memory(self) -> None:
        """Forget the peak so far."""
        self._peak.mb = 0.0

    def __enter__(self) -> Self:
        # It may still write while it is being ended.
        self._folder = tempfile.TemporaryDirectory(prefix="broker-", dir=self._parent, ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        log = folder / "output.log"
        command = self._prepare(folder)
        started = time.monotonic()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=_environment()
            )
        self._peak = Peak(self._process.pid)
        try:
            self.bootstrap = self._wait(log, started + START_SECONDS)
            self.start_seconds = time.monotonic() - started
            _wait_for_metadata(self.bootstrap)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._peak.stop()
        stop_process(self._process)
        self._folder.cleanup()

    def _wait(self, log: Path, deadline: float) -> str:
        while time.monotonic() < deadline and self._process.poll() is None:
            address = self._address(log)
            if address is not None and _answers(address):
                return address
            time.sleep(POLL_SECONDS)
        last = log.read_text(errors="replace").strip().splitlines()[-3:]
        raise NotStarted(f"{type(self).__name__} did not start: {' / '.join(last) or 'it said nothing'}")


def free_port() -> int:
    """Return a port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def _answers(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(_API_VERSIONS)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


def _wait_for_metadata(bootstrap: str) -> None:
    """Kafka answers a moment before it counts itself as a broker, and would then refuse to make a topic."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + START_SECONDS
    try:
        while not admin.list_topics(timeout=START_SECONDS).brokers and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    except KafkaException as error:
        raise NotStarted(f"{bootstrap} gives no metadata: {error}") from error
