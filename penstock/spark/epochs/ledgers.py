"""Ledgers: whether those of sinks and the checkpoint have the same history.

A sink skips an epoch that its ledger has. That is right while an epoch number means the same input. After an older
copy of a checkpoint was put back, or its newest files were lost, Spark gives the number to other rows, and these would
be skipped silently. So each ledger stores the bounds of its newest epoch, and a difference stops the job. The bounds
of an epoch are up to where it reads each source, as one digest that identifies its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from penstock.contracts import Sink, answers_committed, same_input
from penstock.errors import LedgerAhead
from penstock.spark.epochs.bounds import planned_bounds, read_bounds
from penstock.spark.epochs.epoch_names import EpochNames
from penstock.spark.epochs.sink_tasks import failures
from penstock.spark.lowering.job_storage import as_new_lineage
from penstock.spark.tasks.offset_files import newest_epoch, replayed_ends
from penstock.storage.folders import Folder


class Ledgers:
    """What the sinks of one query had when the run started: the bounds of their newest epochs.

    `asked` are the sinks that cannot tell their newest epoch, but whether they have one; they may lack epochs without
    rows, so they are asked again before each new epoch. `unasked` are the names of those that cannot tell that either.
    """

    def __init__(
        self, query: Folder, root: Folder, sinks: Iterable[tuple[Sink, str]], names: EpochNames, started: int
    ) -> None:
        """Read the ledgers, and refuse one that has an epoch which the checkpoint does not know.

        `started` is the last epoch that was started, -1 if that was not recorded. It is recorded after the offsets of
        the epoch are durable, so one without offsets has lost them: a sink with gaps may have it, or a later one.
        """
        self._query, self._root, self._kept, self._names = query, root, read_bounds(query), names
        self._bounds: dict[int, dict[str, str]] = {}
        self._reached: dict[str, int] = {}
        self.asked: list[tuple[Sink, str]] = []
        self.unasked: set[str] = set()
        again = [epoch for ends in replayed_ends(query).values() for epoch in ends]
        self.newest = max(newest_epoch(query), *again, *self._kept, -1)
        self._started = self.newest if started < 0 else started
        committed = self._committed()
        if self._started > self.newest:
            message = f"checkpoint {root} has started epoch {started}, and its offsets are lost"
            raise LedgerAhead(message, hint=self._advice())
        for sink, name in sinks:
            with failures(sink, name, "read its ledger"):
                newest = self._newest(sink, name)
            self._refuse_unknown(name, {number: bounds for number, bounds in newest.items() if number > committed})

    def planned(self, epoch: int) -> str | None:
        """Return the bounds of an epoch by which ledgers know it; None if the checkpoint does not have them."""
        return self._kept.get(epoch) or planned_bounds(self._query, epoch)

    def is_open(self, epoch: int) -> bool:
        """Return whether an epoch is not committed."""
        return epoch > self._committed()

    def of_other_plan(self, epoch: int) -> bool:
        """Return whether an earlier plan started the epoch."""
        return epoch in self._kept

    def reached(self, sink: str, epoch: int) -> bool:
        """Return whether the ledger of a sink that can tell its newest epoch had this one when the run started."""
        return epoch <= self._reached.get(sink, -1)

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
            self._reached[name] = max(newest, default=-1)
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
        raise LedgerAhead(message, node=f"write '{sink}'", hint=self._advice())

    def _advice(self) -> str:
        cause = (
            "the checkpoint is an older copy, or its newest files are lost: rows of new epochs would be taken for "
            "written and skipped\n  put the newest copy back; or "
        )
        committed = self._committed()
        return cause + (as_new_lineage(self._root, committed) if committed >= 0 else _START_AGAIN)


# There is nothing to create a savepoint of.
_START_AGAIN = (
    "start over with another --checkpoint folder: no epoch is committed here, so all input is written again, and rows "
    "of the lost epochs are in the sinks twice, unless you empty these first"
)
