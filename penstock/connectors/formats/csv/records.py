"""Rows of csv that take several lines: quoted fields may contain line breaks.

A row starts with a line; a line with an odd number of quotes goes on to the next such line, if both together with
what is between them are a row: each field closed, as many fields as columns, at most `LONGEST_RECORD` bytes. If not,
the line is a (bad) row alone, so that one lost quote costs one line. Which lines belong together follows from the file
alone, never from where it is cut: no row is longer than `LONGEST_RECORD`, so before a cut only as much is looked at as
has lines with an odd number of quotes in every stretch of that length.
"""

from __future__ import annotations

from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.connectors.formats.csv.options import CsvOptions

Places: TypeAlias = npt.NDArray[np.int64]

LONGEST_RECORD = 256 << 10
"""Bytes of a row with line breaks in it; the block size of readers is larger."""


class Record(NamedTuple):
    """A row with several lines: where it starts, and where the next line starts."""

    start: int
    end: int


class CsvRecords:
    """Finds the rows with several lines in csv of so many columns."""

    def __init__(self, options: CsvOptions, columns: int) -> None:
        self._options, self._quote = options, options.quote_byte
        self._whole = options.record_pattern(options.strict_pattern, columns)

    def is_record(self, text: bytes) -> bool:
        """Return whether a text is one row, with all its quotes closed."""
        return self._whole.fullmatch(text) is not None

    def find(self, data: bytes) -> list[Record]:
        """Return the rows with several lines; `data` starts where a row does."""
        return self.find_all(data)[0]

    def find_all(self, data: bytes) -> tuple[list[Record], int]:
        """Return the rows with several lines, and how many lines have an odd number of quotes."""
        starts, ends = self._odd_lines(data)
        return self._pairs(data, starts, ends)[0], len(starts)

    def _pairs(self, data: bytes, starts: Places, ends: Places) -> tuple[list[Record], int | None]:
        """Return the rows of several lines, and the start of a last line with an odd number of quotes that has none."""
        found, at = list[Record](), 0
        while at < len(starts) - 1:
            start, end = int(starts[at]), int(ends[at + 1])
            if end - start <= LONGEST_RECORD and self.is_record(_bare(data[start:end])):
                found.append(Record(start, end))
                at += 1
            at += 1
        return found, int(starts[at]) if at < len(starts) else None

    def has_any(self, sample: bytes) -> bool:
        """Return whether the beginning of a file has a row with several lines, so that the file is better not cut."""
        return bool(self.find(sample))

    def whole_until(self, data: bytes) -> int:
        """Return where the last row starts that may go on after the data, or the length of the data."""
        tail = data[-LONGEST_RECORD:]
        if len(tail) < len(data):
            # A row that is still open starts in these lines, the first of which may be cut.
            tail = tail[tail.find(b"\n") + 1 :]
        if not len(self._odd_lines(tail)[0]):
            return len(data)
        _, open_at = self._pairs(data, *self._odd_lines(data))
        return len(data) if open_at is None or len(data) - open_at > LONGEST_RECORD else open_at

    def start(self, file: BinaryIO, line: int, head: int, size: int) -> int:
        """Return where the first row starts that does not start before `line`, which is where a line starts."""
        if not self._quote or not head < line < size:
            return line
        begin = self._certain(file, line, head)
        if begin == line:
            return line
        data = _read(file, begin, min(size, line + LONGEST_RECORD))
        return next((begin + one.end for one in self.find(data) if begin + one.start < line < begin + one.end), line)

    def _certain(self, file: BinaryIO, line: int, head: int) -> int:
        """Return where a row starts for certain, at the line or before it."""
        while line > head:
            low = max(head, line - LONGEST_RECORD)
            data = _read(file, low, line)
            first = 0 if low == head else data.find(b"\n") + 1
            if low != head and not first:
                return line
            if self._quote not in data[first:] or not len(self._odd_lines(data[first:])[0]):
                return line
            line = low + first
        return head

    def _odd_lines(self, data: bytes) -> tuple[Places, Places]:
        """Return starts and ends, with the line feed, of the lines with an odd number of quotes."""
        none = np.zeros(0, np.int64)
        if not self._quote or self._quote not in data:
            return none, none
        raw = np.frombuffer(self._options.without_escapes(data), np.uint8)
        ends = np.flatnonzero(raw == ord("\n")) + 1
        if not len(ends) or ends[-1] != len(raw):
            ends = np.append(ends, len(raw))
        before = np.searchsorted(np.flatnonzero(raw == ord(self._quote)), ends)
        odd = np.flatnonzero(np.diff(before, prepend=0) % 2)
        return np.concatenate([[0], ends[:-1]])[odd], ends[odd]


def _bare(text: bytes) -> bytes:
    return text.removesuffix(b"\n").removesuffix(b"\r")


def _read(file: BinaryIO, first: int, last: int) -> bytes:
    file.seek(first)
    return file.read(last - first)
