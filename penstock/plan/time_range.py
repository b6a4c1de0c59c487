"""Which event times can be used: those whose windows and joins end before the end of input is declared.

Python, and most that reads results, knows the years 1 to 9999. A row near either end would have windows beyond it, or
would wait for a watermark that never comes. Such rows are rejected where the event time is declared.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.plan.graph import upstream
from penstock.plan.joins import Join
from penstock.plan.node import Node
from penstock.plan.nodes import EventTime
from penstock.plan.stateful import Grouped
from penstock.windows import END_US, FIRST_US, YEAR_US, TimeRange


def time_range(time: EventTime, nodes: Iterable[Node], first_us: int = FIRST_US) -> TimeRange:
    """Return which times an event time takes; `first_us` is the earliest that Spark's watermark can follow.

    A year is left at either end for windows, intervals of joins and delays; longer ones leave more.
    """
    after = [node for node in nodes if node.stateful and time in upstream(node)]
    spans = sum(map(_span_us, after))
    waits = time.max_delay_us + max((getattr(node, "lateness_us", 0) for node in after), default=0)
    first = FIRST_US + max(YEAR_US, spans)
    return TimeRange(max(first, first_us), END_US - max(YEAR_US, spans + waits))


def _span_us(node: Node) -> int:
    """Return how far from a row's time its results may lie."""
    if isinstance(node, Grouped) and node.window is not None and node.window.by_event_time:
        return 0 if node.window.kind == "global" else node.window.size_us
    return max(map(abs, node.interval)) if isinstance(node, Join) else 0
