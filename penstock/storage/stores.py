"""File stores: the data files of a file sink, in a local folder or under a prefix of an object store.

Files are staged under `_penstock/staged`, and published by a rename; small files are replaced by compare-and-swap.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from penstock.errors import BadValue, DiskFull, SettingsError, SinkFailed, choices
from penstock.storage.durable_files import describe_owner, make_folders, replace_file, sync, sync_all, sync_parents
from penstock.storage.store_urls import SCHEMES, refuse_login

INTERNAL_FOLDER = "_penstock"
STAGED = f"{INTERNAL_FOLDER}/staged"
LEDGERS = f"{INTERNAL_FOLDER}/ledger"
_LONG = 1 << 16


@dataclass(frozen=True)
class StoredFile:
    """A file in a listing: its size, and its age in seconds."""

    size: int
    age: float


class VersionConflict(Exception):
    """A small file does not have the expected version."""


class FileStore(Protocol):
    """Files by name, relative to the store; names may contain "/". `translated_errors` translates its errors."""

    url: str

    def check(self) -> None:
        """Raise a SettingsError if files cannot be written."""

    def scratch(self, folder: str) -> str:
        """Return a local path for a file to be `put`, in this folder of the store if that is local."""

    def put(self, path: str, name: str) -> None:
        """Move a scratch file to a name, atomically."""

    def local_copies(self, names: Sequence[str]) -> AbstractContextManager[list[str]]:
        """Lend files as local paths; FileNotFoundError if one is missing."""

    def fsync(self, names: Iterable[str]) -> None:
        """Make files and their names durable; FileNotFoundError if one is missing."""

    def publish(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename files durably; a missing one was renamed before."""

    def fsync_names(self, names: Iterable[str]) -> None:
        """Make earlier renames and removals of these names durable, also those of a process that was killed."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that exist."""

    def files(self, below: str) -> dict[str, StoredFile]:
        """Return all files below a folder; with "" all but Penstock's internal ones."""

    def read(self, name: str) -> tuple[bytes, Any] | None:
        """Return a small file and its version, or None if it does not exist."""

    def compare_and_swap(self, name: str, data: bytes, version: Any) -> Any:
        """Replace a small file if it has this version (None: missing) and return the new one; else VersionConflict."""

    def translated_errors(self, node: str) -> AbstractContextManager[None]:
        """Translate errors inside to PenstockErrors of the node."""


def staged_name(folder: str) -> str:
    """Return a new name without the format's extension: a reader's `**/*.parquet` must not match it."""
    return f"{folder}/{uuid4().hex}.staged"


def resolve_url(path: str, base: str = "") -> str:
    """Return the absolute path or URL of a path relative to `base`.

    >>> resolve_url("out", "s3://lake/jobs"), resolve_url("gs://lake/out/", "/data"), resolve_url("out", "/data")
    ('s3://lake/jobs/out', 'gs://lake/out', '/data/out')
    """
    if "://" in path:
        return _url(path)
    if "://" in base and not base.startswith("file://"):
        return _url(base.rstrip("/") + "/" + path)
    return os.path.abspath(os.path.join(base.removeprefix("file://"), path))


def open_store(where: str) -> FileStore:
    """Return the store at what `resolve_url` returned."""
    if "://" not in where:
        return LocalStore(where)
    from penstock.storage.object_store import ObjectStore

    return ObjectStore(where)


def _url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return os.path.abspath(rest)
    if scheme not in SCHEMES:
        meant = "s3" if scheme in ("s3a", "s3n") else scheme
        message = f"files: unknown scheme {scheme}://"
        raise BadValue(message, hint=choices("known", SCHEMES, meant))
    refuse_login(url)
    parts = rest.rstrip("/").split("/")
    if not all(parts) or {".", ".."} & set(parts):
        message = f"files: {url!r} has no bucket and path"
        raise BadValue(message, hint=f"write {scheme}://BUCKET/PATH, without empty parts, '.' or '..'")
    return f"{scheme}://{'/'.join(parts)}"


