"""From a row that a node refused back to the row of its source."""

from __future__ import annotations

from typing import Any

from penstock.connectors.topics import TopicSource
from penstock.plan.graph import Graph, upstream
from penstock.plan.node import Node
from penstock.plan.nodes import Drop, EventTime, Filter, MapBatches, PythonNode, Read, Rename, Select, WithColumns
from penstock.plan.stateful import Deduplicate
from penstock.rejected.rows import RejectedRow
from penstock.schema import bare

_KEEP_ALL = (Filter, EventTime, Deduplicate, Read)


class Lost(Exception):
    """A row that cannot go back, and why."""


def read_of(row: RejectedRow, graph: Graph) -> Read:
    """Return the source that a row came from."""
    node = next((node for node, name in graph.names.items() if name == row.node), None)
    if node is None:
        message = f"the pipeline has no node '{row.node}' any more"
        raise Lost(message)
    reads = [one for one in upstream(node) if isinstance(one, Read)]
    found = [one for one in reads if row.source in (None, graph.name(one))]
    if len(found) != 1:
        names = ", ".join(graph.name(one) for one in reads)
        message = f"rows of several sources meet at '{row.node}' ({names})"
        raise Lost(message)
    return found[0]


def source_values(row: RejectedRow, graph: Graph) -> dict[str, Any]:
    """Return the values of the source's own columns, taken back from what a node was given."""
    node = next(node for node, name in graph.names.items() if name == row.node)
    read = read_of(row, graph)
    names = _names(node if isinstance(node, Read) else node.inputs[0], graph)
    values = row.values
    found = {source: values.get(name) for name, source in names.items()}
    missing = [name for name in own_columns(read) if name not in found]
    if missing:
        message = f"'{row.node}' was not given {', '.join(missing)} of source '{graph.name(read)}' as it was read"
        raise Lost(message)
    return found


def own_columns(read: Read) -> list[str]:
    """Return the columns that a payload holds: not those that are of the record around it."""
    beside = len(read.source.include) if isinstance(read.source, TopicSource) else 0
    return list(read.schema.names[: len(read.schema) - beside])


def _names(node: Node, graph: Graph) -> dict[str, str]:
    """Return which columns of a node are unchanged columns of its source: name here, name there."""
    if isinstance(node, Read):
        return {name: name for name in node.schema.names}
    if len(node.inputs) != 1 or isinstance(node, PythonNode | MapBatches):
        message = f"it was made by '{graph.name(node)}'"
        raise Lost(message)
    before = _names(node.inputs[0], graph)
    if isinstance(node, Select):
        return {name: before[own] for name, sql in node.columns if (own := bare(sql)) in before}
    if isinstance(node, WithColumns):
        return {name: source for name, source in before.items() if name not in dict(node.columns)}
    if isinstance(node, Rename):
        new = {old: name for name, old in node.names}
        return {new.get(name, name): source for name, source in before.items()}
    if isinstance(node, Drop):
        return {name: source for name, source in before.items() if name not in node.names}
    if isinstance(node, _KEEP_ALL):
        return before
    message = f"it was made by '{graph.name(node)}'"
    raise Lost(message)
