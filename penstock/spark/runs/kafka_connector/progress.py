"""The progress and totals of a run, from what Spark reports of the batches of its queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from penstock.plan.graph import Graph, reads_in
from penstock.plan.operators.node import Node
from penstock.report import Progress
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.epochs.row_accounting import RowCounts, account_rows, node_totals
from penstock.spark.runs.kafka_connector.queries import ConnectorQuery
from penstock.spark.tasks.totals import Totals, TotalsLog


class QueryProgress:
    """Adds up the batches of one query; `owned` are the nodes that no other query counts."""

    def __init__(self, query: ConnectorQuery, owned: list[Node], graph: Graph, checkpoint: Checkpoint) -> None:
        self.query, self.owned, self.graph = query, owned, graph
        self.records = TotalsLog(checkpoint.records(query.name), ids=checkpoint.ids)
        self.batch = -1
        self.reached: dict[str, dict[str, Any]] = {}
        self._totals: Totals | None = None
        self.progress = self._progress(self.records.newest())

    def add(self, reports: Sequence[str]) -> None:
        """Add Spark's reports of batches that are done, in their order."""
        for text in reports:
            batch = json.loads(text)
            if self._totals is None:
                self._totals = self._before(batch["batchId"])
            self.batch = batch["batchId"]
            self.reached = {topic: ends for one in batch["sources"] for topic, ends in (one["endOffset"] or {}).items()}
            out = max(0, batch["sink"]["numOutputRows"])
            counted = self._counted(batch)
            self._totals = self._totals.plus({self.query.output: out}, counted)
            self.progress = self._progress(self._totals)
            self._measure(batch, out, counted)
        if reports and self._totals is not None:
            self.records.write(self.batch, self._totals)

    def _before(self, batch: int) -> Totals:
        """Return the totals before a batch; of batches that are repeated without an entry, all that there are."""
        found = self.records.before(batch)
        return found if found.epochs else self.records.newest()

    def _counted(self, batch: dict[str, Any]) -> RowCounts:
        metrics = batch.get("observedMetrics", {})
        staged: RowCounts = {}
        for read in self.query.reads:
            seen = metrics.get(f"in:{self.graph.name(read)}") or {}
            staged[self.graph.name(read)] = {"rows_in": seen.get("rows", 0), "rejected": seen.get("rejected", 0)}
        if self.query.stateful is not None:
            late = sum(operator["numRowsDroppedByWatermark"] for operator in batch["stateOperators"])
            staged[self.graph.name(self.query.stateful)] = {"late": late}
        observed = {name: seen["rows"] for name, seen in metrics.items() if name.startswith("out:")}
        counts = account_rows(self.graph, list(self.query.nodes), staged, observed)
        return {self.graph.id(node): counts[self.graph.name(node)] for node in self.owned}

    def _measure(self, batch: dict[str, Any], out: int, counted: RowCounts) -> None:
        seconds = max(batch["batchDuration"], 1) / 1000
        self.progress.epoch, self.progress.epoch_ms = batch["batchId"], batch["batchDuration"]
        self.progress.rows_in_per_s, self.progress.rows_out_per_s = batch["numInputRows"] / seconds, out / seconds
        self.progress.state_rows = sum(operator["numRowsTotal"] for operator in batch["stateOperators"])
        self.progress.state_bytes = sum(operator["memoryUsedBytes"] for operator in batch["stateOperators"])
        self.progress.phases = {name: int(duration) for name, duration in batch.get("durationMs", {}).items()}
        watermark = batch.get("eventTime", {}).get("watermark")
        if watermark and not watermark.startswith("1970-01-01T00:00:00"):
            lateness = timedelta(microseconds=self.query.lateness_us)
            self.progress.watermark = datetime.fromisoformat(watermark) + lateness
        self._measure_nodes(counted, seconds)

    def _measure_nodes(self, counted: RowCounts, seconds: float) -> None:
        for node in self.owned:
            measured = self.progress.nodes.get(self.graph.name(node))
            if measured is None:
                continue
            measured.rows_in_per_s = counted.get(self.graph.id(node), {}).get("rows_in", 0) / seconds
            if node is self.query.stateful:
                measured.state_rows, measured.state_bytes = self.progress.state_rows, self.progress.state_bytes
                measured.watermark = self.progress.watermark

    def _progress(self, totals: Totals) -> Progress:
        counts = totals.counts.values()
        reads = [self.graph.id(read) for read in reads_in(self.owned)]
        return Progress(
            epochs=totals.epochs,
            rows_in=sum(totals.counts.get(name, {}).get("rows_in", 0) for name in reads),
            rows_out=totals.rows.get(self.query.output, 0),
            late=sum(node.get("late", 0) for node in counts),
            filtered=sum(node.get("filtered", 0) for node in counts),
            rejected=sum(node.get("rejected", 0) for node in counts),
            nodes=node_totals(totals, self.graph),
        )
