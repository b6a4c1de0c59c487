"""Files written epoch by epoch, each epoch once."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa

from penstock.connectors.notes import read_note, sync_folder, write_note
from penstock.connectors.staging import Stage, Staged
from penstock.connectors.writers import ENDINGS, refuse_types
from penstock.contracts import Epoch, Sink
from penstock.errors import BadValue, DiskFull, PenstockError, SettingsError, SinkFailed, choices
from penstock.schema import Schema

_OWN = "_penstock"


class FileSink(Sink):
    """Writes Parquet, csv or json files to a folder, in subfolders `column=value` if asked.

    Guarantee: exactly once. An epoch's files are staged out of sight; its entry in the ledger decides, and
    then they are renamed into place, again after a crash. Names do not change when an epoch is replayed.
    """

    guarantee = "exactly_once"

    def __init__(
        self,
        path: str,
        format: str = "parquet",
        partition_by: Sequence[str] | str | None = None,
        *,
        base: str | None = None,
    ) -> None:
        """Take a folder, below `base` unless it is absolute."""
        if format not in ENDINGS:
            message = f"files: format {format!r} is not known"
            raise BadValue(message, hint=choices("formats", ENDINGS, format))
        self.name = os.path.basename(path.rstrip("/")) or "files"
        self.format = format
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
        self._given = path
        self._path = os.path.abspath(os.path.join(base or "", path))
        self._run = ""
        self._lock: _Lock | None = None

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON."""
        return {
            "kind": "files",
            "path": self._given,
            "format": self.format,
            "partition_by": list(self.partition_by),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> FileSink:
        """Rebuild it from `spec()`."""
        return cls(spec["path"], spec["format"], spec["partition_by"])

    def under(self, folder: str) -> None:
        """Write below this folder, unless the path is absolute."""
        self._path = os.path.abspath(os.path.join(folder, self._given))

    def check(self) -> None:
        """Raise a SettingsError if the folder cannot be written."""
        place = self._path
        while not os.path.exists(place):
            place = os.path.dirname(place)
        if not os.path.isdir(place):
            message = f"{place!r} is a file, and files are to be written below it"
            raise SettingsError(message, node=self.name, hint="move it away, or choose another folder")
        if not os.access(place, os.W_OK | os.X_OK):
            message = f"{place!r} may not be written by this user"
            raise SettingsError(message, node=self.name, hint=f"grant it: chmod u+wx {place}")

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Finish what a crash left half shown, and remove what dead runs staged."""
        refuse_types(self.format, schema)
        for name in self.partition_by:
            schema.field(name)
        with self._failures():
            os.makedirs(self._in("ledger"), exist_ok=True)
            os.makedirs(self._in("staged"), exist_ok=True)
            self._lock = None
            self._clean()
            self._run = uuid4().hex
            os.mkdir(self._in("staged", self._run))
            self._lock = _Lock.of(self._in("staged", self._run))

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
        """Write the rows of one partition out of sight."""
        folder = os.path.join(_OWN, "staged", self._run, _key(epoch))
        # A sink that was given another name may share its folder with a second one.
        sink = "" if epoch.sink == self.name else f"-{quote(epoch.sink, safe='')}"
        name = f"part-{quote(epoch.lineage, safe='')}{sink}-{epoch.number:08}-{partition}"
        with self._failures():
            return Stage(self._path, folder, self.format, name).written(batches, self.partition_by)

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Write the ledger, then rename the files into place; an epoch in the ledger is only finished."""
        files: list[Staged] = [file for token in tokens for file in token]
        with self._failures():
            if not self.committed(epoch):
                self._refuse_lost(files)
                write_note(self._ledger(_key(epoch)), json.dumps(files))
                self._finish(files)
            self.abort(epoch, tokens)

    def abort(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Remove what is still staged."""
        for file in (file for token in tokens for file in token):
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self._path, file["staged"]))
        with contextlib.suppress(OSError):
            os.rmdir(self._in("staged", self._run, _key(epoch)))

    def committed(self, epoch: Epoch) -> bool:
        """Say whether the ledger has the epoch; if so, its files are in place after this."""
        with self._failures():
            noted = read_note(self._ledger(_key(epoch)))
            if noted is not None:
                self._finish(json.loads(noted))
            return noted is not None

    def __getstate__(self) -> dict[str, Any]:
        # The lock stays in the driver: it says that the run lives.
        return self.__dict__ | {"_lock": None}

    def _in(self, *parts: str) -> str:
        return os.path.join(self._path, _OWN, *parts)

    def _ledger(self, key: str) -> str:
        return self._in("ledger", f"{key}.json")

    def _refuse_lost(self, files: Sequence[Staged]) -> None:
        for file in files:
            if not os.path.exists(os.path.join(self._path, file["staged"])):
                message = f"the staged file {file['staged']} is gone"
                hint = f"leave {self._in()!r} alone while a job runs, and run the job again"
                raise SinkFailed(message, node=self.name, hint=hint)

    def _finish(self, files: Sequence[Staged]) -> None:
        """Rename what is still staged; a file that is neither there nor here was taken by its reader."""
        moved = set()
        for file in files:
            final = os.path.join(self._path, file["final"])
            os.makedirs(os.path.dirname(final), exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.replace(os.path.join(self._path, file["staged"]), final)
                moved.add(os.path.dirname(final))
        for folder in moved:
            sync_folder(folder)

    def _clean(self) -> None:
        for run in os.listdir(self._in("staged")):
            folder = self._in("staged", run)
            lock = _Lock.of(folder)
            if lock is None:
                continue
            for key in os.listdir(folder):
                noted = read_note(self._ledger(key))
                self._finish(json.loads(noted) if noted else [])
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> PenstockError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"no space is left to write {self._path!r}"
            return DiskFull(message, node=self.name, hint="free some space, and run the job again")
        message = f"{self._path!r} cannot be written: {error}"
        hint = "check the folder and its permissions, and run the job again"
        return SinkFailed(message, node=self.name, hint=hint)


class _Lock:
    """A lock on a folder that the system releases when its process ends, however it ends."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def of(cls, folder: str) -> _Lock | None:
        """Return the lock, or None if another holds it."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return cls(handle)

    def __del__(self) -> None:
        os.close(self._handle)


def _key(epoch: Epoch) -> str:
    return quote(epoch.id, safe="")
