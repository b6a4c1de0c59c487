"""JSON files that are replaced atomically: a reader sees the old content or the new one, also after a crash."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from penstock.errors import DiskFull, RunError, SettingsError
from penstock.storage.durable_files import describe_owner, replace_file

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
