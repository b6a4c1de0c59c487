"""The log of files that a source found, in reading order, and how epochs are divided into ranges of them."""

from __future__ import annotations

import bisect
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from penstock.storage.folders import Folder
from penstock.storage.journals import journal

_CHANGED = "changed"
LEAST = 1 << 20
# Rows of text are estimated: an epoch takes a little more or less rather than leave a few lines of a file.
MORE, LESS = 0.25, 0.1
MIN_SPLIT_BYTES = 256 << 10


@dataclass(frozen=True)
class LoggedFile:
    """One file as it was found; data appended later is not read.

    Its extent is in units: row groups of Parquet, 1 for a compressed file, bytes of other text.
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
    """When it was written, in nanoseconds; 0 if unknown."""
    whole: bool = False
    """Whether a text is read by one task, because it cannot be split at any line."""


@dataclass(frozen=True)
class Change:
    """A logged file as it was when a change was detected."""

    path: str
    size: int
    modified: int


class FileLog:
    """An append-only log of files; a position in it is the sum of the units before.

    Invariant: what `append` took is durable, and never moves.
    """

    def __init__(self, folder: Folder | None) -> None:
        """Open the log in a folder; without one it is in memory only."""
        self._journal = journal(folder, "files") if folder else None
        self.where = self._journal.where if self._journal else "in memory"
        self._files: list[LoggedFile] = []
        self._starts: list[int] = []
        self.known: dict[str, LoggedFile | Change] = {}
        """The files by their paths, as they were when they were found or last seen to have changed."""
        self.changes: list[tuple[LoggedFile | Change, Change]] = []
        """Each detected change: the known state before, and the change."""
        self.end = 0
        # The threads of the driver and of the user both read progress.
        self._refreshing = threading.Lock()
        self.refresh()

    def refresh(self) -> None:
        """Read what other processes appended."""
        with self._refreshing:
            for line in self._journal.fresh() if self._journal else ():
                self._apply(json.loads(line))

    def append(self, files: Sequence[LoggedFile]) -> bool:
        """Add files durably; refused if another process added some meanwhile, which `refresh` reads."""
        lines = [json.dumps(asdict(file)).encode() for file in files]
        if lines and self._journal and not self._journal.append(lines):
            return False
        for file in files:
            self._add(file)
        return True

    def record_change(self, change: Change) -> None:
        """Record durably, and once, that a file has changed."""
        line = json.dumps({_CHANGED: asdict(change)}).encode()
        while self._is_new(change) and self._journal and not self._journal.append([line]):
            self.refresh()
        if self._is_new(change):
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

    def _apply(self, entry: dict[str, Any]) -> None:
        if _CHANGED in entry:
            self._change(Change(**entry[_CHANGED]))
        else:
            self._add(LoggedFile(**entry | {"rows": tuple(entry["rows"]), "columns": tuple(entry["columns"])}))

    def _add(self, file: LoggedFile) -> None:
        self._files.append(file)
        self._starts.append(self.end)
        self.known[file.path] = file
        self.end += file.units

    def _is_new(self, change: Change) -> bool:
        """Return whether a change is new."""
        before = self.known[change.path]
        return (before.size, before.modified) != (change.size, change.modified)

    def _change(self, change: Change) -> None:
        self.changes.append((self.known[change.path], change))
        self.known[change.path] = change


Part = tuple[LoggedFile, int, int]


class Range(NamedTuple):
    """Units of one file, with all that a task needs to read them."""

    path: str
    first: int
    last: int
    size: int
    head: int
    columns: tuple[str, ...]
    whole: bool = False


def reach(part: Part, rows: float) -> tuple[int, float]:
    """Return how many units to read for about so many rows, at least one block, and their rows."""
    file, first, last = part
    if not file.rows:
        wanted, there = max(LEAST, rows * file.line), last - first
        count = there if there <= wanted * (1 + MORE) else int(wanted)
        return count, count / file.line
    units, found = 0, 0
    for group in file.rows[first:last]:
        units, found = units + 1, found + group
        if found >= rows:
            break
    return units, found


def pieces(parts: Sequence[Part], parallelism: int) -> list[tuple[Range, ...]]:
    """Divide parts of files into at most so many splits of nearly the same weight."""
    total = sum(_weight(part) for part in parts)
    text = any(not file.rows for file, _, _ in parts)
    count = max(1, min(parallelism, -(-total // MIN_SPLIT_BYTES) if text else total))
    found: list[list[Range]] = [[] for _ in range(count)]
    at = 0
    for part in parts:
        for number, (file, first, last) in _placed(part, at, total, count):
            _extend(found[number], file, first, last)
        at += _weight(part)
    return [tuple(piece) for piece in found if piece]


def _weight(part: Part) -> int:
    file, first, last = part
    if file.path.endswith(".gz") or file.whole:
        return file.size
    return sum(file.rows[first:last]) if file.rows else last - first


def _placed(part: Part, at: int, total: int, count: int) -> Iterator[tuple[int, Part]]:
    """Yield the splits of a part: text is divided where a split ends, a row group is never divided."""
    file, first, last = part
    if not file.rows:
        while first < last:
            number = at * count // total
            end = min(last, first + -(-total * (number + 1) // count) - at)
            yield number, (file, first, end)
            at, first = at + end - first, end
        return
    for unit in range(first, last):
        weight = _weight((file, unit, unit + 1))
        yield min(count - 1, (2 * at + weight) * count // (2 * max(1, total))), (file, unit, unit + 1)
        at += weight


def _extend(piece: list[Range], file: LoggedFile, first: int, last: int) -> None:
    if piece and piece[-1].path == file.path and piece[-1].last == first:
        piece[-1] = piece[-1]._replace(last=last)
    else:
        piece.append(Range(file.path, first, last, file.size, file.head, file.columns, file.whole))
