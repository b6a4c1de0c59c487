"""Reports when a table that a stream is joined with cannot be read, and when it can again.

Tasks read the tables, and what they log ends in Spark's own log. They leave it in the checkpoint; the driver looks
there after each epoch.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from penstock.durations import span_text
from penstock.folders import Folder
from penstock.plan.joins import JoinTable
from penstock.spark.lowering.context import Context
from penstock.spark.lowering.table_joins import versions_folder
from penstock.spark.lowering.table_versions import NEWEST

_log = logging.getLogger(__name__)


class TableWatch:
    """The tables of a run, and since when each of them is away."""

    def __init__(self, contexts: Iterable[Context]) -> None:
        self._tables: list[tuple[JoinTable, str, Folder]] = [
            (node, context.graph.label(node), versions_folder(node, context))
            for context in contexts
            for node in context.nodes
            if isinstance(node, JoinTable)
        ]
        self._away: dict[str, float] = {}

    def report(self) -> None:
        """Log, once each, that a table is away and that it is back."""
        for node, label, folder in self._tables:
            away = json.loads(folder.read(NEWEST) or "{}").get("away")
            if away and label not in self._away:
                self._away[label] = away["since"]
                _log.warning(_gone(node, label, away))
            elif not away and label in self._away:
                seconds = round(time.time() - self._away.pop(label))
                _log.warning(f"{label}: the table can be read again, after {span_text(seconds * 1_000_000)}")


def _gone(node: JoinTable, label: str, away: dict[str, str | float]) -> str:
    read = datetime.fromtimestamp(float(away["read"]), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    most = span_text(node.max_staleness_us)
    kept = f"rows are joined with the version read at {read}; if it stays away for {most}, the job fails"
    return "\n  ".join(str(part) for part in (f"{label}: {away['why']}", kept, away["hint"]) if part)
