"""Origins: which source partition rows came from, as a number that they carry to their event time.

The number is a digest of the partition's name, so that every task knows it without asking. Tasks leave beside their
counts what the digests stand for, and the newest time of each partition that they met at an event time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

# By event time and partition, the newest time in microseconds.
Times = dict[str, dict[str, int]]


def partition_name(source: str, partition: str) -> str:
    """Return how a user knows a partition; a source that has none goes by its own name."""
    return f"{source}/{partition}" if partition else source


@lru_cache(maxsize=100_000)
def origin(name: str) -> int:
    """Return the number of a partition."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


@dataclass
class NewestByOrigin:
    """The newest time of each partition among the rows of a task."""

    found: dict[int, int] = field(default_factory=dict)

    def add(self, origins: pa.Array, times: pa.Array, left_out: pa.Array) -> None:
        """Take in a batch: origins, and times in microseconds; `left_out` says which rows do not count."""
        edges = pc.min_max(origins).as_py()
        times = pc.if_else(left_out, pa.scalar(None, times.type), times)
        if edges["min"] is None:
            return
        if edges["min"] == edges["max"]:
            self._raise([(edges["min"], pc.max(times).as_py())])
            return
        table = pa.Table.from_arrays([origins, times], names=["origin", "at"])
        grouped = table.group_by("origin").aggregate([("at", "max")])
        self._raise(zip(grouped["origin"].to_pylist(), grouped["at_max"].to_pylist(), strict=True))

    def _raise(self, newest: Iterable[tuple[int, int | None]]) -> None:
        for number, at in newest:
            if at is not None:
                self.found[number] = max(at, self.found.get(number, at))


def named(left: Iterable[tuple[Times, dict[str, str]]]) -> Times:
    """Put together what tasks left: times by origin, and the names of origins.

    >>> named([({}, {"7": "t/0"}), ({"ts": {"7": 5}}, {}), ({"ts": {"7": 3}}, {})])
    {'ts': {'t/0': 5}}
    """
    found = list(left)
    names = {number: name for _, more in found for number, name in more.items()}
    newest: Times = {}
    for times, _ in found:
        for key, by_origin in times.items():
            mine = newest.setdefault(key, {})
            for number, at in by_origin.items():
                mine[names[number]] = max(at, mine.get(names[number], at))
    return newest
