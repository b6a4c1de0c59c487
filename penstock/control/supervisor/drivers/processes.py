"""Processes of drivers: identity, memory, and everything that belongs to a run, also outside of its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

# Every process of a driver inherits it, so that those are found which left the process group.
MARKER = "PENSTOCK_RUN"
_START_TIME = 19  # of the fields after the name in /proc/PID/stat: clock ticks since boot
_STATE = 0
_LINUX = sys.platform == "linux"


@dataclass(frozen=True)
class ProcessIdentity:
    """A process id with its start time: a later process with the same id has another one."""

    pid: int
    started: float

    @property
    def alive(self) -> bool:
        """Whether this very process runs; a zombie does not."""
        return start_time(self.pid) == self.started


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process."""
    started = start_time(pid)
    return None if started is None else ProcessIdentity(pid, started)


def start_time(pid: int) -> float | None:
    """Return when a process started, in a unit of the system; None if it does not run.

    On Linux it is the time since boot, which does not move when the clock is set.
    """
    return _start_time_of_proc(pid) if _LINUX else _start_time_of_psutil(pid)


def _start_time_of_proc(pid: int) -> float | None:
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name is in parentheses, and may itself contain some.
    after = content[content.rindex(b")") + 2 :].split()
    return None if after[_STATE] in (b"Z", b"X") else float(after[_START_TIME])


def _start_time_of_psutil(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None


def processes_of(mark: str, root: ProcessIdentity | None = None) -> list[psutil.Process]:
    """Return the processes of a driver: its descendants, and all that inherited its marker."""
    found = {one.pid: one for one in _marked(mark)}
    if root is not None and root.alive:
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(root.pid)
            found |= {one.pid: one for one in (top, *top.children(recursive=True))}
    return list(found.values())


def _marked(mark: str) -> Iterator[psutil.Process]:
    wanted = f"{MARKER}={mark}".encode()
    for pid in psutil.pids():
        if pid != os.getpid() and wanted in _environment(pid):
            with contextlib.suppress(psutil.Error):
                yield psutil.Process(pid)


def _environment(pid: int) -> Iterable[bytes]:
    if _LINUX:
        try:
            return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return ()
    try:
        return [f"{name}={value}".encode() for name, value in psutil.Process(pid).environ().items()]
    except psutil.Error:
        return ()


def marks() -> set[str]:
    """Return the markers of all processes of this machine."""
    prefix = f"{MARKER}=".encode()
    found = (entry for pid in psutil.pids() for entry in _environment(pid) if entry.startswith(prefix))
    return {entry.removeprefix(prefix).decode(errors="replace") for entry in found}


def find_driver(mark: str) -> ProcessIdentity | None:
    """Return the driver with this marker: the oldest process that has it."""
    found = [one for one in map(identify, (process.pid for process in _marked(mark))) if one is not None]
    return min(found, key=lambda one: one.started, default=None)


def resident_bytes(root: ProcessIdentity) -> int:
    """Return the resident memory of a process and its descendants.

    Shared pages count once for each process; the difference is small, for a JVM and Python workers share little.
    """
    if not root.alive:
        return 0
    total = 0
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(root.pid)
        for one in (top, *top.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += one.memory_info().rss
    return total


def kill_all(mark: str, root: ProcessIdentity | None = None) -> int:
    """Kill every process of a driver; return how many there were.

    It repeats until none is found, for a process may fork while others are killed.
    """
    killed = 0
    for _ in range(10):
        if root is not None and root.alive:
            with contextlib.suppress(OSError):
                os.killpg(root.pid, signal.SIGKILL)
        found = [one for one in processes_of(mark, root) if start_time(one.pid) is not None]
        if not found:
            break
        killed += len(found)
        for one in found:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(found, timeout=0.5)
    return killed
