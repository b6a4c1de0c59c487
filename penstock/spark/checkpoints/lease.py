"""The lease on a checkpoint: one driver at a time, for as long as its JVM lives.

On a disk Python takes a `flock` before Spark starts. The JVM takes an `fcntl` lock once it is there: after a kill -9
of Python the JVM lives on for seconds and could still write, so its own lock keeps the next driver waiting. Each has a
file of its own: on a disk that a cluster shares (NFS) the two kinds of lock see each other, and the JVM would meet
Python's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO, Any, Protocol

from penstock.errors import CheckpointDamaged, CheckpointInUse
from penstock.folders import Folder

ORPHAN_SECONDS = 15.0


class Lease(Protocol):
    """Held from `take` until `release`, or until the driver is gone."""

    def take(self, pipeline: str) -> None:
        """Take the lease, or say who has it."""

    def share_with(self, jvm: Any) -> None:
        """Let the JVM hold it too."""

    def confirm(self) -> None:
        """Raise a CheckpointError if it is held no more: taken over, or gone with the folder."""

    def release(self) -> None:
        """Give it back."""


def lease_on(root: Folder) -> Lease:
    """Return the lease of a checkpoint, not yet taken."""
    from penstock.spark.checkpoints.store_lease import StoreLease

    return StoreLease(root) if root.local is None else DiskLease(root.local)


class DiskLease:
    """Held by locks, which go with their processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "lease"
        self._of_jvm = folder / "lease.jvm"
        self._file = open(self.path, "a+b")  # noqa: SIM115 - held open: closing it ends the lease
        self._channel: Any = None

    def take(self, pipeline: str) -> None:
        """Take the lease, or say who has it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._refuse("another driver is using it")
        self._wait_for_orphan()
        self._note(pipeline)

    def share_with(self, jvm: Any) -> None:
        """Let the JVM hold it too."""
        self._channel = jvm.java.io.RandomAccessFile(str(self._of_jvm), "rw").getChannel()
        if self._channel.tryLock() is None:
            self._refuse("another JVM is using it")

    def confirm(self) -> None:
        """Raise a CheckpointError if the folder is gone, or was put back by someone else."""
        if self._file.closed:
            return
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            same = False
        if not same:
            raise gone(str(self.path.parent))

    def release(self) -> None:
        """Give it back."""
        if self._channel is not None:
            # The JVM may be gone already; its lock went with it.
            with contextlib.suppress(Exception):
                self._channel.close()
            self._channel = None
        self._file.close()

    def _wait_for_orphan(self) -> None:
        """Wait for the JVM of a killed driver, which ends soon after its Python."""
        until = time.monotonic() + ORPHAN_SECONDS
        with self._of_jvm.open("a+b") as file:
            while not _is_free(file):
                if time.monotonic() > until:
                    self._refuse("the Spark of a killed driver is still running")
                time.sleep(0.1)

    def _note(self, pipeline: str) -> None:
        self._file.truncate(0)
        self._file.write(json.dumps({"pipeline": pipeline, "pid": os.getpid()}).encode())
        self._file.flush()

    def _refuse(self, why: str) -> None:
        holder = _holder(self.path)
        self._file.close()
        raise in_use(str(self.path.parent), f"{why}{holder}")


def in_use(folder: str, why: str) -> CheckpointInUse:
    """Return the error of a second driver."""
    message = f"checkpoint {folder} is in use: {why}"
    hint = "wait for it or stop it; to run the pipeline twice, give each run its own --checkpoint"
    return CheckpointInUse(message, hint=hint, transient=True)


def gone(folder: str) -> CheckpointDamaged:
    """Return the error of a driver whose checkpoint was deleted under it."""
    message = f"checkpoint {folder} was deleted while the job ran; nothing was written after that"
    hint = "put the folder back from a copy or restore a savepoint; a new checkpoint reads the sources from their start"
    return CheckpointDamaged(message, hint=hint)


def _is_free(file: IO[bytes]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_UN)
    except OSError:
        return False
    return True


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError):
        note = json.loads(path.read_bytes())
        return f" (pipeline '{note['pipeline']}', process {note['pid']})"
    return ""
