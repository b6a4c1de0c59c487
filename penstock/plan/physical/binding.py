"""A physical plan over the nodes of its graph: what the compiler needs, looked up, never decided again."""

from __future__ import annotations

from typing import cast

from penstock.plan.graph import Graph
from penstock.plan.operators.grouped import Aggregate
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Read, Write
from penstock.plan.operators.two_phase_aggregates import TwoPhaseAggregate, two_phases
from penstock.plan.physical.lanes import Lanes, Prefix
from penstock.plan.physical.plan import PhysicalPlan, PlannedScan


class BoundPlan:
    """A plan and the graph that it was made of."""

    def __init__(self, plan: PhysicalPlan, graph: Graph) -> None:
        self.plan, self.graph = plan, graph
        self._nodes = {graph.id(node): node for node in graph.nodes}

    def node(self, id: str) -> Node:
        """Return the node of an id."""
        return self._nodes[id]

    def nodes(self, ids: tuple[str, ...]) -> tuple[Node, ...]:
        """Return the nodes of several ids, in their order."""
        return tuple(self._nodes[id] for id in ids)

    def writes(self, ids: tuple[str, ...]) -> tuple[Write, ...]:
        """Return the outputs of several ids, in their order."""
        return cast("tuple[Write, ...]", self.nodes(ids))

    def lanes(self) -> Lanes:
        """Return each source's native prefix, and why other nodes run in Spark."""
        prefixes = (self._prefix(scan) for scan in self.plan.scans)
        reasons = {self._nodes[node.id]: node.reason for node in self.plan.nodes if node.reason is not None}
        return Lanes({prefix.read: prefix for prefix in prefixes}, reasons)

    def _prefix(self, scan: PlannedScan) -> Prefix:
        read, chain = cast("Read", self._nodes[scan.source]), self.nodes(scan.chain)
        late = self._nodes[scan.late] if scan.late else None
        side = scan.late_side or "late"
        if scan.partial is None:
            return Prefix(read, chain, late, side, packed=self._nodes[scan.packed] if scan.packed else None)
        partial = cast("Aggregate", self._nodes[scan.partial])
        return Prefix(read, chain, late, side, partial, cast("TwoPhaseAggregate", two_phases(partial)))
