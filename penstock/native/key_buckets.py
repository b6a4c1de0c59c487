"""Buckets of keys: which one a key is in, and the number that Spark knows it by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.native.key_hash import Numbers, key_hashes

Words = npt.NDArray[np.uint32]
# Divisible by every number of tasks up to 10, and by many larger ones.
_DIVISIBLE = 5040
_SEED = 42


@dataclass(frozen=True)
class KeyBuckets:
    """The buckets of keys, numbered so that Spark spreads them evenly over tasks; older checkpoints count from 0."""

    count: int
    even: bool = True

    @property
    def numbers(self) -> Numbers:
        """The number of each bucket."""
        return even_numbers(self.count) if self.even else np.arange(self.count)

    def of(self, columns: Sequence[pa.Array], rows: int) -> Numbers:
        """Return the number of each row's bucket, by its key columns; without these it is the first one's.

        >>> KeyBuckets(64, even=False).of([pa.array(["a", None]), pa.array([1, None])], 2).tolist()
        [19, 42]
        """
        places = key_hashes(columns) % self.count if columns else np.zeros(rows, np.int64)
        return self.numbers[places]


@cache
def even_numbers(count: int) -> Numbers:
    """Return numbers that Spark spreads evenly over its tasks: it divides the hash of each by how many tasks there are.

    The hash of number i leaves the remainder i when it is divided by 5040, and so by each number of tasks that divides
    5040.
    """
    size = 1 << 16
    while True:
        remainders = _spark_hash(np.arange(size)) % _DIVISIBLE
        order = np.argsort(remainders, kind="stable")
        first = np.searchsorted(remainders[order], np.arange(_DIVISIBLE))
        wanted = np.arange(count)
        places = first[wanted % _DIVISIBLE] + wanted // _DIVISIBLE
        if places.max() < size and (remainders[order[places]] == wanted % _DIVISIBLE).all():
            found: Numbers = order[places]
            return found
        size *= 2


def _spark_hash(numbers: Numbers) -> Numbers:
    """Return Spark's `hash` of ints: Murmur3 of their 4 bytes."""
    words = numbers.astype(np.uint32) * np.uint32(0xCC9E2D51)
    words = _rotated(words, 15) * np.uint32(0x1B873593)
    mixed = _rotated(words ^ np.uint32(_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    mixed ^= np.uint32(4)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    return (mixed ^ (mixed >> np.uint32(16))).view(np.int32).astype(np.int64)


def _rotated(words: Words, by: int) -> Words:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
