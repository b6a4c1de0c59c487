"""Compaction of the journals of declared entries: what no kept epoch can ask for again is dropped.

An epoch that runs again, after a crash or because later state is damaged, reads entries from the position in the
offsets of the epoch before it. So the oldest offsets that are kept say which entries are needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.folders import Folder
from penstock.spark.epochs.clock import JOURNAL
from penstock.spark.epochs.clock import NAME as CLOCK
from penstock.spark.epochs.declared import WAKEUPS, Declared
from penstock.spark.epochs.notes import TICKS, planned_epoch

if TYPE_CHECKING:
    from penstock.spark.checkpoints.checkpoint import Checkpoint
    from penstock.spark.lowering.compile import Query


@dataclass(frozen=True)
class Readers:
    """One query: its folder, its sources in Spark's order, and those of them that give declared times."""

    query: Folder
    sources: Sequence[str]
    timed: frozenset[str]

    def reading(self, journal: str) -> list[str]:
        """Return the sources that read a journal."""
        own = CLOCK if journal == JOURNAL else WAKEUPS
        return [one for one in self.sources if one == own or (journal == JOURNAL and one in self.timed)]

    def position(self, journal: str, epoch: int) -> int:
        """Return the number of entries that every source had seen after an epoch."""
        lines = planned_epoch(self.query, epoch)[2:]
        if len(lines) != len(self.sources):
            return 0
        wanted = {*self.reading(journal)}
        mine = (pair for pair in zip(self.sources, lines, strict=True) if pair[0] in wanted)
        return min((seen(journal, one, offsets(line)) for one, line in mine), default=0)


def offsets(line: str) -> Any:
    """Return the offsets of one source as Spark wrote them; None if it was not read yet."""
    return json.loads(line) if line != "-" else None


def seen(journal: str, source: str, offset: Any) -> int:
    """Return how many entries of a journal a source had seen at an offset."""
    if not isinstance(offset, dict):
        return 0
    if journal == WAKEUPS:
        return int(offset.get("0", 0)) if source == WAKEUPS else 0
    return int(offset.get("0" if source == CLOCK else TICKS, 0))


def readers(checkpoint: Checkpoint, query: Query, sources: Sequence[str]) -> Readers:
    """Return who reads the journals in a query; a scan gives declared times if it knows the event time itself."""
    prefixes = query.context.lanes.prefixes.values()
    timed = frozenset(query.context.graph.name(prefix.read) for prefix in prefixes if prefix.times)
    return Readers(checkpoint.query(query.name), sources, timed)


class Compaction:
    """Keeps the journals of a run short; called by the driver between epochs."""

    def __init__(self, journals: Mapping[str, Declared], queries: Iterable[Readers]) -> None:
        self._journals, self._queries = journals, list(queries)

    def run(self) -> None:
        """Compact the journals that have grown enough since the last time."""
        for name, journal in self._journals.items():
            if journal.is_long:
                first, passed = self._bounds(name)
                journal.compact(first, passed)

    def _bounds(self, journal: str) -> tuple[int, int]:
        """Return the number of the first entry that is needed, and of the first that a live reader may not have."""
        bounds = [_bounds(one, journal) for one in self._queries if one.reading(journal)]
        return min((first for first, _ in bounds), default=0), min((passed for _, passed in bounds), default=0)


def _bounds(one: Readers, journal: str) -> tuple[int, int]:
    planned = sorted(int(name) for name in (one.query / "offsets").names() if name.isdigit())
    done = max((int(name) for name in (one.query / "commits").names() if name.isdigit()), default=None)
    if not planned or done is None or done not in planned:
        return 0, 0
    # From epoch 0 a job can start over without any offsets.
    first = 0 if planned[0] == 0 else one.position(journal, planned[0])
    return first, one.position(journal, done)
