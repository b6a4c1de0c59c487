"""The split: which nodes run in the scan itself, natively, and which in Spark.

The native lane takes the longest chain from a source through nodes that mean the same there, and, where the aggregates
that follow can be halved, the partial half. A node whose rows go several ways ends the chain: what several branches
share is computed once, natively, and each branch is Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.plan.graph import Graph
from penstock.plan.joins import LATE, StreamJoin
from penstock.plan.node import Node
from penstock.plan.nodes import Drop, EventTime, Filter, Read, Rename, Select, Side, WithColumns
from penstock.plan.partials import Halves, halves
from penstock.plan.portable import why_not, why_not_names, why_not_rows
from penstock.plan.process import KeyedProcess
from penstock.plan.stateful import Aggregate, Deduplicate, Grouped


@dataclass(frozen=True)
class Prefix:
    """What a source's scan does besides reading."""

    read: Read
    chain: tuple[Node, ...] = ()
    late: Node | None = None
    late_side: str = "late"
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
            if node == prefix.partial:
                return "native partial, spark merge"
        return "spark"


def split_lanes(graph: Graph, lane: str = "auto", why: str | None = None) -> Lanes:
    """Decide the lane of every node; `why` is the reason for `lane="spark"` if it is not the setting."""
    lanes = Lanes()
    for read in graph.reads:
        lanes.prefixes[read] = _prefix(graph, read, lanes.reasons) if lane == "auto" else Prefix(read)
    for node in graph.nodes:
        if lanes.lane(node) == "spark" and node.inputs:
            lanes.reasons.setdefault(node, _outside(node, graph, lanes) if lane == "auto" else why or f"lane is {lane}")
    return lanes


def _outside(node: Node, graph: Graph, lanes: Lanes) -> str:
    """Say why a node was not reached from its source."""
    if len(node.inputs) > 1:
        return f"{node.kind} is Spark's"
    (source,) = node.inputs
    forked = isinstance(source, Read) or lanes.lane(source) == "native"
    return f"the rows of {graph.name(source)} go several ways" if forked else f"it follows {graph.name(source)}"


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
    joined = _join_after(graph, last)
    if joined is not None and any(isinstance(node, EventTime) for node in chain):
        return Prefix(read, tuple(chain), late=joined, late_side=LATE[joined.inputs.index(last)])
    return _ending(read, tuple(chain), _only_consumer(graph, last), reasons)


def _ending(read: Read, chain: tuple[Node, ...], after: Node | None, reasons: dict[Node, str]) -> Prefix:
    """See whether the scan can also part late rows and halve the aggregation that follows."""
    if not isinstance(after, Deduplicate | Grouped | KeyedProcess):
        return Prefix(read, chain)
    late = after if after.sides and any(isinstance(node, EventTime) for node in chain) else None
    split = _halved(after)
    if isinstance(split, str):
        reasons[after] = split
        return Prefix(read, chain, late=late)
    assert isinstance(after, Aggregate)
    reasons.pop(after, None)
    return Prefix(read, chain, late=late, partial=after, split=split)


def _halved(node: Node) -> Halves | str:
    if node.bucketed:
        return f"{node.kind} is kept by buckets of keys"
    if not isinstance(node, Aggregate):
        return f"{node.kind} needs whole rows"
    return why_not_names(node.input.schema.names) or halves(node)


def _only_consumer(graph: Graph, node: Node) -> Node | None:
    consumers = [other for other in graph.consumers(node) if not isinstance(other, Side)]
    return consumers[0] if len(consumers) == 1 and len(consumers[0].inputs) == 1 else None


def _join_after(graph: Graph, node: Node) -> StreamJoin | None:
    """Return the join of streams that a node's rows go to, all of them and as one side."""
    consumers = [other for other in graph.consumers(node) if not isinstance(other, Side)]
    one = consumers[0] if len(consumers) == 1 else None
    return one if isinstance(one, StreamJoin) and one.sides and one.inputs.count(node) == 1 else None


def _stays(node: Node) -> str | None:
    """Return what keeps a node in Spark."""
    if not isinstance(node, Drop | Rename | EventTime | Filter | Select | WithColumns):
        return f"{node.kind} is Spark's"
    if reason := why_not_rows(node.input.schema) or why_not_rows(node.schema):
        return reason
    if isinstance(node, Filter):
        return why_not(node.condition, node.input.schema)
    if isinstance(node, Select | WithColumns):
        reasons = (why_not(sql, node.input.schema) for _, sql in node.columns)
        return next((reason for reason in reasons if reason), None)
    return None
