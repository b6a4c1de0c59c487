"""`penstock server` in a process of its own, for the control bench: started, measured, and ended with its drivers."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from benchmarks.process import environment, stop_process
from penstock.control.supervisor.drivers.processes import kill_all, marks

START_SECONDS = 60
POLL_SECONDS = 0.05
_LISTENING = re.compile(r"^job manager on (\S+)$", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class NotStarted(Exception):
    """The job manager ended, or did not answer in time."""


class ManagerProcess:
    """A context manager: inside, a job manager runs over a data folder with a SQLite store; its URL is `url`."""

    url: str

    def __init__(self, data: Path, spares: int = 0) -> None:
        self._data, self._spares = data, spares

    def __enter__(self) -> Self:
        self._data.mkdir(parents=True, exist_ok=True)
        said = self._data / "output.log"
        options = ["--data", str(self._data), "--port", "0", "--spares", str(self._spares)]
        with said.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", "server", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
            )
        self._measured = psutil.Process(self._process.pid)
        try:
            self.url = self._address(said)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_process(self._process)
        # Drivers outlive their manager. Those of this folder are ours.
        runs = self._data / "runs"
        for mark in marks() & {path.name for path in runs.iterdir()} if runs.is_dir() else ():
            kill_all(mark)

    @property
    def peak_mb(self) -> float:
        """The most resident memory that the manager itself has had, without its drivers."""
        try:
            found = _PEAK.search(Path(f"/proc/{self._process.pid}/status").read_text())
        except OSError:
            found = None
        return int(found[1]) / 1024 if found else self._measured.memory_info().rss / 2**20

    def cpu_seconds(self) -> float:
        """Return the processor time that the manager itself has used."""
        used = self._measured.cpu_times()
        return float(used.user + used.system)

    def _address(self, said: Path) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := _LISTENING.search(said.read_text(errors="replace")):
                return found[1]
            time.sleep(POLL_SECONDS)
        last = said.read_text(errors="replace").strip().splitlines()[-3:]
        raise NotStarted(f"the job manager did not start: {' / '.join(last) or 'it said nothing'}")
