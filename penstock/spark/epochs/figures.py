"""What a run tells of itself while it goes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from penstock.contracts import Offsets
from penstock.errors import PenstockError
from penstock.plan.graph import Graph
from penstock.plan.nodes import Read
from penstock.report import Progress, Watermark
from penstock.spark.epochs.watermarks import watermark

if TYPE_CHECKING:
    from penstock.spark.epochs.idle import IdleSources
    from penstock.spark.epochs.writer import EpochWriter


class Figures:
    """Puts together what the queries of one run have done.

    An epoch is shown when Spark has told of it too, so that all figures are of the same one.
    """

    def __init__(self, graph: Graph, idle: IdleSources, offsets: Callable[[Read], Offsets]) -> None:
        self._graph, self._idle, self._offsets = graph, idle, offsets
        self._parts: list[tuple[EpochWriter, StreamingQuery]] = []
        self._shown = Progress()
        self._epochs: list[int] = []

    def add(self, writer: EpochWriter, query: StreamingQuery) -> None:
        """Count a query in."""
        self._parts.append((writer, query))

    def progress(self) -> Progress:
        """Return the newest epoch and the totals so far."""
        now = [replace(writer.progress) for writer, _ in self._parts]
        epochs = [one.epoch for one in now]
        if epochs != self._epochs or not self._epochs:
            # Without its JVM a run ends, and `wait` says so.
            with contextlib.suppress(Py4JError, ConnectionError):
                self._look(now, epochs)
        return self._shown

    def watermarks(self) -> tuple[Watermark, ...]:
        """Return the watermark of each query that has an event time."""
        made = (
            watermark(writer.query.name, writer.query.context, writer.records.newest(), self._idle.of(writer))
            for writer, _ in self._parts
        )
        return tuple(one for one in made if one.times)

    def _look(self, now: list[Progress], epochs: list[int]) -> None:
        queries = [query for _, query in self._parts]
        told = [query.lastProgress for query in queries]
        for query, last, epoch in zip(queries, told, epochs, strict=True):
            if (-1 if last is None else last["batchId"]) < epoch and query.isActive:
                return
        whole = _together(now)
        whole.watermarks = self.watermarks()
        whole.watermark = whole.watermarks[0].at if whole.watermarks else None
        whole.state_rows = sum(operator["numRowsTotal"] for one in told if one for operator in one["stateOperators"])
        whole.lag_rows = self._lag()
        self._shown, self._epochs = whole, epochs

    def _lag(self) -> int | None:
        try:
            behind = [read.source.behind(self._offsets(read)) for read in self._graph.reads]
        except PenstockError:
            # A source that does not answer is the query's to wait for or to fail at; a figure ends no job.
            return None
        known = [rows for rows in behind if rows is not None]
        return sum(known) if len(known) == len(behind) else None


def _together(parts: list[Progress]) -> Progress:
    """Add up queries; each counts the nodes that no other counts, and epochs go by the first."""
    whole, *others = parts or [Progress()]
    for other in others:
        for name in ("rows_in", "rows_out", "late", "rejected", "rows_in_per_s", "rows_out_per_s"):
            setattr(whole, name, getattr(whole, name) + getattr(other, name))
    known = [part.backpressure_ratio for part in parts if part.backpressure_ratio is not None]
    whole.backpressure_ratio = max(known) if len(known) == len(parts) and known else None
    return whole
