"""Watermarks: how far rows may be older than the watermark that Spark passes to a node, and the range of event times.

The results of a join are older than the watermark, by as much as the join waits. Spark knows that at the nodes that
follow, but no longer downstream of state that buckets of keys hold: there it passes on the watermark of the query. Such
nodes use the watermark less the lag: windows close later by it, timers fire later by it, and no row is late.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.plan.graph import upstream
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import EventTime
from penstock.windows import END_US, FIRST_US, YEAR_US, TimeRange

# Spark's watermark is in milliseconds, and a join without partners leaves one or two after its time.
_ROUNDING_US = 10_000


def uses_event_time(node: Node) -> bool:
    """Return whether the state or the results of a node depend on the event time of its rows."""
    return node.uses_event_time


def lag_us(node: Node) -> int:
    """Return how far rows may be older than the watermark at a node, because of joins that Spark no longer knows of."""
    return (
        sum((join.lag_us or 0) + _ROUNDING_US for join in joins_upstream_of_buckets(node))
        if node.uses_event_time
        else 0
    )


def joins_upstream_of_buckets(node: Node) -> tuple[Node, ...]:
    """Return the joins of streams upstream of state in buckets that is upstream of a node."""
    held = (one for one in upstream(node) if one.bucketed and one != node)
    return tuple(dict.fromkeys(join for one in held for join in upstream(one) if join.lag_us is not None))


def unbounded_join(node: Node) -> Node | None:
    """Return a join without a bound in time upstream of a node."""
    return next((one for one in upstream(node) if one.unbounded and one != node), None)


def time_range(time: EventTime, nodes: Iterable[Node], first_us: int = FIRST_US) -> TimeRange:
    """Return the valid range of an event time; `first_us` is the earliest that Spark's watermark can follow.

    A year is left at either end for windows, intervals of joins and delays; longer ones leave more.
    """
    after = [node for node in nodes if node.stateful and time in upstream(node)]
    spans = sum(node.time_span_us for node in after)
    waits = time.max_delay_us + max((node.lateness_us for node in after), default=0)
    first = FIRST_US + max(YEAR_US, spans)
    return TimeRange(max(first, first_us), END_US - max(YEAR_US, spans + waits))
