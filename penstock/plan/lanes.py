"""The split: which nodes run in the scan itself, natively, and which in Spark.

The native lane takes the longest chain from a source through nodes that mean the same there, and, where a tumbling
window's aggregates can be halved, the partial half. A source whose rows go several ways ends the chain: what several
branches share is computed once, in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.plan.graph import Graph
from penstock.plan.node import Node
from penstock.plan.nodes import Drop, EventTime, Filter, Read, Rename, Select, Side, WithColumns
from penstock.plan.partials import Halves, halves
from penstock.plan.portable import why_not
from penstock.plan.stateful import Aggregate, Deduplicate, Grouped


@dataclass(frozen=True)
class Prefix:
    """What a source's scan does besides reading."""

    read: Read
    chain: tuple[Node, ...] = ()
    late: Node | None = None
    partial: Aggregate | None = None
    split: Halves | None = None

    @property
    def last(self) -> Node:
        """The node whose rows leave the scan, but for a partial aggregate."""
        return self.chain[-1] if self.chain else self.read

    @property
    def times(self) -> EventTime | None:
        """The event time that is declared in the scan."""
        return next((node for node in self.chain if isinstance(node, EventTime)), None)


@dataclass
class Lanes:
    """Each source's prefix, and why a node stays in Spark."""

    prefixes: dict[Read, Prefix] = field(default_factory=dict)
    reasons: dict[Node, str] = field(default_factory=dict)

    def lane(self, node: Node) -> str:
        """The lane of a node, as `explain` shows it."""
        for prefix in self.prefixes.values():
            if node in prefix.chain:
                return "native"
            if node is prefix.partial:
                return "native partial, spark merge"
        return "spark"


def split_lanes(graph: Graph, lane: str = "auto") -> Lanes:
    """Decide the lane of every node."""
    lanes = Lanes()
    for read in graph.reads:
        lanes.prefixes[read] = _prefix(graph, read, lanes.reasons) if lane == "auto" else Prefix(read)
    return lanes


def _prefix(graph: Graph, read: Read, reasons: dict[Node, str]) -> Prefix:
    chain: list[Node] = []
    last: Node = read
    while (node := _only_consumer(graph, last)) is not None:
        reason = _stays(node)
        if reason:
            reasons[node] = reason
            break
        chain.append(node)
        last = node
    return _ending(read, tuple(chain), _only_consumer(graph, last), reasons)


def _ending(read: Read, chain: tuple[Node, ...], after: Node | None, reasons: dict[Node, str]) -> Prefix:
    """See whether the scan can also part late rows and halve the aggregation that follows."""
    timed = any(isinstance(node, EventTime) for node in chain)
    windowed = isinstance(after, Deduplicate) or (isinstance(after, Grouped) and after.window is not None)
    if not timed or not windowed:
        return Prefix(read, chain)
    split = halves(after) if isinstance(after, Aggregate) else "only aggregate() is split so far"
    assert after is not None
    if isinstance(split, str):
        reasons[after] = split
        return Prefix(read, chain, late=after)
    assert isinstance(after, Aggregate)
    reasons.pop(after, None)
    return Prefix(read, chain, late=after, partial=after, split=split)


def _only_consumer(graph: Graph, node: Node) -> Node | None:
    consumers = [other for other in graph.consumers(node) if not isinstance(other, Side)]
    return consumers[0] if len(consumers) == 1 and len(consumers[0].inputs) == 1 else None


def _stays(node: Node) -> str | None:
    """Return what keeps a node in Spark."""
    if isinstance(node, Drop | Rename | EventTime):
        return None
    if isinstance(node, Filter):
        return why_not(node.condition, node.input.schema)
    if isinstance(node, Select | WithColumns):
        reasons = (why_not(sql, node.input.schema) for _, sql in node.columns)
        return next((reason for reason in reasons if reason), None)
    return f"{node.kind} is Spark's"
