"""State and watermarks of single nodes in the newest epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.plan.graph import stateful_upstream
from penstock.plan.operators.node import Node
from penstock.plan.physical.queries import event_times_of, needs_watermark
from penstock.report import NodeProgress, Watermark
from penstock.spark.epochs.idle import IdleWatch
from penstock.spark.epochs.partition_watermarks import event_times
from penstock.spark.epochs.watermarks import event_time_of
from penstock.spark.lowering.compile import Query
from penstock.spark.tasks.totals import Totals


class QueryNodes:
    """The nodes of one query that have state, and those that use or declare an event time."""

    def __init__(self, query: Query) -> None:
        name = query.context.name
        # As Spark's operators: a node that several outputs use is one for each, and its state is stored for each.
        self._stateful = [node for write in query.outputs for node in stateful_upstream(write)]
        self._graph = query.context.graph
        self._times = event_times(query.context)
        self._timed = {
            name(node): [time for time in event_times_of(node) if time in self._times]
            for node in query.context.nodes
            if node in self._times or needs_watermark(node)
        }

    def add_state(
        self, nodes: Mapping[str, NodeProgress], operators: Sequence[Mapping[str, Any]], totals: Totals
    ) -> tuple[int, int]:
        """Add what is known of state to nodes; return the rows and bytes of all.

        For Spark's own operators this is what Spark reports. For operators in buckets Spark sees the manifests only, so
        it is what their tasks counted. If Spark has another number of operators than the plan, no node has a share.
        """
        known = [(operator["numRowsTotal"], operator["memoryUsedBytes"]) for operator in operators]
        if len(self._stateful) == len(operators):
            known = [self._in_buckets(node, totals) or found for node, found in zip(self._stateful, known, strict=True)]
            for node, (rows, size) in zip(self._stateful, known, strict=True):
                if (one := nodes.get(self._graph.name(node))) is not None:
                    one.state_rows, one.state_bytes = (one.state_rows or 0) + rows, (one.state_bytes or 0) + size
        return sum(rows for rows, _ in known), sum(size for _, size in known)

    def _in_buckets(self, node: Node, totals: Totals) -> tuple[int, int] | None:
        size = totals.state.get(self._graph.id(node)) if node.bucketed else None
        return None if size is None else (size["rows"], size["bytes"])

    def add_watermarks(self, nodes: Mapping[str, NodeProgress], totals: Totals, idle: IdleWatch | None) -> None:
        """Add watermarks: of a node the smallest of those of the event times that its rows come through."""
        known = {time: event_time_of(time, totals, idle) for time in self._times}
        for name, times in self._timed.items():
            if name in nodes and times:
                nodes[name].watermark = Watermark("", tuple(known[time] for time in times)).at
