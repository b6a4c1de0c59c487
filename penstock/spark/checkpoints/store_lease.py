"""The lease on a checkpoint in a store, where there are no locks.

lease/1, lease/2, ... are terms; the highest number holds. Writing the next number, which a store lets only one do,
begins a term; its driver writes it anew every few seconds. A term that was not written anew for long is over, by the
clock of the one who watches it, so that nobody's clock need be right. On the machine of the dead, that they are dead
is seen at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from penstock.errors import CheckpointInUse, StoreFailed
from penstock.folders import Folder
from penstock.spark.checkpoints.lease import gone, in_use

RENEW_SECONDS = 5.0
TERM_SECONDS = 20.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Term:
    """Who holds it: processes by number and start on one machine; `beat` counts the renewals."""

    pipeline: str
    driver: str
    machine: str
    processes: dict[str, str]
    beat: int = 0
    over: bool = False


class StoreLease:
    """Held by writing it anew."""

    def __init__(self, root: Folder) -> None:
        self._root, self._terms = root, root / "lease"
        self._number = 0
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._renewer: threading.Thread | None = None

    def take(self, pipeline: str) -> None:
        """Take the lease, or say who has it; waits while it cannot be told whether the holder lives."""
        self._term = Term(pipeline, uuid.uuid4().hex, _machine(), _alive([os.getpid()]))
        while not self._number:
            number = self._newest()
            self._outlive(number)
            with contextlib.suppress(FileExistsError):
                self._terms.write(str(number + 1), _text(self._term), once=True)
                self._number = number + 1
                self._terms.remove(str(number - 1))
        self._renewer = threading.Thread(target=self._renew, name="penstock-lease", daemon=True)
        self._renewer.start()

    def share_with(self, jvm: Any) -> None:
        """Note the JVM, which may live on after its driver."""
        pids = [os.getpid(), int(jvm.java.lang.ProcessHandle.current().pid())]
        self._write(processes=_alive(pids))

    def confirm(self) -> None:
        """Raise a CheckpointError if another driver has taken over, or the folder is gone."""
        newest = self._newest()
        if newest > self._number:
            message = f"checkpoint {self._root} was taken over by another driver, so this one writes nothing more"
            hint = f"this one did not renew its lease for {TERM_SECONDS:.0f} s: was it stopped, or cut off the store?"
            raise CheckpointInUse(message, hint=hint)
        if newest < self._number:
            raise gone(str(self._root))

    def release(self) -> None:
        """Give it back."""
        if self._renewer is None:
            return
        self._ending.set()
        self._renewer.join()
        self._renewer = None
        # Where that fails, the next driver waits for the end of the term.
        with contextlib.suppress(StoreFailed, CheckpointInUse, OSError):
            if self._newest() == self._number:
                self._write(over=True)

    def _newest(self) -> int:
        return max((int(name) for name in self._terms.names() if name.isdigit()), default=0)

    def _outlive(self, number: int) -> None:
        """Return once a term is over; raise if it is renewed."""
        first = self._read(number)
        until = time.monotonic() + TERM_SECONDS
        while (term := self._read(number)) is not None and not term.over and not _is_dead(term):
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
            # A store that is away for a while comes back; that another took over, `confirm` says.
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
        raise in_use(str(self._root), why)


def _text(term: Term) -> bytes:
    return json.dumps(asdict(term)).encode()


def _machine() -> str:
    """Return what tells apart machines, and containers that number their processes alike."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return uuid.uuid4().hex


def _alive(pids: list[int]) -> dict[str, str]:
    """Return the processes that live, each with the time of its start: a number is used again."""
    return {str(pid): start for pid in pids if (start := _start(pid))}


def _start(pid: int) -> str:
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else rest[18]


def _is_dead(term: Term) -> bool:
    """Say whether all processes of a term are seen to be gone; those of another machine are not seen."""
    if term.machine != _machine() or not term.processes:
        return False
    return not any(_start(int(pid)) == start for pid, start in term.processes.items())