class LocalStore:
    """A local folder: staged files are renamed, small files are replaced under a lock."""

    def __init__(self, root: str) -> None:
        self.url = root
        self._named: set[str] = set()

    def check(self) -> None:
        """Raise a SettingsError if the folder cannot be written."""
        at = self.url
        while not os.path.exists(at):
            at = os.path.dirname(at)
        if not os.path.isdir(at):
            message = f"{at!r} is a file, not a folder"
            raise SettingsError(message, hint="move it, or choose another folder")
        if not os.access(at, os.W_OK | os.X_OK):
            message = f"cannot write to {at!r}: permission denied\n  {describe_owner(at)}"
            raise SettingsError(
                message, hint=f"run as its owner, grant access (chmod u+wx {at}), or choose another folder"
            )

    def scratch(self, folder: str) -> str:
        """Return a path on the same disk, in an internal folder."""
        return self._made(f"{folder}/{uuid4().hex}")

    def put(self, path: str, name: str) -> None:
        """Rename a scratch file."""
        os.replace(path, self._made(name))

    @contextmanager
    def local_copies(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Lend the files themselves."""
        yield [self._at(name) for name in names]

    def fsync(self, names: Iterable[str]) -> None:
        """Sync files and their names to disk."""
        paths = [self._at(name) for name in names]
        folders = {os.path.dirname(path) for path in paths}
        # A run's staging folder is removed when it is empty, and created again.
        above = {os.path.dirname(folder) for folder in folders}
        sync_parents(above)
        sync_all([*paths, *folders, *above])

    def publish(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename files."""
        make_folders({os.path.dirname(self._at(final)) for _, final in moves})
        for staged, final in moves:
            with suppress(FileNotFoundError):
                os.replace(self._at(staged), self._at(final))
        self.fsync_names(final for _, final in moves)

    def fsync_names(self, names: Iterable[str]) -> None:
        """Sync the folders of names, and their parents."""
        folders = {os.path.dirname(self._at(name)) for name in names}
        there = [folder for folder in folders if os.path.isdir(folder)]
        sync_parents(there)
        sync_all(there)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and internal folders that become empty."""
        folders = set()
        for name in names:
            with suppress(FileNotFoundError):
                os.remove(self._at(name))
            if name.startswith(INTERNAL_FOLDER):
                folders.add(os.path.dirname(self._at(name)))
        for folder in folders:
            with suppress(OSError):
                os.rmdir(folder)

    def files(self, below: str) -> dict[str, StoredFile]:
        """Return all files below a folder."""
        found, now = {}, time.time()
        for at, folders, names in os.walk(self._at(below)):
            if not below and INTERNAL_FOLDER in folders:
                folders.remove(INTERNAL_FOLDER)
            for path in (os.path.join(at, name) for name in names):
                with suppress(FileNotFoundError):
                    seen = os.stat(path)
                    found[os.path.relpath(path, self.url)] = StoredFile(seen.st_size, now - seen.st_mtime)
        return found

    def read(self, name: str) -> tuple[bytes, bytes] | None:
        """Return the last complete line: replacing a small file appends one. Its content is its version.

        A file without one is damaged, for it was created with its first line; what it has is returned then.
        """
        try:
            with open(self._at(name), "rb") as file:
                *lines, rest = file.read().split(b"\n")
        except FileNotFoundError:
            return None
        last = lines[-1] if lines else rest
        return last, last

    def compare_and_swap(self, name: str, data: bytes, version: bytes | None) -> bytes:
        """Replace a small file if it has this content; data is one line."""
        path = self._at(name)
        make_folders([os.path.dirname(path)])
        with _locked(os.path.dirname(path)):
            if (self.read(name) or (None, None))[0] != version:
                raise VersionConflict(name)
            if version is None or os.path.getsize(path) > _LONG:
                replace_file(path, data + b"\n")
            else:
                _append(path, data + b"\n")
            if name not in self._named:
                # The process that created it may have been killed before it synced the name.
                sync(os.path.dirname(path))
                self._named.add(name)
        return data

    @contextmanager
    def translated_errors(self, node: str) -> Iterator[None]:
        """Translate disk errors to PenstockErrors of the node."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                message = f"no space is left to write {self.url!r}"
                raise DiskFull(message, node=node, hint="free some space, and run the job again") from error
            message = f"cannot write to {self.url!r}: {error}"
            hint = "check the folder and its permissions, and run the job again"
            raise SinkFailed(message, node=node, hint=hint) from error

    def _at(self, name: str) -> str:
        return os.path.join(self.url, name)

    def _made(self, name: str) -> str:
        path = self._at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path


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
