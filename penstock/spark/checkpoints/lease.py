"""The lease on a checkpoint: one driver at a time, for as long as its JVM lives.

On a disk Python takes a `flock` before Spark starts, and the JVM takes an `fcntl` lock once it runs: after a kill -9 of
Python the JVM lives on for seconds and could still write, so its own lock makes the next driver wait. Each has a file
of its own: on a disk that a cluster shares (NFS) the two kinds of lock conflict, and the JVM would wait for Python.

An object store has no locks. There lease/1, lease/2, ... are terms, and the highest number holds the lease. A driver
starts a term by creating the next number, which a store allows only once, and renews it every few seconds. A term that
is not renewed for long enough is over. The waiting driver measures that by its own clock, so clocks need not agree; on
the same machine it sees at once that the processes of the holder have ended.

A lease records the largest fencing token of the job managers whose drivers held it. A driver with a smaller one was
started by a manager that has lost its role, and is refused; one without a token was started by hand.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from penstock.errors import CheckpointDamaged, CheckpointInUse, StoreFailed
from penstock.storage.folders import Folder

ORPHAN_SECONDS = 15.0
# A killed process keeps its locks until its last thread has ended.
KILLED_SECONDS = 5.0
_RETRY_SECONDS = 0.05


class Lease(Protocol):
    """Held from `take` until `release`, or until the driver ends."""

    def take(self, pipeline: str, token: int | None = None) -> None:
        """Take the lease; raises CheckpointInUse with its holder, or if the lease has seen a larger token."""

    def fence(self, token: int) -> None:
        """Record a larger token while the lease is held: that of the job manager which has adopted the driver."""

    def share_with(self, jvm: Any) -> None:
        """Let the JVM hold the lease as well."""

    def confirm(self) -> None:
        """Raise a CheckpointError if the lease is lost: taken over, or deleted with the folder."""

    def release(self) -> None:
        """Release the lease."""


def lease_on(root: Folder) -> Lease:
    """Return the lease of a checkpoint; it is not taken yet."""
    return StoreLease(root) if root.local is None else DiskLease(root.local)


class DiskLease:
    """A lease by file locks, which end with their processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "lease"
        self._jvm_path = folder / "lease.jvm"
        # Held open: closing it ends the lease. Not in append mode, in which it could not be overwritten.
        self._file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        self._channel: Any = None
        self._pipeline = ""
        self._token: int | None = None

    def take(self, pipeline: str, token: int | None = None) -> None:
        """Take the lease; raises CheckpointInUse with its holder, or if the lease has seen a larger token."""
        self._lock()
        seen = _read_holder(self.path).get("token")
        if _is_stale(token, seen):
            self._file.close()
            raise _stale(str(self.path.parent), token, seen)
        self._wait_for_orphan()
        self._pipeline, self._token = pipeline, seen if token is None else token
        self._write_holder()

    def fence(self, token: int) -> None:
        """Record a larger token."""
        if not self._file.closed and not _is_stale(token, self._token):
            self._token = token
            self._write_holder()

    def _lock(self) -> None:
        """Lock the file; waits for a holder that was killed and is not quite gone."""
        until = time.monotonic() + KILLED_SECONDS
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until or not _is_ending(_read_holder(self.path)):
                    self._refuse("another driver is using it")
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def share_with(self, jvm: Any) -> None:
        """Let the JVM hold the lease as well."""
        self._channel = jvm.java.io.RandomAccessFile(str(self._jvm_path), "rw").getChannel()
        if self._channel.tryLock() is None:
            self._refuse("another JVM is using it")

    def confirm(self) -> None:
        """Raise a CheckpointError if the folder was deleted or replaced."""
        if self._file.closed:
            return
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            same = False
        if not same:
            raise _deleted(str(self.path.parent))

    def release(self) -> None:
        """Release the lease."""
        if self._channel is not None:
            # The JVM may have ended already, and its lock with it.
            with contextlib.suppress(Exception):
                self._channel.close()
            self._channel = None
        self._file.close()

    def _wait_for_orphan(self) -> None:
        """Wait for the JVM of a killed driver, which ends soon after Python."""
        until = time.monotonic() + ORPHAN_SECONDS
        with self._jvm_path.open("a+b") as file:
            while not _is_free(file):
                if time.monotonic() > until:
                    self._refuse("the Spark of a killed driver is still running")
                time.sleep(0.1)

    def _write_holder(self) -> None:
        pid = os.getpid()
        holder: dict[str, Any] = {"pipeline": self._pipeline, "pid": pid}
        holder |= {"machine": _machine(), "started": _start_time(pid), "token": self._token}
        # One write that is not shorter than before, so that no reader meets an empty file.
        text = json.dumps(holder).encode()
        size = os.fstat(self._file.fileno()).st_size
        os.pwrite(self._file.fileno(), text.ljust(size), 0)

    def _refuse(self, why: str) -> None:
        holder = _holder(self.path)
        self._file.close()
        raise _in_use(str(self.path.parent), f"{why}{holder}")


