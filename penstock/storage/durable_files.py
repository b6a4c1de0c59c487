"""Local files and folders that survive a power cut, and atomic writes of small files.

A file survives a power cut if its content was synced, and the folder that contains its name, and the parent of that
folder, and so on. The process that created a folder may have been killed before it synced, so each process syncs the
parents of a folder once, whoever created it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from penstock.errors import DiskFull, RunError, SettingsError

_AT_ONCE = 16
_MOST = 10_000
# Folders whose parents this process has synced.
_synced: set[str] = set()


def sync(path: str | os.PathLike[str]) -> None:
    """Sync a file's content, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(paths: Iterable[str]) -> None:
    """Sync files and folders concurrently: the file system writes its journal once for many."""
    these = list(dict.fromkeys(paths))
    if len(these) < 2:
        for path in these:
            sync(path)
        return
    with ThreadPoolExecutor(min(len(these), _AT_ONCE)) as pool:
        for _ in pool.map(sync, these):
            pass


def sync_parents(folders: Iterable[str | os.PathLike[str]]) -> None:
    """Sync the names of folders and of all their parents."""
    new: dict[str, str] = {}
    for folder in folders:
        at = os.path.abspath(folder)
        while at not in _synced and at not in new and (above := os.path.dirname(at)) != at:
            new[at] = above
            at = above
    sync_all(path for path in dict.fromkeys(new.values()) if os.access(path, os.R_OK))
    if len(_synced) + len(new) > _MOST:
        _synced.clear()
    _synced.update(new)


def make_folders(folders: Iterable[str | os.PathLike[str]]) -> None:
    """Create folders with missing parents, and sync their names."""
    these = [os.path.abspath(folder) for folder in folders]
    for folder in these:
        at = folder
        while not os.path.isdir(at):
            _synced.discard(at)
            at = os.path.dirname(at)
        os.makedirs(folder, exist_ok=True)
    sync_parents(these)


def read_text(path: str | None) -> str | None:
    """Return a small file's text, or None if it does not exist."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def write_text(path: str, text: str) -> None:
    """Write a small file atomically and durably."""
    make_folders([os.path.dirname(path)])
    replace_file(path, text.encode())


def replace_file(path: str | os.PathLike[str], data: bytes, *, scratch: str | None = None, mode: int = 0o666) -> None:
    """Replace a file atomically and durably: readers see the old content or the new one, also after a power cut."""
    made = scratch or f"{os.fspath(path)}.tmp"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
        raise
    sync(os.path.dirname(path) or ".")


def describe_owner(path: str | os.PathLike[str]) -> str:
    """Return who owns a file and who runs this process, for errors about permissions."""
    try:
        owner = _user(os.stat(path).st_uid)
    except OSError:
        owner = "unknown"
    return f"owner: {owner}, running as: {_user(os.geteuid())}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


_Version = tuple[int, int, int] | None


class JsonFile:
    """A small file that only its owner can read (mode 0600)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: _Version = (0, 0, 0)

    @property
    def changed(self) -> bool:
        """Whether another process replaced the file since it was last read or written here."""
        return self._version() != self._seen

    def read(self) -> dict[str, Any]:
        """Return the content; empty if the file does not exist."""
        self._seen = self._version()
        try:
            content = json.loads(self.path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except PermissionError as error:
            message = f"cannot read {self.path}: {error.strerror}\n  {describe_owner(self.path)}"
            raise SettingsError(message, hint="run as the user who owns the data folder") from None
        except ValueError as error:
            raise damaged_file(self.path, str(error)) from None
        if not isinstance(content, dict) or not content:
            raise damaged_file(self.path, "it is not a JSON object")
        return content

    def write(self, value: dict[str, Any]) -> None:
        """Replace the file durably."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
            replace_file(self.path, json.dumps(value, indent=1).encode(), scratch=str(scratch), mode=0o600)
        except OSError as error:
            kind = DiskFull if error.errno == errno.ENOSPC else RunError
            message = f"cannot write {self.path}: {error.strerror}"
            raise kind(message, hint="nothing was changed", transient=True) from error
        self._seen = self._version()

    def _version(self) -> _Version:
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def damaged_file(path: Path, why: str) -> SettingsError:
    """Return the error for a file that cannot be parsed."""
    return SettingsError(f"{path} is damaged: {why}", hint="restore it from a backup, or delete it to start over")
