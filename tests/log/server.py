"""The log in a process of its own, as a user runs it: started, killed, started again on the same folder and port."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.peers.broker import free_port

START_SECONDS = 30
STOP_SECONDS = 30
# What the log writes when something went wrong that nobody thought of.
_FAULT = re.compile(r"^Traceback|^.* (ERROR|CRITICAL) .*|^.*never (awaited|retrieved).*", re.MULTILINE)


class LogProcess:
    """`penstock log serve` on a folder; a context manager that ends it. `said` is what it wrote."""

    def __init__(self, folder: Path, *options: str, sync: str = "always", port: int | None = None) -> None:
        self.data = folder / "data"
        self._output = folder / "log-output.txt"
        self.port = port or free_port()
        self._options = ["--sync", sync, "--group-initial-rebalance-delay", "100ms", *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._process is not None
        return self._process.pid

    @property
    def peak_memory(self) -> int:
        """The most memory that the process has had, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    @property
    def said(self) -> str:
        """All that it wrote to its log so far, in this life and the ones before."""
        return self._output.read_text(errors="replace")

    @property
    def faults(self) -> list[str]:
        """The lines of its log that tell of a mistake in the broker."""
        return [match[0] for match in _FAULT.finditer(self.said)]

    def start(self) -> None:
        """Start it and wait until it accepts."""
        serve = [sys.executable, "-m", "penstock", "log", "serve", "--data", str(self.data)]
        command = [*serve, "--listen", self.bootstrap, *self._options]
        env = os.environ | {"PYTHONUNBUFFERED": "1"}
        with self._output.open("ab") as output:
            # Unbuffered: a line that was read ahead would not be seen by `select`.
            self._process = subprocess.Popen(command, bufsize=0, stdout=subprocess.PIPE, stderr=output, env=env)
        self._wait_until_listening()

    def _wait_until_listening(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if select.select([self._process.stdout], [], [], 1)[0]:
                line = self._process.stdout.readline()
                if line.startswith(b"listening on"):
                    return
                if not line:
                    break
        self.kill()
        raise AssertionError(f"the log did not start: {self.said[-2000:]}")

    def kill(self) -> None:
        """Kill -9, at once."""
        assert self._process is not None
        self._process.kill()
        self._reap()

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._reap()

    def _reap(self) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    @property
    def runs(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.runs:
            self.stop()
