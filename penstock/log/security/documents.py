"""One JSON file, replaced as a whole: a reader sees the old one or the new one, also after a crash."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from penstock.errors import DiskFull, RunError, SettingsError

_Version = tuple[int, int, int] | None


class Document:
    """A small file of the data folder that only its owner may read (mode 0600)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: _Version = (0, 0, 0)

    @property
    def changed(self) -> bool:
        """Whether another process replaced the file since it was last read or written here."""
        return self._version() != self._seen

    def read(self) -> dict[str, Any]:
        """Return what the file holds; nothing where there is none."""
        self._seen = self._version()
        try:
            kept = json.loads(self.path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except PermissionError as error:
            message = f"{self.path} may not be read: {error.strerror}"
            raise SettingsError(message, hint="run as the user who owns the data folder") from None
        except ValueError as error:
            raise damaged(self.path, str(error)) from None
        if not isinstance(kept, dict) or not kept:
            raise damaged(self.path, "it holds no object")
        return kept

    def write(self, value: dict[str, Any]) -> None:
        """Replace the file; when this returns, the new one survives a power cut."""
        try:
            self._replace(json.dumps(value, indent=1).encode())
        except OSError as error:
            kind = DiskFull if error.errno == errno.ENOSPC else RunError
            message = f"cannot write {self.path}: {error.strerror}"
            raise kind(message, hint="nothing was changed", transient=True) from error
        self._seen = self._version()

    def _replace(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        try:
            _write_synced(temporary, data)
            temporary.replace(self.path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(self.path.parent)

    def _version(self) -> _Version:
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def damaged(path: Path, why: str) -> SettingsError:
    """Return the error for a file that cannot be understood."""
    return SettingsError(f"{path} is damaged: {why}", hint="restore it from a backup, or remove it and begin anew")


def _write_synced(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
