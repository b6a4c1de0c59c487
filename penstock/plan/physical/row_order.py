"""Whether the rows of a key reach a keyed sink in order; batches have no position, so that they can end it."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.plan.graph import Graph, upstream
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Write

_WARNING = (
    "within an epoch the rows of one key may come in any order, for map_batches has no rows to keep in order: "
    "use map or flat_map if the order matters"
)


def order_warnings(graph: Graph) -> dict[Node, str]:
    """Return what to know of outputs before rows are written by their keys, if these may come in any order."""
    return {write: _WARNING for write in graph.writes if write.sink.keyed and _loses_order(write, graph)}


def _loses_order(write: Write, graph: Graph) -> bool:
    rows = list(_since_state(write))
    unions = [node for node in rows if len(node.inputs) > 1]
    for node in rows:
        if node.loses_positions and (_is_shuffled(node, graph) or any(node in upstream(one) for one in unions)):
            return True
    return False


def _is_shuffled(node: Node, graph: Graph) -> bool:
    return any(one.stateful or len(one.inputs) > 1 or len(graph.consumers(one)) > 1 for one in upstream(node))


def _since_state(node: Node) -> Iterator[Node]:
    """Yield the nodes between the last stateful operators and this one."""
    yield node
    if not node.stateful:
        for one in node.inputs:
            yield from _since_state(one)
