"""Lags: how far rows may be behind the watermark that Spark hands to a node.

The results of a join are older than the watermark, by as much as the join waits. Spark knows that at the nodes that
follow, but no longer downstream of state that buckets of keys hold: there it hands on the watermark of the query. Such
nodes use the watermark less the lag: windows close later by it, timers fire later by it, and no row is late.
"""

from __future__ import annotations

from penstock.plan.graph import upstream
from penstock.plan.joins import Join
from penstock.plan.node import Node
from penstock.plan.queries import goes_by_time
from penstock.plan.stateful import Grouped

# Spark's watermark is in milliseconds, and a join without partners leaves one or two after its time.
_ROUNDING_US = 10_000


def uses_event_time(node: Node) -> bool:
    """Say whether what a node keeps or gives depends on the event time of its rows."""
    if isinstance(node, Grouped):
        return node.window is not None and node.window.by_event_time
    return goes_by_time(node)


def lag_us(node: Node) -> int:
    """Return how far rows may be behind the watermark at a node: by all joins that Spark no longer knows of."""
    return sum(join.lag_us + _ROUNDING_US for join in hidden_joins(node)) if uses_event_time(node) else 0


def hidden_joins(node: Node) -> tuple[Join, ...]:
    """Return the joins of streams upstream of state in buckets that is upstream of a node."""
    held = (one for one in upstream(node) if one.bucketed and one != node)
    return tuple(dict.fromkeys(join for one in held for join in upstream(one) if isinstance(join, Join)))


def unbounded_join(node: Node) -> Join | None:
    """Return a join without a bound in time upstream of a node."""
    joins = (one for one in upstream(node) if isinstance(one, Join) and one != node)
    return next((join for join in joins if join.unbounded), None)