def _in_use(folder: str, why: str) -> CheckpointInUse:
    """Return the error for a second driver."""
    message = f"checkpoint {folder} is in use: {why}"
    hint = "wait for it or stop it; to run the pipeline twice, give each run its own --checkpoint"
    return CheckpointInUse(message, hint=hint, transient=True)


def _deleted(folder: str) -> CheckpointDamaged:
    """Return the error for a driver whose checkpoint was deleted while it ran."""
    message = f"checkpoint {folder} was deleted while the job ran; nothing was written after that"
    hint = "put the folder back from a copy, or restore a savepoint if there is one; "
    hint += "a new checkpoint reads the sources from their start"
    return CheckpointDamaged(message, hint=hint)


def _is_free(file: IO[bytes]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_UN)
    except OSError:
        return False
    return True


def _holder(path: Path) -> str:
    holder = _read_holder(path)
    known = {"pipeline", "pid"} <= holder.keys()
    return f" (pipeline '{holder['pipeline']}', process {holder['pid']})" if known else ""


def _read_holder(path: Path) -> dict[str, Any]:
    """Return what the last holder wrote; empty if there was none, or it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        holder = json.loads(path.read_bytes())
        return holder if isinstance(holder, dict) else {}
    return {}


def _is_ending(holder: Mapping[str, Any]) -> bool:
    """Say whether the holder's process is gone, or was killed and is ending; another machine's cannot be seen."""
    if not isinstance(pid := holder.get("pid"), int) or holder.get("machine", _machine()) != _machine():
        return False
    started = _start_time(pid)
    return not started or started != holder.get("started", started) or _is_killed(pid)


def _is_killed(pid: int) -> bool:
    """Say whether a SIGKILL is pending: the process has not seen it yet, and will not survive it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    pending = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)", status, re.MULTILINE)
    return any(int(mask, 16) & 1 << (signal.SIGKILL - 1) for mask in pending)


def _is_stale(token: int | None, seen: int | None) -> bool:
    return token is not None and seen is not None and token < seen


def _stale(folder: str, token: int | None, seen: int | None) -> CheckpointInUse:
    """Return the error for a driver of a job manager that has lost its role."""
    message = f"checkpoint {folder} was used under fencing token {seen}, and this driver has the older token {token}"
    hint = "another job manager has taken over and runs the job; nothing needs to be done here"
    return CheckpointInUse(message, hint=hint)


RENEW_SECONDS = 5.0


TERM_SECONDS = 20.0


_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Term:
    """The holder of a lease: processes of one machine, by id and start time; `beat` counts the renewals."""

    pipeline: str
    driver: str
    machine: str
    processes: dict[str, str]
    beat: int = 0
    over: bool = False
    token: int | None = None


