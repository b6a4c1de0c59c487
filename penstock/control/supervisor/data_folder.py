"""The data folder of a job manager: where versions, runs, checkpoints and savepoints are."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import DiskFull, SettingsError
from penstock.storage.durable_files import describe_owner

LOCK = "penstock.pid"
# Below this, submissions are refused: what is left is for the checkpoints of running jobs.
LEAST_FREE = 256 * 1024**2


@dataclass(frozen=True)
class DataFolder:
    """Paths below one folder; `checkpoints` and `savepoints` may be elsewhere, also in an object store."""

    path: Path
    checkpoints_url: str | None = None

    @property
    def store_url(self) -> str:
        """The SQLite database of `penstock up`."""
        return f"sqlite:///{self.path / 'penstock.db'}"

    @property
    def log(self) -> Path:
        """The event log of `penstock up`."""
        return self.path / "log"

    @property
    def secrets(self) -> Path:
        """Secrets as files."""
        return self.path / "secrets"

    @property
    def runs(self) -> Path:
        """Folders of drivers: socket, assignments, outcomes, output."""
        return self.path / "runs"

    @property
    def submissions(self) -> Path:
        """Marks of submissions that are being stored."""
        return self.path / "submissions"

    @property
    def checkpoints(self) -> str:
        """The checkpoints of all jobs."""
        return self.checkpoints_url or str(self.path / "checkpoints")

    @property
    def savepoints(self) -> str:
        """The savepoints of all jobs."""
        return f"{self.checkpoints.rstrip('/')}-savepoints" if self.checkpoints_url else str(self.path / "savepoints")

    def checkpoint(self, job: str) -> str:
        """The checkpoint of a job."""
        return f"{self.checkpoints.rstrip('/')}/{job}"

    def job_savepoints(self, job: str) -> str:
        """The savepoints of a job."""
        return f"{self.savepoints.rstrip('/')}/{job}"

    def versions(self, job: str) -> Path:
        """The versions of a job."""
        return self.path / "versions" / job

    def version(self, job: str, number: int) -> Path:
        """The unpacked source of a version."""
        return self.versions(job) / str(number)

    def run(self, driver: str) -> Path:
        """The folder of a driver."""
        return self.runs / driver

    def create(self) -> None:
        """Create the folder; only its owner may read it, for sources and output are a user's own."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.runs, self.path / "versions"):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            message = f"cannot use the data folder {self.path}: {error.strerror}"
            hint = f"{describe_owner(self.path)}\n  give a folder that this user may write to: --data DIR"
            raise SettingsError(message, hint=hint) from error

    def check_space(self, needed: int = 0) -> None:
        """Refuse to store more if the disk is nearly full."""
        free = shutil.disk_usage(self.path).free
        if free < LEAST_FREE + needed:
            message = f"{self.path}: {free // 1024**2} MiB are free, and a submission needs {LEAST_FREE // 1024**2} MiB"
            raise DiskFull(message, hint="running jobs go on; free some space and submit again", transient=True)


def disk_full(error: OSError, path: Path) -> DiskFull | None:
    """Return the error for a user if a write failed because the disk or the quota is full."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    message = f"{path}: no space is left"
    return DiskFull(message, hint="running jobs go on; free some space and submit again", transient=True)


class FolderLock:
    """Holds a data folder for one process; the file contains its process id."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._handle = -1

    def acquire(self) -> None:
        """Take the lock, or say which process has it."""
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._handle)
            message = f"{self._path.parent} is in use by the job manager with process id {holder}"
            raise SettingsError(
                message, hint="use that one, stop it first, or choose another folder: --data DIR"
            ) from None
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Give the folder back."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
