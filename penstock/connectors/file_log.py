"""The files that a source found, in the order in which it reads them."""

from __future__ import annotations

import bisect
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from penstock.connectors.notes import sync_folder


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

    Invariant: what `append` returned from is on the disk, and never changes place.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._files: list[LoggedFile] = []
        self._starts: list[int] = []
        self._read = 0
        self.known: set[str] = set()
        self.end = 0
        self.refresh()

    def refresh(self) -> None:
        """Take in what another process added; a torn last line is not yet there."""
        if self._path is None or not os.path.exists(self._path) or os.path.getsize(self._path) == self._read:
            return
        with open(self._path, "rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            entry = json.loads(line)
            self._add(LoggedFile(**entry | {"rows": tuple(entry["rows"]), "columns": tuple(entry["columns"])}))

    def append(self, files: Sequence[LoggedFile]) -> None:
        """Add files, and have them on the disk."""
        for file in files:
            self._add(file)
        if self._path is None or not files:
            return
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        data = b"".join(json.dumps(asdict(file)).encode() + b"\n" for file in files)
        with open(self._path, "r+b" if os.path.exists(self._path) else "w+b") as log:
            # A torn line of a crashed run would spoil the next one.
            log.truncate(self._read)
            log.seek(self._read)
            log.write(data)
            log.flush()
            os.fsync(log.fileno())
        sync_folder(os.path.dirname(self._path))
        self._read += len(data)

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
