"""What a node without state makes of some rows of its source, without Spark: by the native lane's translation."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import PipelineError, RequestRefused
from penstock.native.program import Program
from penstock.native.steps import TICK, TIME
from penstock.native.translate import program
from penstock.plan.graph import Graph
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Read, Write
from penstock.plan.physical.lanes import Prefix
from penstock.plan.translation.parts import NotNative


def path_to(node: Node, graph: Graph) -> tuple[Read, list[Node]]:
    """Return the source of a node and the nodes between; refuse one that is fed by several, or through state."""
    steps: list[Node] = []
    while not isinstance(node, Read):
        if len(node.inputs) != 1 or node.stateful or node.side_of is not None:
            message = f"{graph.label(node)}: its rows exist only while the job runs"
            raise RequestRefused(message, hint="look at its state, at a source, or at a sink downstream of it")
        if not isinstance(node, Write):
            steps.append(node)
        (node,) = node.inputs
    return node, steps[::-1]


def preview(rows: pa.Table, read: Read, steps: list[Node], graph: Graph) -> pa.Table:
    """Return what some nodes make of rows; a node that only Spark can run is refused."""
    if not steps:
        return rows
    made = _program(read, steps, graph)
    batches = list(made.start(0, ticks=False).batches(iter(rows.to_batches())))
    table = pa.Table.from_batches(batches) if batches else steps[-1].schema.arrow.empty_table()
    return table.drop_columns([name for name in (TIME, TICK) if name in table.column_names])


def _program(read: Read, steps: list[Node], graph: Graph) -> Program:
    try:
        return program(Prefix(read, chain=tuple(steps)), graph.names, rejects=True)
    except (NotNative, PipelineError) as error:
        message = f"{graph.label(steps[-1])} cannot be shown: a node up to it runs in Spark only ({error})"
        raise RequestRefused(message, hint="look at the source, or at a sink downstream of it") from error
