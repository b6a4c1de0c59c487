"""Detects files that changed after they were found: their new content is not read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Literal, TypeAlias

from penstock.connectors.files.file_log import Change, FileLog, LoggedFile
from penstock.errors import SourceFailed

OnChange: TypeAlias = Literal["warn", "fail"]

# The most system calls per listing: a folder may have ten thousand files that were read.
_MOST_AT_ONCE = 1000
_SHOWN = 5


class ChangeWatch:
    """Compares files with the log while a folder is listed; each listing checks some of them.

    The first listing after a start checks all, so that changes while the job was down are found.
    """

    def __init__(self, on_change: OnChange) -> None:
        self._on_change = on_change
        self._left: float = math.inf
        self._checked: set[str] = set()

    def known(self, log: FileLog, path: str) -> bool:
        """Return whether a file is in the log; if so, compare it."""
        if path not in log.known:
            return False
        if self._left > 0 and path not in self._checked:
            self._left -= 1
            self._checked.add(path)
            self._compare(log, path)
        return True

    def listed(self) -> None:
        """Start over when all files were compared."""
        if self._left > 0:
            self._checked.clear()
        self._left = _MOST_AT_ONCE

    def compare_all(self, log: FileLog) -> None:
        """Compare every file of the log."""
        for path in list(log.known):
            self._compare(log, path)

    def _compare(self, log: FileLog, path: str) -> None:
        try:
            now = os.stat(path)
        except OSError:
            # Files that were read may be moved away; a missing file that is still to be read is reported by its reader.
            return
        before = log.known[path]
        if now.st_size == before.size and before.modified in (0, now.st_mtime_ns):
            return
        if self._on_change == "fail":
            hint = 'restore its content and modification time, or pass on_change="warn"; write new content to new files'
            raise SourceFailed(describe(before, now.st_size), hint=hint)
        log.record_change(Change(path, now.st_size, now.st_mtime_ns))


def describe(before: LoggedFile | Change, size: int) -> str:
    """Return a description of a change."""
    how = f"{before.size:,} bytes, now {size:,}" if size != before.size else f"still {size:,} bytes, written again"
    return f"{before.path} changed after it was found ({how})"


def warnings(source: str, changes: list[tuple[LoggedFile | Change, Change]]) -> Iterator[str]:
    """Return warnings about changed files; of many, only the first are named."""
    for before, after in changes[:_SHOWN]:
        yield f"read '{source}': {describe(before, after.size)}; what is new in it is not read: write new files"
    if len(changes) > _SHOWN:
        yield f"read '{source}': {len(changes) - _SHOWN:,} more files changed after they were found"
