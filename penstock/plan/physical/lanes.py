"""Lanes: which nodes run natively, in the scan itself, and which in Spark.

The native lane has the longest chain from a source of nodes whose expressions mean the same in DuckDB, and after it the
partial phase of a two-phase aggregate, or the packing of rows into buckets of keys. A node with several consumers ends
the chain: what several branches share is computed once, natively, and each branch runs in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, cast

from penstock.plan.graph import Graph, event_times_in
from penstock.plan.operators.grouped import Aggregate
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import EventTime, Read
from penstock.plan.operators.two_phase_aggregates import TwoPhaseAggregate, two_phases
from penstock.plan.translation import KEY_TYPES, why_not, why_not_names, why_not_rows

Lane = Literal["native", "native partial, spark merge", "native packing, spark state", "spark"]


@dataclass(frozen=True)
class Prefix:
    """What a source's scan does besides reading."""

    read: Read
    chain: tuple[Node, ...] = ()
    late: Node | None = None
    late_side: str = "late"
    partial: Aggregate | None = None
    split: TwoPhaseAggregate | None = None
    packed: Node | None = None

    @property
    def last(self) -> Node:
        """The node whose rows leave the scan, but for a partial aggregate."""
        return self.chain[-1] if self.chain else self.read

    @property
    def times(self) -> EventTime | None:
        """The event time that is declared in the scan."""
        return next(iter(event_times_in(self.chain)), None)


@dataclass
class Lanes:
    """The native prefix of each source, and why other nodes run in Spark."""

    prefixes: dict[Read, Prefix] = field(default_factory=dict)
    reasons: dict[Node, str] = field(default_factory=dict)

    def lane(self, node: Node) -> Lane:
        """The lane of a node, as `explain` shows it."""
        for prefix in self.prefixes.values():
            if node in prefix.chain:
                return "native"
            if node == prefix.partial:
                return "native partial, spark merge"
            if node == prefix.packed:
                return "native packing, spark state"
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
    """Return why the native chain of its source does not reach a node."""
    if len(node.inputs) > 1:
        return f"{node.kind} is Spark's"
    (source,) = node.inputs
    forked = source in lanes.prefixes or lanes.lane(source) == "native"
    return f"the rows of {graph.name(source)} go several ways" if forked else f"it follows {graph.name(source)}"


def _prefix(graph: Graph, read: Read, reasons: dict[Node, str]) -> Prefix:
    chain: list[Node] = []
    last: Node = read
    while (node := _only_consumer(graph, last)) is not None:
        reason = _not_native_reason(node)
        if reason:
            reasons[node] = reason
            break
        chain.append(node)
        last = node
    joined = _join_after(graph, last)
    if joined is not None and event_times_in(chain):
        return Prefix(read, tuple(chain), late=joined, late_side=joined.sides[joined.inputs.index(last)])
    return _ending(read, tuple(chain), _consumer(graph, last), reasons)


def _ending(read: Read, chain: tuple[Node, ...], after: Node | None, reasons: dict[Node, str]) -> Prefix:
    """Return the prefix, with late rows split off and the partial aggregate of the next node where possible."""
    if after is None or not after.stateful:
        return Prefix(read, chain)
    single = len(after.inputs) == 1
    late = after if single and after.sides and event_times_in(chain) else None
    prefix = Prefix(read, chain, late=late)
    keys = after.packed_by(prefix.last)
    if keys is not None:
        return _packing(prefix, after, keys, reasons)
    if not single:
        return prefix
    split = _two_phase(after)
    if isinstance(split, str):
        reasons[after] = split
        return prefix
    reasons.pop(after, None)
    # Only aggregates have two phases.
    return Prefix(read, chain, late=late, partial=cast("Aggregate", after), split=split)


def _packing(prefix: Prefix, node: Node, keys: tuple[str, ...], reasons: dict[Node, str]) -> Prefix:
    """Return a prefix that packs rows for a node by keys, if their types have the same hash in the scan."""
    types = prefix.last.schema.types
    other = [key for key in keys if types[key] not in KEY_TYPES]
    if other:
        reasons[node] = f"the key {other[0]} is {types[other[0]]}, whose hash is Spark's"
        return prefix
    reasons.pop(node, None)
    return replace(prefix, packed=node)


def _two_phase(node: Node) -> TwoPhaseAggregate | str:
    if node.bucketed:
        return f"the state of {node.kind} is in buckets of keys"
    split = two_phases(node)
    return split if isinstance(split, str) else why_not_names(node.inputs[0].schema.names) or split


def _consumer(graph: Graph, node: Node) -> Node | None:
    """Return the node that all rows of a node go to, and no other."""
    consumers = graph.main_consumers(node)
    return consumers[0] if len(consumers) == 1 else None


def _only_consumer(graph: Graph, node: Node) -> Node | None:
    """Return the consumer of a node, if it has no other rows either."""
    one = _consumer(graph, node)
    return one if one is not None and len(one.inputs) == 1 else None


def _join_after(graph: Graph, node: Node) -> Node | None:
    """Return the join of streams that a node's rows go to, all of them and as one side; each side has late rows."""
    one = _consumer(graph, node)
    several = one is not None and len(one.inputs) == len(one.sides) > 1
    return one if one is not None and several and one.inputs.count(node) == 1 else None


def _not_native_reason(node: Node) -> str | None:
    """Return why a node cannot run natively."""
    if not node.native:
        return f"{node.kind} is Spark's"
    before = node.inputs[0].schema
    if reason := why_not_rows(before) or why_not_rows(node.schema):
        return reason
    return next((reason for sql in node.row_sql if (reason := why_not(sql, before))), None)
