"""The files that a source found, in the order in which it reads them."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from penstock.folders import Folder
from penstock.folders.journal import journal


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
        self.known: set[str] = set()
        self.end = 0
        self.refresh()

    def refresh(self) -> None:
        """Take in what another process added."""
        for line in self._journal.fresh() if self._journal else ():
            entry = json.loads(line)
            self._add(LoggedFile(**entry | {"rows": tuple(entry["rows"]), "columns": tuple(entry["columns"])}))

    def append(self, files: Sequence[LoggedFile]) -> bool:
        """Add files durably; refused if another process added some meanwhile, which `refresh` takes in."""
        lines = [json.dumps(asdict(file)).encode() for file in files]
        if lines and self._journal and not self._journal.append(lines):
            return False
        for file in files:
            self._add(file)
        return True

    def between(self, start: int, end: int) -> Iterator[tuple[LoggedFile, int, int]]:
        """Yield the files of a range of positions, with first and last unit in each."""
        first = max(0, bisect.bisect_right(self._starts, start) - 1)
        for file, at in zip(self._files[first:], self._starts[first:], strict=True):
            if at >= end:
                return
            lo, hi = max(start - at, 0), min(end - at, file.units)
            if lo < hi:
                yield file, lo, hi

    def _add(self, file: LoggedFile) -> None:
        self._files.append(file)
        self._starts.append(self.end)
        self.known.add(file.path)
        self.end += file.units
