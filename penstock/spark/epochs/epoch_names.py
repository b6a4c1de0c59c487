"""How the epochs of one query are named for its sinks, in the driver and in tasks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.contracts import Epoch
from penstock.spark.tasks.staging import Staging


@dataclass(frozen=True)
class EpochNames:
    """Names epochs; the ids of sinks in `by_input` contain the bounds, from epoch `first` on."""

    lineage: str
    query: str
    by_input: frozenset[str] = frozenset()
    first: int = 0

    def of(self, sink: str, number: int, bounds: str = "") -> Epoch:
        """Name an epoch of a sink; two queries of one pipeline number theirs apart, and no sink's name has a "@"."""
        name = sink if self.query == "final" else f"{sink}@{self.query}"
        return Epoch(self.lineage, name, number, bounds, sink in self.by_input and number >= self.first)


def first_by_input(staging: Staging, recorded: int | None, newest: int) -> int:
    """Return the first epoch whose ids may contain bounds: the one after the newest that an earlier version planned.

    That one may be in a sink's ledger already, without bounds in its id. `recorded` is what an earlier run recorded
    with its totals: by it the id of a replay stays the same where the file is lost.
    """
    first = staging.first_by_input()
    if first is None:
        first = newest + 1 if recorded is None else recorded
        staging.mark_by_input(first)
    return first
