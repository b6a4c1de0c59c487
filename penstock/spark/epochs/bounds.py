"""The bounds of an epoch: up to where it reads each source, as one digest that identifies its input in ledgers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from penstock.folders import Folder
from penstock.folders.durable import settle, sync
from penstock.spark.epochs.notes import EMPTY, planned_epoch, replayed_ends

# What Spark writes for a source that was not read yet.
_UNREAD = "-"
_KEPT = "bounds.json"


def bounds_of(ends: Iterable[dict[str, Any]]) -> str:
    """Return the digest of the offsets where an epoch ends; a source that two branches read counts once.

    >>> bounds_of([{"0": 5, "1": 7}]) == bounds_of([{"1": 7, "0": 5}, {"0": 5, "1": 7}])
    True
    """
    plain = ({key: value for key, value in end.items() if key != EMPTY} for end in ends)
    texts = sorted({json.dumps(end, sort_keys=True) for end in plain})
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def keep_bounds(query: Folder, epoch: int, bounds: str) -> None:
    """Store the bounds that ledgers have for an epoch that was begun by another plan, with other offset lines."""
    query.write(_KEPT, json.dumps({epoch: bounds}).encode())


def kept_bounds(query: Folder) -> dict[int, str]:
    """Return the bounds of epochs that were begun by another plan."""
    return {int(epoch): bounds for epoch, bounds in json.loads(query.read(_KEPT) or "{}").items()}


def planned_bounds(query: Folder, epoch: int) -> str | None:
    """Return the bounds of an epoch as Spark planned it, or as it has to be planned again after damage."""
    lines = planned_epoch(query, epoch)[2:]
    if lines:
        return bounds_of(json.loads(line) for line in lines if line != _UNREAD)
    again = [ends[epoch] for ends in replayed_ends(query).values() if epoch in ends]
    return bounds_of(again) if again else None


def make_durable(query: Folder, epoch: int) -> None:
    """Have the bounds of an epoch survive a power cut, before a sink commits it; Spark does not sync its files.

    Object stores answer when a write is durable.
    """
    if query.local is None:
        return
    folder = query.local / "offsets"
    sync(folder / str(epoch))
    sync(folder)
    settle([folder])
