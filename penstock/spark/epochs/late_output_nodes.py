"""Nodes downstream of a `late` side output: stateless ones, run as a batch over the few rows of one epoch."""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from penstock.contracts import Sink
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Side, Write
from penstock.plan.physical.determinism import nondeterministic_upstream
from penstock.spark.lowering.context import Context, column, with_key
from penstock.spark.lowering.fallible_expressions import checked
from penstock.spark.lowering.lower import lower


def apply_nodes(rows: pa.Table, side: Side, write: Write, context: Context) -> pa.Table:
    """Apply the nodes between a side output and its sink; without rows or nodes there is nothing to do."""
    steps: list[Node] = []
    node: Node = write.input
    while node != side:
        steps.append(node)
        (node,) = node.inputs
    if not rows.num_rows or not (steps or _adds(write.sink)):
        return rows
    batch = dataclasses.replace(context, streaming=False, clock=None)
    frame = context.spark.createDataFrame(rows)
    if any(nondeterministic_upstream(step) is step for step in steps):
        # In one partition and the same order, a replay finds the answers that it stored.
        frame = frame.coalesce(1)
    for step in reversed(steps):
        frame = lower(step, batch, frame)
    rows = checked(frame.select(*map(column, write.schema.names)), write, batch)
    return with_key(rows, write.sink).toArrow()


def add_keys(rows: pa.Table, sink: Sink, context: Context) -> pa.Table:
    """Add the key of each row, if the sink asks for one."""
    if not rows.num_rows or not _adds(sink):
        return rows
    return with_key(context.spark.createDataFrame(rows), sink).toArrow()


def _adds(sink: Sink) -> bool:
    return sink.row_key is not None or sink.row_removed is not None
