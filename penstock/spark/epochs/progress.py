"""The progress of a run: its newest epoch, totals, lag and watermarks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from penstock.contracts import Offsets
from penstock.errors import PenstockError
from penstock.plan.graph import Graph
from penstock.plan.operators.stateless import Read
from penstock.report import Progress, Watermark
from penstock.spark.epochs.idle import IdleSources
from penstock.spark.epochs.latency import slowest
from penstock.spark.epochs.node_progress import QueryNodes
from penstock.spark.epochs.watermarks import watermark
from penstock.spark.epochs.writer import EpochWriter


class ProgressReporter:
    """Adds up the progress of the queries of one run.

    An epoch is reported when Spark has reported it too, so that all numbers are of the same one.
    """

    def __init__(self, graph: Graph, idle: IdleSources, offsets: Callable[[Read], Offsets]) -> None:
        self._graph, self._idle, self._offsets = graph, idle, offsets
        self._parts: list[tuple[EpochWriter, StreamingQuery]] = []
        self._nodes: list[QueryNodes] = []
        self._shown = Progress()
        self._epochs: list[int] = []

    def add(self, writer: EpochWriter, query: StreamingQuery) -> None:
        """Include a query."""
        self._parts.append((writer, query))
        self._nodes.append(QueryNodes(writer.query))

    def progress(self) -> Progress:
        """Return the newest epoch and the totals so far."""
        now = [replace(writer.progress) for writer, _ in self._parts]
        epochs = [one.epoch for one in now]
        if epochs != self._epochs or not self._epochs:
            # Without its JVM a run ends, and `wait` raises that.
            with contextlib.suppress(Py4JError, ConnectionError):
                self._refresh(now, epochs)
        return self._shown

    def watermarks(self) -> tuple[Watermark, ...]:
        """Return the watermark of each query that has an event time."""
        made = (
            watermark(writer.query.name, writer.query.context, writer.records.newest(), self._idle.of(writer))
            for writer, _ in self._parts
        )
        return tuple(one for one in made if one.times)

    def _refresh(self, now: list[Progress], epochs: list[int]) -> None:
        queries = [query for _, query in self._parts]
        spark = [query.lastProgress for query in queries]
        for query, last, epoch in zip(queries, spark, epochs, strict=True):
            if (-1 if last is None else last["batchId"]) < epoch and query.isActive:
                return
        whole = _together(now)
        # The writers keep theirs, to which state must not be added twice.
        whole.nodes = {name: replace(node) for name, node in whole.nodes.items()}
        whole.watermarks = self.watermarks()
        whole.watermark = whole.watermarks[0].at if whole.watermarks else None
        whole.state_rows = whole.state_bytes = 0
        for (writer, _), nodes, reported in zip(self._parts, self._nodes, spark, strict=True):
            operators = reported["stateOperators"] if reported else []
            rows, size = nodes.add_state(whole.nodes, operators, writer.records.newest())
            whole.state_rows, whole.state_bytes = whole.state_rows + rows, whole.state_bytes + size
            nodes.add_watermarks(whole.nodes, writer.records.newest(), self._idle.of(writer))
        whole.phases = _phases(spark)
        whole.lag_rows, whole.partition_lags = self._lag(has_read=whole.rows_in > 0)
        self._shown, self._epochs = whole, epochs

    def _lag(self, *, has_read: bool) -> tuple[int | None, dict[str, dict[str, int]]]:
        """Return the lag of all sources, None if one does not know it, and of those with partitions by partition.

        `has_read`: the checkpoint has epochs. One that was just restored does not know its offsets until the planner
        has written them: all that a source has would be taken for its lag.
        """
        behind: list[int | None] = []
        by_source: dict[str, dict[str, int]] = {}
        try:
            for read in self._graph.reads:
                offsets = self._offsets(read)
                if has_read and not offsets:
                    return None, {}
                lags = read.source.partition_lags(offsets)
                behind.append(read.source.lag(offsets) if lags is None else sum(lags.values()))
                if lags is not None:
                    by_source[self._graph.name(read)] = dict(lags)
        except PenstockError:
            # A source that does not answer makes the query wait or fail; a metric must not.
            return None, {}
        known = [rows for rows in behind if rows is not None]
        return sum(known) if len(known) == len(behind) else None, by_source


def _together(parts: list[Progress]) -> Progress:
    """Add up queries; each counts the nodes that no other counts, and the epoch is that of the first."""
    whole, *others = parts or [Progress()]
    for other in others:
        for name in ("rows_in", "rows_out", "late", "rejected", "filtered", "rows_in_per_s", "rows_out_per_s"):
            setattr(whole, name, getattr(whole, name) + getattr(other, name))
        whole.nodes = whole.nodes | other.nodes
        whole.latency_ms = slowest(whole.latency_ms, other.latency_ms)
    known = [part.backpressure_ratio for part in parts if part.backpressure_ratio is not None]
    whole.backpressure_ratio = max(known) if len(known) == len(parts) and known else None
    return whole


def _phases(reports: Sequence[Any]) -> dict[str, int]:
    """Add up the durations of the queries' newest epochs."""
    phases: dict[str, int] = {}
    for one in reports:
        for name, duration in (one["durationMs"] if one else {}).items():
            phases[name] = phases.get(name, 0) + int(duration)
    return phases
