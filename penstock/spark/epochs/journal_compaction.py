"""Keeps control journals short: entries that no retained epoch can need again are dropped.

An epoch that runs again, after a crash or because later state is damaged, reads entries from the position in the
offsets of the epoch before it. So the oldest retained offsets say which entries are needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.tasks.control_journal import CLOCK, TIMERS, TIMES_JOURNAL, ControlJournal
from penstock.spark.tasks.offset_files import TICKS, offset_log_entry
from penstock.storage.folders import Folder

if TYPE_CHECKING:
    from penstock.spark.lowering.compile import Query
    from penstock.spark.lowering.job_storage import JobStorage


@dataclass(frozen=True)
class JournalReaders:
    """One query: its folder, its sources in Spark's order, and those of them that emit declared times."""

    query: Folder
    sources: Sequence[str]
    timed: frozenset[str]

    def reading(self, journal: str) -> list[str]:
        """Return the sources that read a journal."""
        own = CLOCK if journal == TIMES_JOURNAL else TIMERS
        return [one for one in self.sources if one == own or (journal == TIMES_JOURNAL and one in self.timed)]

    def position(self, journal: str, epoch: int) -> int:
        """Return the number of entries that every source had read after an epoch."""
        lines = offset_log_entry(self.query, epoch)[2:]
        if len(lines) != len(self.sources):
            return 0
        wanted = {*self.reading(journal)}
        mine = (pair for pair in zip(self.sources, lines, strict=True) if pair[0] in wanted)
        return min((entries_read(journal, one, parse_offset(line)) for one, line in mine), default=0)


def parse_offset(line: str) -> Any:
    """Return the offsets of one source as Spark wrote them; None if it was not read yet."""
    return json.loads(line) if line != "-" else None


def entries_read(journal: str, source: str, offset: Any) -> int:
    """Return how many entries of a journal a source had read at an offset."""
    if not isinstance(offset, dict):
        return 0
    if journal == TIMERS:
        return int(offset.get("0", 0)) if source == TIMERS else 0
    return int(offset.get("0" if source == CLOCK else TICKS, 0))


def journal_readers(checkpoint: JobStorage, query: Query, sources: Sequence[str]) -> JournalReaders:
    """Return the sources of a query that read journals; a scan emits declared times if it knows the event time."""
    prefixes = query.context.lanes.prefixes.values()
    timed = frozenset(query.context.graph.name(prefix.read) for prefix in prefixes if prefix.times)
    return JournalReaders(checkpoint.query(query.name), sources, timed)


class JournalCompaction:
    """Keeps the journals of a run short; called by the driver between epochs."""

    def __init__(self, journals: Mapping[str, ControlJournal], queries: Iterable[JournalReaders]) -> None:
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


def _bounds(one: JournalReaders, journal: str) -> tuple[int, int]:
    planned = sorted(int(name) for name in (one.query / "offsets").names() if name.isdigit())
    done = max((int(name) for name in (one.query / "commits").names() if name.isdigit()), default=None)
    if not planned or done is None or done not in planned:
        return 0, 0
    # From epoch 0 a job can start over without any offsets.
    first = 0 if planned[0] == 0 else one.position(journal, planned[0])
    return first, one.position(journal, done)
