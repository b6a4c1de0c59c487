"""Byte ranges of text files: a range owns the lines that start in it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import BinaryIO, cast

from penstock.connectors.csv_records import CsvRecords
from penstock.connectors.encodings import as_utf8
from penstock.contracts import Rejected
from penstock.errors import SourceFailed

BLOCK = 2 << 20
LONGEST = 16 << 20
"""Bytes of the longest line that is read; of a longer one only the beginning is kept, with the reason."""
KEPT = 64 << 10
_STEP = 64 << 10

Block = tuple[int, bytes] | Rejected


def read_lines(
    path: str, first: int, last: int, head: int, size: int, records: CsvRecords | None = None
) -> Iterator[Block]:
    """Yield blocks of the whole lines that start in a range, each with its place in the file.

    `head` is where the rows begin and `size` where the file ended when it was found; neither is crossed,
    so any cut of a file into ranges gives each line once. With `records`, rows of several lines are not cut.
    """
    with open(path, "rb") as file:
        at, stop = (_row_start(file, place, head, size, records) for place in (first, last))
        while at < stop:
            end = stop if at + BLOCK >= stop else _line_start(file, at + BLOCK, head, size)
            file.seek(at)
            data = file.read(min(end - at, BLOCK + LONGEST))
            if len(data) < min(end - at, BLOCK + LONGEST):
                raise shorter(path)
            if records and end < stop and len(data) == end - at:
                data = data[: records.whole_until(data)]
                end = at + len(data)
            if end == size and not data.endswith(b"\n") and file.read(1) not in (b"", b"\r", b"\n"):
                yield from _without_last(path, at, data, "the line was still being written when the file was found")
            else:
                yield from _bounded(path, at, data, end - at)
            at = end


def read_stream(path: str, head: int, encoding: str, records: CsvRecords | None = None) -> Iterator[Block]:
    """Yield the blocks of a file that is compressed or not in UTF-8, with their places in its text as UTF-8."""
    with opened(path, encoding) as file:
        _skip(file, head)
        at, carried = head, b""
        while data := file.read(BLOCK):
            data = carried + data + file.readline(LONGEST)
            ends = data.endswith(b"\n")
            whole = records.whole_until(data) if records and ends else len(data)
            data, carried = data[:whole], data[whole:]
            length = len(data) + (0 if ends else _skipped(file))
            yield from _bounded(path, at, data, length)
            at += length
        if carried:
            yield from _bounded(path, at, carried, len(carried))


def opened(path: str, encoding: str) -> BinaryIO:
    """Open a file to read its text as UTF-8, whatever it is compressed or encoded with."""
    file = gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")  # noqa: SIM115 (the caller closes it)
    return as_utf8(cast(BinaryIO, file), encoding)


def shorter(path: str) -> SourceFailed:
    """Return the error of a file that was longer when it was found."""
    message = f"{path} became shorter after it was found"
    return SourceFailed(message, hint="files must not change: write a new one, and move it in whole")


def first_bytes(path: str, count: int, encoding: str = "utf-8") -> bytes:
    """Return the beginning of a file's text as UTF-8, but at least its first line."""
    with opened(path, encoding) as file:
        sample = file.read(count)
        return sample if b"\n" in sample else sample + file.readline(LONGEST)


def average_line(sample: bytes) -> float:
    """Return the bytes of a line on average, in the whole lines of a sample."""
    whole = sample[: sample.rfind(b"\n") + 1]
    return len(whole) / whole.count(b"\n") if whole else max(1.0, len(sample))


def _line_start(file: BinaryIO, at: int, head: int, size: int) -> int:
    """Return where the first line starts that does not start before `at`."""
    if at <= head or at >= size:
        return min(max(at, head), size)
    file.seek(at - 1)
    place = at - 1
    while chunk := file.read(min(_STEP, size - place)):
        found = chunk.find(b"\n")
        if found >= 0:
            return place + found + 1
        place += len(chunk)
    return size


def _row_start(file: BinaryIO, at: int, head: int, size: int, records: CsvRecords | None) -> int:
    line = _line_start(file, at, head, size)
    return records.start(file, line, head, size) if records else line


def _skip(file: BinaryIO, count: int) -> None:
    while count > 0 and (data := file.read(min(count, BLOCK))):
        count -= len(data)


def _skipped(file: BinaryIO) -> int:
    """Read to the end of a line, and return how much that was."""
    count = 0
    while part := file.readline(_STEP):
        count += len(part)
        if part.endswith(b"\n"):
            break
    return count


def _bounded(path: str, at: int, data: bytes, length: int) -> Iterator[Block]:
    """Yield lines of so many bytes, of which `data` may lack the end, but for a last one that is too long.

    Blocks are cut at the first line that ends after so many bytes, so no other line is that long.
    """
    last = length - _last_line(data)
    if length <= LONGEST or last <= LONGEST:
        yield at, data
        return
    yield from _without_last(path, at, data, f"a line of {last} bytes, and {LONGEST} is the most; the first are kept")


def _without_last(path: str, at: int, data: bytes, reason: str) -> Iterator[Block]:
    last = _last_line(data)
    if last:
        yield at, data[:last]
    yield Rejected(reason, data[last : last + KEPT], f"{path}:{at + last}")


def _last_line(data: bytes) -> int:
    return data.rfind(b"\n", 0, max(0, len(data) - 1)) + 1
