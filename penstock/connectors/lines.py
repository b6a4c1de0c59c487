"""Byte ranges of text files: a range owns the lines that start in it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import BinaryIO, cast

BLOCK = 8 << 20


def read_lines(path: str, first: int, last: int, head: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of the whole lines that start in a range, each with its place in the file.

    `head` is where the rows begin and `size` where the file ended when it was found; neither is crossed,
    so any cut of a file into ranges gives each line once.
    """
    with open(path, "rb") as file:
        start, stop = (_line_start(file, at, head, size) for at in (first, last))
        file.seek(start)
        yield from _blocks(file, start, stop)


def read_gzip(path: str, head: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a compressed file, with their places in its text."""
    with gzip.open(path, "rb") as file:
        file.seek(head)
        yield from _blocks(cast(BinaryIO, file), head, None)


def first_bytes(path: str, count: int) -> bytes:
    """Return the beginning of a file's text, compressed or not."""
    with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
        return cast(BinaryIO, file).read(count)


def average_line(sample: bytes) -> float:
    """Return the bytes of a line on average, in the whole lines of a sample."""
    whole = sample[: sample.rfind(b"\n") + 1]
    return len(whole) / whole.count(b"\n") if whole else max(1.0, len(sample))


def _line_start(file: BinaryIO, at: int, head: int, size: int) -> int:
    """Return where the first line starts that does not start before `at`."""
    if at <= head or at >= size:
        return min(max(at, head), size)
    file.seek(at - 1)
    return min(at - 1 + len(file.readline()), size)


def _blocks(file: BinaryIO, at: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines up to `stop`; the last may lack its line feed."""
    pending: list[bytes] = []
    position = at
    while chunk := file.read(BLOCK if stop is None else min(BLOCK, stop - position)):
        position += len(chunk)
        end = chunk.rfind(b"\n") + 1
        if end:
            block = b"".join([*pending, chunk[:end]])
            yield at, block
            at += len(block)
            pending = []
        pending.append(chunk[end:])
    if any(pending):
        yield at, b"".join(pending)
