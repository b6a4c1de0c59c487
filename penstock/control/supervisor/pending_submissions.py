"""Submissions that are being stored: a mark for each, by which what a killed manager left behind is found."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock.control.store.store import Store
from penstock.control.supervisor.data_folder import DataFolder
from penstock.errors import StoreUnavailable, UnknownJob

_logger = logging.getLogger(__name__)


class Pending:
    """A submission of a job; `version` marks which folder is not of a stored version yet."""

    def __init__(self, mark: int) -> None:
        self._mark = mark

    def version(self, number: int) -> None:
        """Write the number of the version before its folder is created."""
        os.pwrite(self._mark, str(number).encode(), 0)


@contextlib.contextmanager
def pending(data: DataFolder, job: str) -> Iterator[Pending]:
    """Mark a submission until it is stored or refused; two of one job wait for each other.

    The mark is a locked file: the lock of a process that was killed is free, the file is still there. It stays as well
    if the store did not answer, for then it is not known whether the version is stored.
    """
    data.submissions.mkdir(exist_ok=True)
    path = data.submissions / job
    mark = _locked(path)
    try:
        yield Pending(mark)
        path.unlink(missing_ok=True)
    except StoreUnavailable:
        raise
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(mark)


def _locked(path: Path) -> int:
    while True:
        mark = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(mark, fcntl.LOCK_EX)
        if _is_file(mark, path):
            return mark
        os.close(mark)  # it was removed while we waited for it


def _is_file(mark: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(mark), path.stat())
    except FileNotFoundError:
        return False


def remove_abandoned(data: DataFolder, store: Store) -> list[str]:
    """Remove the folders of versions that were being stored when their manager was killed; return which."""
    marks = sorted(data.submissions.iterdir()) if data.submissions.is_dir() else []
    return [name for path in marks for name in _removed(data, store, path)]


def _removed(data: DataFolder, store: Store, path: Path) -> Iterator[str]:
    with contextlib.suppress(BlockingIOError, FileNotFoundError), path.open("rb") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        number = int(mark.read() or b"0")
        if number and not _is_stored(store, path.name, number):
            remove_version(data, path.name, number)
            _logger.info("version %d of job %s was not submitted to the end: its folder is removed", number, path.name)
            yield f"{path.name}/{number}"
        path.unlink(missing_ok=True)


def _is_stored(store: Store, job: str, number: int) -> bool:
    try:
        store.versions.get(job, number)
    except UnknownJob:
        return False
    return True


def remove_version(data: DataFolder, job: str, number: int) -> None:
    """Remove the folder of a version that is not stored."""
    shutil.rmtree(data.version(job, number), ignore_errors=True)
    with contextlib.suppress(OSError):  # it has other versions
        data.versions(job).rmdir()
