"""Reports inputs that changed after they were found, also when no epoch runs.

The planner of a source notices the change, in a process of its own whose output nobody sees, and leaves it in the
checkpoint. The driver looks there while it waits and once more at its end.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from penstock.errors import PenstockError
from penstock.plan.graph import Graph
from penstock.plan.nodes import Read

# A look is a request, where the checkpoint is in an object store.
PERIOD_SECONDS = 5.0

_log = logging.getLogger(__name__)


class InputChanges:
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
            # A log that cannot be read stops the planner, which says so; a warning must not hide that.
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
