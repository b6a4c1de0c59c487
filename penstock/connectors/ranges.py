"""Ranges of offsets, split evenly among tasks."""

from __future__ import annotations

import itertools


def split_range(first: int, last: int, pieces: int, least: int = 1) -> list[tuple[int, int]]:
    """Divide a range into at most `pieces` of nearly the same size, each of `least` or more if possible.

    >>> split_range(0, 10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    count = max(1, min(pieces, (last - first) // least))
    edges = [first + (last - first) * n // count for n in range(count + 1)]
    return [(lo, hi) for lo, hi in itertools.pairwise(edges) if lo < hi]
