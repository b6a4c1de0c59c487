"""The graph of a pipeline: every node that its outputs reach, sources first, sinks last, each with a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from graphlib import TopologicalSorter
from typing import cast

from penstock.contracts import REJECTED, Sink
from penstock.errors import MissingSink
from penstock.plan.naming import node_id, own_names, public_names
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import EventTime, Read, Side, Write
from penstock.plan.sql_expressions.expression import predicate, scalar


class Graph:
    """Nodes in an order in which inputs come first.

    Invariants: `names` are unique, `own_names` among sources, among operators and among sinks; the first nodes read,
    the last ones write; equal nodes are one. There is no cycle, because a node is frozen and built after its inputs.
    """

    def __init__(self, outputs: tuple[Write, ...], rejected_to: Sink | None = None) -> None:
        if not outputs:
            message = "the pipeline has no output"
            raise MissingSink(message, hint="end a stream with .to(sink) and pass it to Pipeline")
        self.rejected_to = rejected_to
        if rejected_to is not None:
            rejected_to.validate(REJECTED, ())
        if rejected_to is not None and rejected_to.row_key is not None:
            scalar(rejected_to.row_key, REJECTED, node=f"rejected_to '{rejected_to.name}' key")
        if rejected_to is not None and rejected_to.row_removed is not None:
            predicate(rejected_to.row_removed, REJECTED, node=f"rejected_to '{rejected_to.name}' remove")
        self.nodes = tuple(_in_order(_with_late(outputs)))
        self.own_names = own_names(self.nodes, rejected_to)
        self.names = public_names(self.own_names)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The sources."""
        return reads_in(self.nodes)

    @cached_property
    def writes(self) -> tuple[Write, ...]:
        """The outputs."""
        return writes_in(self.nodes)

    @cached_property
    def event_times(self) -> tuple[EventTime, ...]:
        """The nodes that declare an event time."""
        return event_times_in(self.nodes)

    @cached_property
    def stateful(self) -> tuple[Node, ...]:
        """The stateful nodes."""
        return tuple(node for node in self.nodes if node.stateful)

    def name(self, node: Node) -> str:
        """The node's name, which no other node of this graph has."""
        return self.names[node]

    def own_name(self, node: Node) -> str:
        """The node's name among the sources, operators or sinks: state, ledgers and offsets are stored under it."""
        return self.own_names[node]

    def id(self, node: Node) -> str:
        """The id of the node in a checkpoint."""
        return node_id(node.kind, self.own_names[node])

    def label(self, node: Node) -> str:
        """The node as an error names it."""
        return f"{node.kind} '{self.own_names[node]}'"

    def consumers(self, node: Node) -> tuple[Node, ...]:
        """The nodes directly downstream."""
        return tuple(other for other in self.nodes if any(one == node for one in other.inputs))

    def main_consumers(self, node: Node) -> tuple[Node, ...]:
        """The nodes that the rows of its main output go to."""
        return tuple(other for other in self.consumers(node) if other.side_of is None)


def reads_in(nodes: Iterable[Node]) -> tuple[Read, ...]:
    """Return the sources among nodes."""
    return tuple(node for node in nodes if isinstance(node, Read))


def writes_in(nodes: Iterable[Node]) -> tuple[Write, ...]:
    """Return the outputs among nodes."""
    return tuple(node for node in nodes if isinstance(node, Write))


def event_times_in(nodes: Iterable[Node]) -> tuple[EventTime, ...]:
    """Return the nodes among others that declare an event time."""
    return tuple(node for node in nodes if isinstance(node, EventTime))


def upstream(node: Node) -> Iterator[Node]:
    """Yield the node and everything it depends on, nearest first, each once."""
    seen: dict[Node, None] = {}
    waiting = [node]
    while waiting:
        found = waiting.pop(0)
        if found not in seen:
            seen[found] = None
            waiting.extend(found.inputs)
    yield from seen


def stateful_upstream(node: Node) -> list[Node]:
    """Return the stateful nodes upstream of a node as Spark counts them: from the sink up, a shared one each time."""
    found = [found for one in node.inputs for found in stateful_upstream(one)]
    return [node, *found] if node.stateful else found


def late_output_of(node: Node) -> Side | None:
    """Return the side output of late rows that a node is downstream of, if there is one."""
    return next((cast("Side", one) for one in upstream(node) if one.is_late_output), None)


def _with_late(outputs: tuple[Write, ...]) -> tuple[Write, ...]:
    """Add the outputs of `late_to`, which is short for `.side("late").to(sink)`."""
    asked: dict[Write, None] = dict.fromkeys(outputs)
    for output in outputs:
        for node in upstream(output):
            if node.late_to is not None:
                asked[Write(input=Side(input=node, output="late"), sink=node.late_to)] = None
    return tuple(asked)


def _in_order(outputs: tuple[Write, ...]) -> list[Node]:
    one_of: dict[Node, Node] = {}
    sorter: TopologicalSorter[Node] = TopologicalSorter()
    for output in outputs:
        for node in upstream(output):
            one_of.setdefault(node, node)
            sorter.add(one_of[node], *(one_of.setdefault(i, i) for i in node.inputs))
    rank = {"read": 0, "write": 2}
    order = {node: position for position, node in enumerate(sorter.static_order())}
    return sorted(order, key=lambda node: (rank.get(node.kind, 1), order[node]))
