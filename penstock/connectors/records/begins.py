"""Where records begin. A record says how long it is, and nothing else tells where the next one is.

So they are found one after the other, or guessed all at once: a record without headers ends with a zero, then comes the
next one's length, and a zero again. A guess is taken only if each record ends where the next one begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.connectors.records.batches import Batch

Ints = NDArray[np.int64]
Octets = NDArray[np.uint8]
# Bytes of a length, with one for the zero before it: records of up to a megabyte.
_LONGEST_LENGTH = 4


def begins(data: bytes | memoryview, batches: Sequence[Batch]) -> tuple[Ints, Ints]:
    """Return where each record of some batches begins in their bytes, and where its length ends."""
    octets: Octets = np.frombuffer(data, np.uint8)
    guess = _guessed(octets, batches)
    if guess is not None:
        return guess
    found = np.array(_walked(data, batches), np.int64)
    return found, varints(octets, found)[1]


def varints(data: Octets, at: Ints) -> tuple[Ints, Ints]:
    """Return the zigzag varints at some places, and the places behind them."""
    octets = data[at]
    values = (octets & 127).astype(np.int64)
    at = at + 1
    more, shift = np.flatnonzero(octets > 127), 7
    while more.size:
        must(shift < 70, "a number has more than ten bytes")
        octets = data[at[more]]
        values[more] |= (octets & 127).astype(np.int64) << shift
        at[more] += 1
        more, shift = more[octets > 127], shift + 7
    # Unsigned: of a number of 64 bits the highest is no sign before it is unfolded.
    return (values.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(values & 1), at


def must(holds: bool, otherwise: str) -> None:
    """Refuse bytes that are no records."""
    if not holds:
        raise ValueError(otherwise)


def _guessed(data: Octets, batches: Sequence[Batch]) -> tuple[Ints, Ints] | None:
    numbers = np.array([one.number for one in batches])
    if (numbers < 1).any() or numbers.sum() > len(data):
        return None
    zeros = np.flatnonzero(data == 0)
    apart = np.diff(zeros)
    found = np.append(0, zeros[:-1][(apart > 1) & (apart <= _LONGEST_LENGTH)] + 1)
    sizes, bodies = varints(data, found)
    nexts = bodies + sizes
    if len(found) != numbers.sum():
        kept = _followed(found, nexts, len(data))
        found, bodies, nexts = found[kept], bodies[kept], nexts[kept]
    fits = len(found) == numbers.sum() and found[0] == 0 and nexts[-1] == len(data)
    if not fits or not np.array_equal(nexts[:-1], found[1:]):
        return None
    edges = np.cumsum([len(one.records) for one in batches[:-1]])
    return (found, bodies) if np.array_equal(found[np.cumsum(numbers[:-1])], edges) else None


def _followed(found: Ints, nexts: Ints, end: int) -> NDArray[np.bool_]:
    """Say which of the places are followed by another one, or by the end."""
    marked = np.zeros(end + 1, bool)
    marked[found] = marked[end] = True
    return (nexts > 0) & (nexts <= end) & marked[np.clip(nexts, 0, end)]


def _walked(data: bytes | memoryview, batches: Sequence[Batch]) -> list[int]:
    found: list[int] = []
    add = found.append
    at = end = 0
    for batch in batches:
        end += len(batch.records)
        # By their number: of bytes that are none, nobody should look at all.
        for _ in range(batch.number):
            add(at)
            size = data[at]
            if size < 128:
                at += 1 + (size >> 1)
                continue
            high = data[at + 1]
            if high < 128:
                at += 2 + ((size & 127 | high << 7) >> 1)
            else:
                at = _jump(data, at)
        must(at == end, f"{batch.number} records do not fit its length")
    return found


def _jump(data: bytes | memoryview, at: int) -> int:
    """Return where the record behind a long one begins."""
    size = shift = 0
    while True:
        octet = data[at]
        size, shift, at = size | (octet & 127) << shift, shift + 7, at + 1
        if octet < 128:
            return at + (size >> 1)
