"""Ledgers: whether those of sinks and the checkpoint have the same history.

A sink skips an epoch that its ledger has. That is right while an epoch number means the same input. After an older
copy of a checkpoint was put back, or its newest files were lost, Spark gives the number to other rows, and these would
be skipped silently. So each ledger stores the bounds of its newest epoch, and a difference stops the job. The bounds
of an epoch are up to where it reads each source, as one digest that identifies its input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from penstock.contracts import Sink, answers_committed, same_input
from penstock.errors import LedgerAhead
from penstock.spark.epochs.epoch_names import EpochNames
from penstock.spark.epochs.sink_tasks import failures
from penstock.spark.tasks.offset_files import EMPTY, newest_epoch, offset_log_entry, replayed_ends
from penstock.storage.durable_files import sync, sync_all, sync_parents
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
    return parse_bounds(query.read(BOUNDS) or b"{}")


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


def sync_offsets(query: Folder, epoch: int) -> None:
    """Make the bounds of an epoch durable before a sink commits it; Spark does not sync its files.

    In an object store every write is durable.
    """
    if query.local is None:
        return
    folder = query.local / "offsets"
    # Offsets with a torn checksum would be taken for damaged.
    checksum = folder / f".{epoch}.crc"
    sync_all(map(str, [folder / str(epoch), *([checksum] if checksum.exists() else [])]))
    sync(folder)
    sync_parents([folder])


class Ledgers:
    """What the sinks of one query had when the run started: the bounds of their newest epochs.

    `asked` are the sinks that cannot tell their newest epoch, but whether they have one; they may lack epochs without
    rows, so they are asked again before each new epoch. `unasked` are the names of those that cannot tell that either.
    """

    def __init__(
        self, query: Folder, root: Folder, sinks: Iterable[tuple[Sink, str]], names: EpochNames, started: int
    ) -> None:
        """Read the ledgers, and refuse one that has an epoch which the checkpoint does not know.

        `started` is the last epoch that was started, -1 if that was not recorded.
        """
        self._query, self._root, self._kept, self._names = query, root, read_bounds(query), names
        self._bounds: dict[int, dict[str, str]] = {}
        self.asked: list[tuple[Sink, str]] = []
        self.unasked: set[str] = set()
        again = [epoch for ends in replayed_ends(query).values() for epoch in ends]
        self.newest = max(newest_epoch(query), *again, *self._kept, -1)
        self._started = self.newest if started < 0 else started
        committed = self._committed()
        for sink, name in sinks:
            with failures(sink, name, "read its ledger"):
                newest = self._newest(sink, name)
            self._refuse_unknown(name, {number: bounds for number, bounds in newest.items() if number > committed})

    def planned(self, epoch: int) -> str | None:
        """Return the bounds of an epoch by which ledgers know it; None if the checkpoint does not have them."""
        return self._kept.get(epoch) or planned_bounds(self._query, epoch)

    def start(self, epoch: int, bounds: str) -> None:
        """Raise LedgerAhead if a sink has the epoch with other bounds, or before it was started."""
        for sink, known in self._bounds.get(epoch, {}).items():
            if not same_input(known, bounds):
                self._refuse(sink, f"epoch {epoch} with other input than it has now")
        for asked, name in self.asked if epoch > self._started else ():
            with failures(asked, name, "read its ledger"):
                written = asked.committed(self._names.of(name, epoch, bounds))
            if written:
                self._refuse(name, f"epoch {epoch}, which checkpoint {self._root} has not started yet")
        self._started = max(epoch, self._started)

    def _newest(self, sink: Sink, name: str) -> Mapping[int, str]:
        following = self._names.of(name, self.newest + 1)
        newest = sink.newest_epochs(following.lineage, following.sink)
        if newest is not None:
            return newest
        if not answers_committed(sink):
            self.unasked.add(name)
            return {}
        self.asked.append((sink, name))
        return {following.number: ""} if sink.committed(following) else {}

    def _committed(self) -> int:
        return max((int(name) for name in (self._query / "commits").names() if name.isdigit()), default=-1)

    def _refuse_unknown(self, sink: str, newest: dict[int, str]) -> None:
        for number, bounds in newest.items():
            known = self.planned(number)
            if known is None:
                self._refuse(sink, f"epoch {number}, which checkpoint {self._root} does not know")
            if not same_input(bounds, known):
                self._refuse(sink, f"epoch {number} with other input than checkpoint {self._root}")
            self._bounds.setdefault(number, {})[sink] = bounds

    def _refuse(self, sink: str, has: str) -> NoReturn:
        message = f"the ledger of this sink has {has}"
        name = self._root.url.rstrip("/").rpartition("/")[2]
        hint = (
            "the checkpoint is an older copy, or its newest files are lost: rows of new epochs would be taken for "
            "written and skipped\n  put the newest copy back; or start a new lineage, which writes what came after "
            f"epoch {self._committed()} again:\n    penstock savepoint create {self._root} --name {name}-older"
            f"\n    penstock savepoint restore {name}-older --checkpoint {self._root}-restored"
        )
        raise LedgerAhead(message, node=f"write '{sink}'", hint=hint)
