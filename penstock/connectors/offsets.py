"""Offsets of a topic: what an epoch reads, what is lost, and how the rest is cut. Pure: nothing here asks a cluster.

Offsets are `{partition: next offset}` and, under "id", which topic they belong to: one that is deleted and made anew
has the same name and another id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.connectors.notes import even_cuts
from penstock.contracts import Offsets

ID = "id"
LEAST_PIECE = 5_000


class OutOfRange(Exception):
    """The partition does not have the offset that was asked for."""


class Look(NamedTuple):
    """A topic as it is now: its id, and where its partitions begin and end."""

    id: str
    starts: dict[int, int]
    ends: dict[int, int]

    def reaches(self, end: Offsets) -> bool:
        """Say whether all that is before some offsets was there already."""
        return all(int(end[str(part)]) <= self.ends.get(part, -1) for part in partitions(end))

    def offsets(self, at: dict[int, int]) -> Offsets:
        """Return places in this topic as offsets."""
        return {str(part): at[part] for part in sorted(at)} | ({ID: self.id} if self.id else {})


class Range(NamedTuple):
    """Offsets of one partition that one task reads, and what of them is lost."""

    partition: int
    first: int
    last: int
    lost: str = ""


def ranges(start: Offsets, end: Offsets, look: Look) -> list[Range]:
    """Return what there is to read between two offsets, given the topic as it is now.

    >>> ranges({"0": 2}, {"0": 9}, Look("", {0: 5}, {0: 9}))
    [Range(partition=0, first=5, last=9, lost='offsets 2 to 4 are no longer there: retention removed them')]
    """
    if _other(end.get(ID), look.id):
        return [Range(part, 0, 0, _anew(part, start)) for part in partitions(end)]
    anew = _other(start.get(ID), look.id)
    found = []
    for part in partitions(end):
        first, last = int(start.get(str(part), 0)), int(end[str(part)])
        if anew:
            found.append(Range(part, look.starts.get(part, 0), last, _anew(part, start)))
        else:
            found.append(_range(part, first, last, look))
    return [one for one in found if one.lost or one.first < one.last]


def partitions(offsets: Offsets) -> list[int]:
    """Return the numbers of the partitions."""
    return sorted(int(name) for name in offsets if name != ID)


def shared_out(whole: Sequence[Range], max_rows: int | None) -> dict[int, int]:
    """Return where each range ends if all together may have about so many rows: each gets its share of them.

    >>> shared_out([Range(0, 0, 30), Range(1, 0, 10)], 4)
    {0: 3, 1: 1}
    """
    total = sum(one.last - one.first for one in whole)
    if max_rows is None or total <= max_rows:
        return {one.partition: one.last for one in whole}
    return {one.partition: one.first - (one.first - one.last) * max(1, max_rows) // total for one in whole}


def cut(whole: Sequence[Range], pieces: int) -> list[tuple[Range, ...]]:
    """Cut ranges into at most so many pieces of the same size.

    >>> cut([Range(0, 0, 30_000), Range(1, 7, 9)], 2)
    [(Range(partition=0, first=0, last=15001, lost=''),), (Range(partition=0, first=15001, last=30000, lost=''), \
Range(partition=1, first=7, last=9, lost=''))]
    """
    total = sum(one.last - one.first for one in whole)
    edges = even_cuts(0, total, pieces, LEAST_PIECE) or [(0, 1)]
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


def _range(part: int, first: int, last: int, look: Look) -> Range:
    if part not in look.ends:
        return Range(part, last, last, f"the partition is gone, and with it what came after offset {first}")
    low, high = look.starts[part], look.ends[part]
    if max(first, last) > high:
        first = min(first, high)
        return Range(part, first, min(last, high), f"the partition ends at offset {high}, and had more before")
    if first < low:
        gone = f"offsets {first} to {low - 1} are no longer there: retention removed them"
        return Range(part, min(low, last), last, gone)
    return Range(part, first, last)


def _other(mine: int | str | None, now: str) -> bool:
    return bool(mine and now and mine != now)


def _anew(part: int, start: Offsets) -> str:
    return (
        f"the topic was deleted and made anew, and what the old one held from offset {start.get(str(part), 0)} is lost"
    )
