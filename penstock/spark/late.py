"""What follows a `late` side output: stateless nodes over the few rows of one epoch, as a batch."""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from penstock.plan.node import Node
from penstock.plan.nodes import Side, Write
from penstock.spark.context import Context, column
from penstock.spark.lower import lower


def handled(rows: pa.Table, side: Side, write: Write, context: Context) -> pa.Table:
    """Apply the nodes between a side output and its sink; without rows or nodes there is nothing to do."""
    steps: list[Node] = []
    node: Node = write.input
    while node is not side:
        steps.append(node)
        (node,) = node.inputs
    if not steps or not rows.num_rows:
        return rows
    batch = dataclasses.replace(context, streaming=False, clock=None)
    frame = context.spark.createDataFrame(rows)
    for step in reversed(steps):
        frame = lower(step, batch, frame)
    return frame.select(*map(column, write.schema.names)).toArrow()
