"""Reads lines of text files by byte ranges: a range owns the lines that start in it. Decompresses and recodes."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterator
from typing import BinaryIO, cast

from penstock.connectors.formats.csv.options import UTF8
from penstock.connectors.formats.csv.records import CsvRecords
from penstock.contracts import Rejected
from penstock.errors import SourceFailed

BLOCK = 2 << 20
LONGEST = 16 << 20
KEPT = 64 << 10
_STEP = 64 << 10
Block = tuple[int, bytes] | Rejected
_INVALID = "penstock-invalid"
# Half of a surrogate pair: no text contains it, and as bytes it is not UTF-8, so that its line is rejected.
MARK = "\udc80".encode("utf-8", "surrogatepass")


"""Bytes of the longest line that is read; of a longer one only the beginning is kept, with the reason."""


def read_lines(
    path: str, first: int, last: int, head: int, size: int, records: CsvRecords | None = None
) -> Iterator[Block]:
    """Yield blocks of the complete lines that start in a range, each with its position in the file.

    `head` is where the rows begin and `size` where the file ended when it was found; neither is crossed,
    so any cut of a file into ranges gives each line once. With `records`, rows with several lines are not cut.
    """
    with open(path, "rb") as file:
        at, stop = (_row_start(file, position, head, size, records) for position in (first, last))
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
    """Yield the blocks of a file that is compressed or not in UTF-8, with their positions in its text as UTF-8."""
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
    return SourceFailed(message, hint="files must not change: write a new file and rename it into the folder")


def first_bytes(path: str, count: int, encoding: str = "utf-8") -> bytes:
    """Return the beginning of a file's text as UTF-8, but at least its first line."""
    with opened(path, encoding) as file:
        sample = file.read(count)
        return sample if b"\n" in sample else sample + file.readline(LONGEST)


def average_line(sample: bytes) -> float:
    """Return the bytes of a line on average, in the complete lines of a sample."""
    whole = sample[: sample.rfind(b"\n") + 1]
    return len(whole) / whole.count(b"\n") if whole else max(1.0, len(sample))


def _line_start(file: BinaryIO, at: int, head: int, size: int) -> int:
    """Return where the first line starts that does not start before `at`."""
    if at <= head or at >= size:
        return min(max(at, head), size)
    file.seek(at - 1)
    position = at - 1
    while chunk := file.read(min(_STEP, size - position)):
        found = chunk.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(chunk)
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
    """Yield lines of so many bytes; `data` may lack their end, except for a last one that is too long.

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


def as_utf8(file: BinaryIO, encoding: str) -> BinaryIO:
    """Return a file whose bytes are the text as UTF-8; bytes that are no text in its encoding become `MARK`."""
    if encoding == UTF8:
        return file
    return cast(BinaryIO, io.BufferedReader(_Recoded(file, encoding), 1 << 18))


def recoded(text: bytes, encoding: str) -> bytes:
    """Return UTF-8 in another encoding; what was no text there before stays a replacement character."""
    return text if encoding == UTF8 else text.decode("utf-8", "replace").encode(encoding, "replace")


class _Recoded(io.RawIOBase):
    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder(encoding)(_INVALID)
        self._ready, self._ended = b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        while not self._ready and not self._ended:
            data = self._file.read(1 << 16)
            self._ended = not data
            self._ready = self._decoder.decode(data, final=not data).encode("utf-8", "surrogatepass")
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\udc80", error.end


codecs.register_error(_INVALID, _mark)
