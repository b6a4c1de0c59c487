"""Bounds: up to where an epoch reads each source, as one digest that identifies its input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.spark.tasks.offset_files import EMPTY, offset_log_entry, replayed_ends
from penstock.storage.folders import Folder

# What Spark writes for a source that was not read yet.
_UNREAD = "-"
BOUNDS = "bounds.json"


def bounds_of(ends: Iterable[dict[str, Any]]) -> str:
    """Return the digest of the offsets where an epoch ends, in any order; a source that two branches read counts once.

    >>> bounds_of([{"0": 5, "1": 7}]) == bounds_of([{"1": 7, "0": 5}, {"0": 5, "1": 7}])
    True
    """
    return _digest(sorted({_plain(end) for end in ends}))


def ordered_bounds(lines: Sequence[str]) -> str:
    """Return the digest of an epoch's lines in Spark's offset log: `bounds_of`, then the same with their order.

    >>> one, other = ordered_bounds(['{"0": 5}', '{"0": 7}']), ordered_bounds(['{"0": 7}', '{"0": 5}'])
    >>> one == other, one[:16] == other[:16] == bounds_of([{"0": 5}, {"0": 7}])
    (False, True)
    """
    ends = [None if line == _UNREAD else json.loads(line) for line in lines]
    ordered = (_UNREAD if end is None else _plain(end) for end in ends)
    return bounds_of(end for end in ends if end is not None) + _digest(ordered)


def _plain(end: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in end.items() if key != EMPTY}, sort_keys=True)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def write_bounds(query: Folder, epoch: int, bounds: str) -> None:
    """Store the bounds that ledgers have for an epoch that another plan started, with other offset lines."""
    query.write(BOUNDS, json.dumps({epoch: bounds}).encode())


def read_bounds(query: Folder) -> dict[int, str]:
    """Return the bounds of epochs that another plan started."""
    found = query.read(BOUNDS)
    return {} if found is None else parse_bounds(found)


def parse_bounds(content: bytes) -> dict[int, str]:
    """Return what `write_bounds` wrote; ValueError if it is damaged."""
    found = json.loads(content)
    if not isinstance(found, dict) or not all(isinstance(bounds, str) for bounds in found.values()):
        message = "not bounds by their epochs"
        raise ValueError(message)
    return {int(epoch): bounds for epoch, bounds in found.items()}


def planned_bounds(query: Folder, epoch: int) -> str | None:
    """Return the bounds of an epoch as Spark planned it, or as it has to be planned again after a repair.

    A repair knows the ends by source and not in Spark's order, so these are the first half of the bounds.
    """
    lines = offset_log_entry(query, epoch)[2:]
    if lines:
        return ordered_bounds(lines)
    again = [ends[epoch] for ends in replayed_ends(query).values() if epoch in ends]
    return bounds_of(again) if again else None
