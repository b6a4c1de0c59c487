"""Offsets of a topic: what an epoch reads, what is lost, and how ranges are split. Pure functions, no I/O.

Offsets are `{partition: next offset}` and, under "id", the topic's id: a topic that is deleted and recreated has the
same name and another id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


def planned_ranges(start: Offsets, end: Offsets) -> list[Range]:
    """Return the ranges between two offsets whatever is left of them, so that they are the same at any time.

    >>> planned_ranges({"0": 2, "1": 7}, {"0": 9, "1": 7})
    [Range(partition=0, first=2, last=9, lost='')]
    """
    recreated = _other(start.get(ID), str(end.get(ID, "")))
    firsts = {part: 0 if recreated else int(start.get(str(part), 0)) for part in partitions(end)}
    whole = [Range(part, first, int(end[str(part)])) for part, first in firsts.items()]
    return [one for one in whole if one.first < one.last]


def cut(whole: Sequence[Range], pieces: int) -> list[tuple[Range, ...]]:
    """Divide ranges into at most so many splits of the same size.

    >>> cut([Range(0, 0, 30_000), Range(1, 7, 9)], 2)
    [(Range(partition=0, first=0, last=15001, lost=''),), (Range(partition=0, first=15001, last=30000, lost=''), \
Range(partition=1, first=7, last=9, lost=''))]
    """
    edges = split_range(0, sum(one.last - one.first for one in whole), pieces, MIN_SPLIT_ROWS)
    found: list[list[Range]] = [[] for _ in edges]
    at = 0
    for one in whole:
        size = one.last - one.first
        for number, (low, high) in enumerate(edges):
            first, last = max(low, at), min(high, at + size)
            if first < last:
                found[number].append(Range(one.partition, one.first + first - at, one.first + last - at))
        at += size
    return [tuple(piece) for piece in found]


def clipped(splits: Sequence[tuple[Range, ...]], there: Sequence[Range]) -> list[tuple[Range, ...]]:
    """Limit splits to the ranges that are there; the first split also reports what is lost.

    >>> clipped([(Range(0, 0, 5),), (Range(0, 5, 9),)], [Range(0, 7, 9, "0 to 6 are gone")])
    [(Range(partition=0, first=7, last=7, lost='0 to 6 are gone'),), (Range(partition=0, first=7, last=9, lost=''),)]
    """
    left = {one.partition: one for one in there}
    lost = tuple(one._replace(last=one.first) for one in there if one.lost)
    found = [tuple(_overlaps(split, left)) for split in splits]
    return [lost + found[0], *found[1:]] if found else [lost] if lost else []


def _overlaps(split: tuple[Range, ...], left: Mapping[int, Range]) -> Iterator[Range]:
    for one in split:
        if one.partition in left:
            first, last = max(one.first, left[one.partition].first), min(one.last, left[one.partition].last)
            if first < last:
                yield Range(one.partition, first, last)


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
