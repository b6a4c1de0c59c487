"""Warnings about inputs: files that changed after they were found, and tables that cannot be read.

Planners and tasks detect them, in processes of their own whose output is not shown, and write them to the checkpoint.
The driver reads them there while it waits, and once more at its end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from penstock.durations import span_text
from penstock.errors import PenstockError
from penstock.plan.graph import Graph
from penstock.plan.operators.joins import JoinTable, table_joins_in
from penstock.plan.operators.stateless import Read
from penstock.spark.lowering.context import Context
from penstock.spark.lowering.table_joins import versions_folder
from penstock.spark.lowering.table_versions import NEWEST
from penstock.storage.folders import Folder

# Each is a request, where the checkpoint is in an object store.
PERIOD_SECONDS = 5.0
_log = logging.getLogger(__name__)


class InputWarnings:
    """The sources of a run, and what is to be reported about their inputs."""

    def __init__(self, graph: Graph, clock: Callable[[], float] = time.monotonic) -> None:
        self._reads: Sequence[tuple[Read, str]] = [(read, graph.own_name(read)) for read in graph.reads]
        self._clock, self._next = clock, clock() + PERIOD_SECONDS

    def watch(self) -> None:
        """Report from time to time."""
        if self._clock() >= self._next:
            self._next = self._clock() + PERIOD_SECONDS
            self.report()

    def report(self) -> None:
        """Log, once each, what changed since the last time."""
        for read, _ in self._reads:
            # A log that cannot be read stops the planner, which reports it; a warning must not hide that.
            with contextlib.suppress(PenstockError, OSError):
                for warning in read.source.warnings():
                    _log.warning(warning)

    def counted(self) -> dict[str, int]:
        """Return how many inputs of each source changed, over all runs of the checkpoint."""
        counts: dict[str, int] = {}
        for read, name in self._reads:
            with contextlib.suppress(PenstockError, OSError):
                counts[name] = read.source.changed_inputs()
        return {name: count for name, count in counts.items() if count}


class TableWarnings:
    """The tables that streams of a run are joined with, and since when each cannot be read."""

    def __init__(self, contexts: Iterable[Context]) -> None:
        self._tables: list[tuple[JoinTable, str, Folder]] = [
            (node, context.graph.label(node), versions_folder(node, context))
            for context in contexts
            for node in table_joins_in(context.nodes)
        ]
        self._away: dict[str, float] = {}

    def report(self) -> None:
        """Log, once each, that a table cannot be read and that it can again."""
        for node, label, folder in self._tables:
            away = json.loads(folder.read(NEWEST) or "{}").get("away")
            if away and label not in self._away:
                self._away[label] = away["since"]
                _log.warning(_unreadable(node, label, away))
            elif not away and label in self._away:
                seconds = round(time.time() - self._away.pop(label))
                _log.warning(f"{label}: the table can be read again, after {span_text(seconds * 1_000_000)}")


def _unreadable(node: JoinTable, label: str, away: dict[str, str | float]) -> str:
    read = datetime.fromtimestamp(float(away["read"]), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    most = span_text(node.max_staleness_us)
    kept = f"rows are joined with the version read at {read}; if it cannot be read for {most}, the job fails"
    return "\n  ".join(str(part) for part in (f"{label}: {away['why']}", kept, away["hint"]) if part)
