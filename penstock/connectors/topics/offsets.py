"""Offsets of a topic: what an epoch reads, what is lost, and how ranges are split. Pure functions, no I/O.

Offsets are `{partition: next offset}` and, under "id", the topic's id: a topic that is deleted and recreated has the
same name and another id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.connectors.ranges import split_range
from penstock.contracts import Offsets

ID = "id"
MIN_SPLIT_ROWS = 5_000


class OutOfRange(Exception):
    """The partition does not have the requested offset."""


class TopicMetadata(NamedTuple):
    """A snapshot of a topic: its id, and the first and last offsets of its partitions."""

    id: str
    starts: dict[int, int]
    ends: dict[int, int]

    def reaches(self, end: Offsets) -> bool:
        """Return whether all records before some offsets existed at the time of the snapshot."""
        return all(int(end[str(part)]) <= self.ends.get(part, -1) for part in partitions(end))

    def offsets(self, at: dict[int, int]) -> Offsets:
        """Return positions by partition as offsets."""
        return {str(part): at[part] for part in sorted(at)} | ({ID: self.id} if self.id else {})


class Range(NamedTuple):
    """Offsets of one partition that one task reads, and what was lost before them."""

    partition: int
    first: int
    last: int
    lost: str = ""


def ranges(start: Offsets, end: Offsets, metadata: TopicMetadata) -> list[Range]:
    """Return the ranges to read between two offsets, given the topic's current metadata.

    >>> ranges({"0": 2}, {"0": 9}, TopicMetadata("", {0: 5}, {0: 9}))
    [Range(partition=0, first=5, last=9, lost='offsets 2 to 4 are no longer there: retention removed them')]
    """
    if _other(end.get(ID), metadata.id):
        return [Range(part, 0, 0, _lost_with_topic(part, start)) for part in partitions(end)]
    recreated = _other(start.get(ID), metadata.id)
    found = []
    for part in partitions(end):
        first, last = int(start.get(str(part), 0)), int(end[str(part)])
        if recreated:
            found.append(Range(part, metadata.starts.get(part, 0), last, _lost_with_topic(part, start)))
        else:
            found.append(_range(part, first, last, metadata))
    return [one for one in found if one.lost or one.first < one.last]


def partitions(offsets: Offsets) -> list[int]:
    """Return the numbers of the partitions."""
    return sorted(int(name) for name in offsets if name != ID)


def share_rows(whole: Sequence[Range], max_rows: int | None) -> dict[int, int]:
    """Return the end of each range if they share about `max_rows` rows in proportion to their size.

    >>> share_rows([Range(0, 0, 30), Range(1, 0, 10)], 4)
    {0: 3, 1: 1}
    """
    total = sum(one.last - one.first for one in whole)
    if max_rows is None or total <= max_rows:
        return {one.partition: one.last for one in whole}
    return {one.partition: one.first - (one.first - one.last) * max(1, max_rows) // total for one in whole}


def cut(whole: Sequence[Range], pieces: int) -> list[tuple[Range, ...]]:
    """Divide ranges into at most so many splits of the same size.

    >>> cut([Range(0, 0, 30_000), Range(1, 7, 9)], 2)
    [(Range(partition=0, first=0, last=15001, lost=''),), (Range(partition=0, first=15001, last=30000, lost=''), \
Range(partition=1, first=7, last=9, lost=''))]
    """
    total = sum(one.last - one.first for one in whole)
    edges = split_range(0, total, pieces, MIN_SPLIT_ROWS) or [(0, 1)]
    found: list[list[Range]] = [[] for _ in edges]
    at = 0
    for one in whole:
        size, lost = one.last - one.first, one.lost
        for number, (low, high) in enumerate(edges):
            first, last = max(low, at), min(high, at + size)
            if first < last or (lost and number == 0 and not size):
                found[number].append(Range(one.partition, one.first + first - at, one.first + last - at, lost))
                lost = ""
        at += size
    return [tuple(piece) for piece in found if piece]


def _range(part: int, first: int, last: int, metadata: TopicMetadata) -> Range:
    if part not in metadata.ends:
        return Range(part, last, last, f"the partition was deleted, with its records after offset {first}")
    low, high = metadata.starts[part], metadata.ends[part]
    if max(first, last) > high:
        first = min(first, high)
        return Range(part, first, min(last, high), f"the partition ends at offset {high}, and had more before")
    if first < low:
        gone = f"offsets {first} to {low - 1} are no longer there: retention removed them"
        return Range(part, min(low, last), last, gone)
    return Range(part, first, last)


def _other(mine: int | str | None, now: str) -> bool:
    return bool(mine and now and mine != now)


def _lost_with_topic(part: int, start: Offsets) -> str:
    return f"the topic was deleted and recreated; the old one's records from offset {start.get(str(part), 0)} are lost"
