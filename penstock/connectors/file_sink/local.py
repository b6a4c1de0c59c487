"""A folder of this machine's disk, or of one that it shares."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from penstock.connectors.file_sink.places import OWN, Found, Outrun
from penstock.errors import DiskFull, SettingsError, SinkFailed
from penstock.folders.durable import make_folders, settle, sync, sync_all

_LONG = 1 << 16


class LocalPlace:
    """Staged files are renamed; the ledger is replaced under a lock."""

    def __init__(self, root: str) -> None:
        self.url = root
        self._named: set[str] = set()

    def check(self) -> None:
        """Raise a SettingsError if the folder cannot be written."""
        at = self.url
        while not os.path.exists(at):
            at = os.path.dirname(at)
        if not os.path.isdir(at):
            message = f"{at!r} is a file, and files are to be written below it"
            raise SettingsError(message, hint="move it away, or choose another folder")
        if not os.access(at, os.W_OK | os.X_OK):
            message = f"{at!r} may not be written by this user"
            raise SettingsError(message, hint=f"grant it: chmod u+wx {at}")

    def scratch(self, folder: str) -> str:
        """Return a path on the same disk, out of sight."""
        return self._made(f"{folder}/{uuid4().hex}")

    def put(self, path: str, name: str) -> None:
        """Rename a scratch file."""
        os.replace(path, self._made(name))

    @contextmanager
    def fetched(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Lend the files as they are."""
        yield [self._at(name) for name in names]

    def harden(self, names: Iterable[str]) -> None:
        """Have files and their names on the disk."""
        paths = [self._at(name) for name in names]
        folders = {os.path.dirname(path) for path in paths}
        # A run's staging folder goes when it is empty, and comes again.
        above = {os.path.dirname(folder) for folder in folders}
        settle(above)
        sync_all([*paths, *folders, *above])

    def show(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename files."""
        make_folders({os.path.dirname(self._at(final)) for _, final in moves})
        for staged, final in moves:
            with suppress(FileNotFoundError):
                os.replace(self._at(staged), self._at(final))
        self.settle(final for _, final in moves)

    def settle(self, names: Iterable[str]) -> None:
        """Sync the folders of names, and theirs."""
        folders = {os.path.dirname(self._at(name)) for name in names}
        there = [folder for folder in folders if os.path.isdir(folder)]
        settle(there)
        sync_all(there)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and folders of Penstock's own that are empty then."""
        folders = set()
        for name in names:
            with suppress(FileNotFoundError):
                os.remove(self._at(name))
            if name.startswith(OWN):
                folders.add(os.path.dirname(self._at(name)))
        for folder in folders:
            with suppress(OSError):
                os.rmdir(folder)

    def files(self, below: str) -> dict[str, Found]:
        """Return all files below a folder."""
        found, now = {}, time.time()
        for at, folders, names in os.walk(self._at(below)):
            if not below and OWN in folders:
                folders.remove(OWN)
            for path in (os.path.join(at, name) for name in names):
                with suppress(FileNotFoundError):
                    seen = os.stat(path)
                    found[os.path.relpath(path, self.url)] = Found(seen.st_size, now - seen.st_mtime)
        return found

    def read(self, name: str) -> tuple[bytes, bytes] | None:
        """Return a small file: the last whole line, for replacing it adds one. Its content is its version."""
        try:
            with open(self._at(name), "rb") as file:
                lines = file.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return None
        return (lines[-1], lines[-1]) if lines else None

    def swap(self, name: str, data: bytes, version: bytes | None) -> bytes:
        """Replace a small file of this content; data is one line."""
        path = self._at(name)
        make_folders([os.path.dirname(path)])
        with _locked(os.path.dirname(path)):
            if (self.read(name) or (None, None))[0] != version:
                raise Outrun(name)
            if version is None or os.path.getsize(path) > _LONG:
                _write_anew(path, data + b"\n")
            else:
                _append(path, data + b"\n")
            if name not in self._named:
                # Who wrote it first may have been killed before its name was on the disk.
                sync(os.path.dirname(path))
                self._named.add(name)
        return data

    @contextmanager
    def failures(self, node: str) -> Iterator[None]:
        """Turn errors of the disk into errors of the node."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                message = f"no space is left to write {self.url!r}"
                raise DiskFull(message, node=node, hint="free some space, and run the job again") from error
            message = f"{self.url!r} cannot be written: {error}"
            hint = "check the folder and its permissions, and run the job again"
            raise SinkFailed(message, node=node, hint=hint) from error

    def _at(self, name: str) -> str:
        return os.path.join(self.url, name)

    def _made(self, name: str) -> str:
        path = self._at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path


def _write_anew(path: str, data: bytes) -> None:
    with open(f"{path}.tmp", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)
    sync(os.path.dirname(path))


def _append(path: str, data: bytes) -> None:
    with open(path, "r+b") as file:
        # A crash may have left half a line.
        file.truncate(file.read().rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
