"""The files that a source found, in the order in which it reads them."""

from __future__ import annotations

import bisect
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.folders import Folder
from penstock.folders.journal import journal

_CHANGED = "changed"


@dataclass(frozen=True)
class LoggedFile:
    """One file as it was found; what is added to it later is not read.

    Its extent is in units: row groups of Parquet, one for a compressed file, bytes of any other text.
    """

    path: str
    size: int
    units: int
    rows: tuple[int, ...] = ()
    """Rows of each row group; of a compressed file, estimated."""
    head: int = 0
    """Where the rows of a text begin, after a byte order mark and a header."""
    line: float = 1.0
    """Bytes of a text's line, on average."""
    columns: tuple[str, ...] = ()
    """Columns of a csv header, in the file's order."""
    modified: int = 0
    """When it was written, in nanoseconds; 0 if that was not noted."""
    whole: bool = False
    """Whether a text is read by one task, because it cannot be cut at any line."""


@dataclass(frozen=True)
class Change:
    """A file of the log as it was when a change of it was noticed."""

    path: str
    size: int
    modified: int


class FileLog:
    """An append-only log of files; a position in it is the sum of the units before.

    Invariant: what `append` took is durable, and never changes place.
    """

    def __init__(self, folder: Folder | None) -> None:
        """Open the log in a folder; without one it is forgotten with the process."""
        self._journal = journal(folder, "files") if folder else None
        self.where = self._journal.where if self._journal else "in memory"
        self._files: list[LoggedFile] = []
        self._starts: list[int] = []
        self.known: dict[str, LoggedFile | Change] = {}
        """The files by their paths, as they were when they were found or last seen to have changed."""
        self.changes: list[tuple[LoggedFile | Change, Change]] = []
        """Each change that was noticed, after what was known before it."""
        self.end = 0
        # The driver's thread and the user's both ask for progress.
        self._refreshing = threading.Lock()
        self.refresh()

    def refresh(self) -> None:
        """Take in what another process added."""
        with self._refreshing:
            for line in self._journal.fresh() if self._journal else ():
                self._take_in(json.loads(line))

    def append(self, files: Sequence[LoggedFile]) -> bool:
        """Add files durably; refused if another process added some meanwhile, which `refresh` takes in."""
        lines = [json.dumps(asdict(file)).encode() for file in files]
        if lines and self._journal and not self._journal.append(lines):
            return False
        for file in files:
            self._add(file)
        return True

    def note_change(self, change: Change) -> None:
        """Note durably, and once, that a file has changed."""
        line = json.dumps({_CHANGED: asdict(change)}).encode()
        while self._known_as(change) and self._journal and not self._journal.append([line]):
            self.refresh()
        if self._known_as(change):
            self._change(change)

    def between(self, start: int, end: int) -> Iterator[tuple[LoggedFile, int, int]]:
        """Yield the files of a range of positions, with first and last unit in each."""
        first = max(0, bisect.bisect_right(self._starts, start) - 1)
        for file, at in zip(self._files[first:], self._starts[first:], strict=True):
            if at >= end:
                return
            lo, hi = max(start - at, 0), min(end - at, file.units)
            if lo < hi:
                yield file, lo, hi

    def _take_in(self, entry: dict[str, Any]) -> None:
        if _CHANGED in entry:
            self._change(Change(**entry[_CHANGED]))
        else:
            self._add(LoggedFile(**entry | {"rows": tuple(entry["rows"]), "columns": tuple(entry["columns"])}))

    def _add(self, file: LoggedFile) -> None:
        self._files.append(file)
        self._starts.append(self.end)
        self.known[file.path] = file
        self.end += file.units

    def _known_as(self, change: Change) -> bool:
        """Say whether a change is news."""
        before = self.known[change.path]
        return (before.size, before.modified) != (change.size, change.modified)

    def _change(self, change: Change) -> None:
        self.changes.append((self.known[change.path], change))
        self.known[change.path] = change
