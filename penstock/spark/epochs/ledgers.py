"""Whether the ledgers of sinks and the checkpoint tell the same history.

A sink skips an epoch that its ledger has. That is right while an epoch number stands for the same input. After an older
copy of a checkpoint was put back, or its newest files were lost, Spark gives the number to other rows, and these would
be skipped in silence. So each ledger keeps the bounds of its newest epoch, and a difference stops the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from penstock.contracts import Epoch, Sink
from penstock.errors import LedgerAhead
from penstock.folders import Folder
from penstock.spark.epochs.bounds import kept_bounds, planned_bounds
from penstock.spark.epochs.notes import newest_epoch


class Ledgers:
    """What the sinks of one query had when the run started: the bounds of their newest epochs."""

    def __init__(
        self, query: Folder, root: Folder, sinks: Iterable[tuple[Sink, str]], epoch_of: Callable[[str, int], Epoch]
    ) -> None:
        """Read the ledgers, and refuse one that has an epoch which the checkpoint does not know."""
        self._query, self._root, self._kept = query, root, kept_bounds(query)
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