class StoreLease:
    """A lease in an object store, by renewed terms."""

    def __init__(self, root: Folder) -> None:
        self._root, self._terms = root, root / "lease"
        self._number = 0
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._renewer: threading.Thread | None = None

    def take(self, pipeline: str, token: int | None = None) -> None:
        """Take the lease; waits until it is known whether the holder is alive."""
        self._term = Term(pipeline, uuid.uuid4().hex, _machine(), _running([os.getpid()]), token=token)
        while not self._number:
            number = self._newest()
            self._follow(token, self._read(number))
            self._wait_for_end(number)
            # The holder may have been adopted meanwhile, with a larger token.
            self._follow(token, self._read(number))
            with contextlib.suppress(FileExistsError):
                self._terms.write(str(number + 1), _text(self._term), once=True)
                self._number = number + 1
                self._terms.remove(str(number - 1))
        self._renewer = threading.Thread(target=self._renew, name="penstock-lease", daemon=True)
        self._renewer.start()

    def share_with(self, jvm: Any) -> None:
        """Add the JVM, which may outlive its driver, to the holder's processes."""
        pids = [os.getpid(), int(jvm.java.lang.ProcessHandle.current().pid())]
        self._write(processes=_running(pids))

    def confirm(self) -> None:
        """Raise a CheckpointError if another driver has taken over, or the folder was deleted."""
        newest = self._newest()
        if newest > self._number:
            message = f"checkpoint {self._root} was taken over by another driver; this one stops writing"
            why = "was this process suspended, or the store unreachable?"
            hint = f"the lease was not renewed for {TERM_SECONDS:.0f} s: {why}"
            raise CheckpointInUse(message, hint=hint)
        if newest < self._number:
            raise _deleted(str(self._root))

    def release(self) -> None:
        """Release the lease."""
        if self._renewer is None:
            return
        self._ending.set()
        self._renewer.join()
        self._renewer = None
        # If that fails, the next driver waits for the end of the term.
        with contextlib.suppress(StoreFailed, CheckpointInUse, OSError):
            if self._newest() == self._number:
                self._write(over=True)

    def fence(self, token: int) -> None:
        """Record a larger token."""
        if self._renewer is not None and not _is_stale(token, self._term.token):
            self._write(token=token)

    def _follow(self, token: int | None, before: Term | None) -> None:
        """Refuse a token that is smaller than that of the term before, and keep that where there is none."""
        seen = before.token if before is not None else None
        if _is_stale(token, seen):
            raise _stale(str(self._root), token, seen)
        self._term = replace(self._term, token=seen if token is None else token)

    def _newest(self) -> int:
        return max((int(name) for name in self._terms.names() if name.isdigit()), default=0)

    def _wait_for_end(self, number: int) -> None:
        """Wait until a term is over; raises if it is renewed."""
        first = self._read(number)
        until = time.monotonic() + TERM_SECONDS
        while (term := self._read(number)) is not None and not term.over and not _has_ended(term):
            if first is not None and term.beat != first.beat:
                self._refuse(term)
            if time.monotonic() > until:
                return
            time.sleep(_POLL_SECONDS)

    def _read(self, number: int) -> Term | None:
        text = self._terms.read(str(number))
        return Term(**json.loads(text)) if text else None

    def _renew(self) -> None:
        while not self._ending.wait(RENEW_SECONDS):
            # An outage of the store may be short; `confirm` reports if another driver took over.
            with contextlib.suppress(StoreFailed, OSError):
                if self._newest() == self._number:
                    self._write(beat=self._term.beat + 1)

    def _write(self, **changes: Any) -> None:
        with self._lock:
            self._term = replace(self._term, **changes)
            self._terms.write(str(self._number), _text(self._term))

    def _refuse(self, term: Term) -> NoReturn:
        pid = next(iter(term.processes), "?")
        where = "" if term.machine == _machine() else " on another machine"
        why = f"another driver is using it (pipeline '{term.pipeline}', process {pid}{where})"
        raise _in_use(str(self._root), why)


def _text(term: Term) -> bytes:
    return json.dumps(asdict(term)).encode()


def _machine() -> str:
    """Return an id of this machine; containers, which may have the same process ids, differ too."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return uuid.uuid4().hex


def _running(pids: list[int]) -> dict[str, str]:
    """Return the running processes with their start times, because process ids are reused."""
    return {str(pid): start for pid in pids if (start := _start_time(pid))}


def _start_time(pid: int) -> str:
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else rest[18]


def _has_ended(term: Term) -> bool:
    """Return whether all processes of a term have ended; those of another machine cannot be seen."""
    if term.machine != _machine() or not term.processes:
        return False
    return not any(_start_time(int(pid)) == start for pid, start in term.processes.items())
