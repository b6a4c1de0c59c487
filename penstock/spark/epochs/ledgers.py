"""Ledgers: whether those of sinks and the checkpoint have the same history.

A sink skips an epoch that its ledger has. That is right while an epoch number means the same input. After an older
copy of a checkpoint was put back, or its newest files were lost, Spark gives the number to other rows, and these would
be skipped silently. So each ledger stores the bounds of its newest epoch, and a difference stops the job. The bounds
of an epoch are up to where it reads each source, as one digest that identifies its input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from penstock.contracts import Epoch, Sink
from penstock.errors import LedgerAhead
from penstock.spark.tasks.offset_files import EMPTY, newest_epoch, offset_log_entry, replayed_ends
from penstock.storage.durable_files import sync, sync_parents
from penstock.storage.folders import Folder

# What Spark writes for a source that was not read yet.
_UNREAD = "-"
_BOUNDS = "bounds.json"


def bounds_of(ends: Iterable[dict[str, Any]]) -> str:
    """Return the digest of the offsets where an epoch ends; a source that two branches read counts once.

    >>> bounds_of([{"0": 5, "1": 7}]) == bounds_of([{"1": 7, "0": 5}, {"0": 5, "1": 7}])
    True
    """
    plain = ({key: value for key, value in end.items() if key != EMPTY} for end in ends)
    texts = sorted({json.dumps(end, sort_keys=True) for end in plain})
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def write_bounds(query: Folder, epoch: int, bounds: str) -> None:
    """Store the bounds that ledgers have for an epoch that another plan started, with other offset lines."""
    query.write(_BOUNDS, json.dumps({epoch: bounds}).encode())


def read_bounds(query: Folder) -> dict[int, str]:
    """Return the bounds of epochs that another plan started."""
    return {int(epoch): bounds for epoch, bounds in json.loads(query.read(_BOUNDS) or "{}").items()}


def planned_bounds(query: Folder, epoch: int) -> str | None:
    """Return the bounds of an epoch as Spark planned it, or as it has to be planned again after a repair."""
    lines = offset_log_entry(query, epoch)[2:]
    if lines:
        return bounds_of(json.loads(line) for line in lines if line != _UNREAD)
    again = [ends[epoch] for ends in replayed_ends(query).values() if epoch in ends]
    return bounds_of(again) if again else None


def sync_offsets(query: Folder, epoch: int) -> None:
    """Make the bounds of an epoch durable before a sink commits it; Spark does not sync its files.

    In an object store every write is durable.
    """
    if query.local is None:
        return
    folder = query.local / "offsets"
    sync(folder / str(epoch))
    sync(folder)
    sync_parents([folder])


class Ledgers:
    """What the sinks of one query had when the run started: the bounds of their newest epochs."""

    def __init__(
        self, query: Folder, root: Folder, sinks: Iterable[tuple[Sink, str]], epoch_of: Callable[[str, int], Epoch]
    ) -> None:
        """Read the ledgers, and refuse one that has an epoch which the checkpoint does not know."""
        self._query, self._root, self._kept = query, root, read_bounds(query)
        self._committed = max((int(name) for name in (query / "commits").names() if name.isdigit()), default=-1)
        self._bounds: dict[int, dict[str, str]] = {}
        planned = newest_epoch(query)
        for sink, name in sinks:
            following = epoch_of(name, planned + 1)
            newest = sink.newest_epochs(following.lineage, following.sink)
            if newest is None:
                newest = {following.number: ""} if sink.committed(following) else {}
            self._refuse_unknown(
                name, {number: bounds for number, bounds in newest.items() if number > self._committed}
            )

    def planned(self, epoch: int) -> str | None:
        """Return the bounds of an epoch by which ledgers know it; None if the checkpoint does not have them."""
        return self._kept.get(epoch) or planned_bounds(self._query, epoch)

    def check(self, epoch: int, bounds: str) -> None:
        """Raise LedgerAhead if a sink has the epoch with other bounds."""
        for sink, known in self._bounds.get(epoch, {}).items():
            if known and known != bounds:
                self._refuse(sink, f"epoch {epoch} with other input than it has now")

    def _refuse_unknown(self, sink: str, newest: dict[int, str]) -> None:
        for number, bounds in newest.items():
            known = self.planned(number)
            if known is None:
                self._refuse(sink, f"epoch {number}, which checkpoint {self._root} does not know")
            if bounds and bounds != known:
                self._refuse(sink, f"epoch {number} with other input than checkpoint {self._root}")
            self._bounds.setdefault(number, {})[sink] = bounds

    def _refuse(self, sink: str, has: str) -> NoReturn:
        message = f"the ledger of this sink has {has}"
        name = self._root.url.rstrip("/").rpartition("/")[2]
        hint = (
            "the checkpoint is an older copy, or its newest files are lost: rows of new epochs would be taken for "
            "written and skipped\n  put the newest copy back; or start a new lineage, which writes what came after "
            f"epoch {self._committed} again:\n    penstock savepoint create {self._root} --name {name}-older"
            f"\n    penstock savepoint restore {name}-older --checkpoint {self._root}-restored"
        )
        raise LedgerAhead(message, node=f"write '{sink}'", hint=hint)
