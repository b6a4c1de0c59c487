"""How far an epoch reaches into the found files, and how it is cut into even pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.connectors.file_log import LoggedFile

LEAST = 1 << 20
# Rows of text are estimated, so an epoch rather takes a little more or less than the last few lines of a file alone.
MORE, LESS = 0.25, 0.1
LEAST_PIECE = 256 << 10

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
    """Return how many units to read for about so many rows, at least one block, and the rows in them."""
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
    """Cut parts of files into at most so many pieces of nearly the same weight."""
    total = sum(_weight(part) for part in parts)
    text = any(not file.rows for file, _, _ in parts)
    count = max(1, min(parallelism, -(-total // LEAST_PIECE) if text else total))
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
    """Yield the pieces that a part goes to: a text is cut where a piece ends, a row group goes in whole."""
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
