"""The epoch writer: runs an epoch once, hands each output to its sink, and commits them one after another.

Tasks call `prepare`; the driver calls `commit` with their tokens. After a crash Spark replays the epoch under the same
number: sinks whose ledger has it are left out, the others get it, and state is computed again either way.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.contracts import REJECTED, Epoch, Sink
from penstock.errors import PenstockError, SinkFailed, SparkFailed
from penstock.plan.graph import aside
from penstock.plan.nodes import Write
from penstock.report import Progress
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.compile import Query
from penstock.spark.late import handled, keyed
from penstock.spark.prepare import epoch_of
from penstock.spark.records import Records, Totals
from penstock.spark.staging import PLANNING, Kind, Staging
from penstock.spark.tally import Counted, tally

Tables = dict[str, list[pa.Table]]


class StopRequested(Exception):
    """Raised before an epoch touches data, so that Spark does not take it for done."""


class EpochWriter:
    """Called by Spark once for every epoch of one query."""

    def __init__(self, query: Query, checkpoint: Checkpoint, observed: Callable[[], dict[str, int]]) -> None:
        self.query = query
        self.graph = query.context.graph
        self.staging: Staging = query.context.staging
        self.staging.clear(PLANNING)
        self.lineage = checkpoint.identity.lineage
        self.records = Records(checkpoint.folder / "epochs" / query.name)
        self.observed = observed
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self.number = -1
        self.progress = self._progress(-1, self.records.newest())
        self.on_epoch: Callable[[int, str], None] = lambda number, moment: None
        self.on_done: Callable[[], None] = lambda: None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Run one epoch."""
        if self.stopping.is_set():
            raise StopRequested
        self.number = number
        try:
            self._epoch(frame, number)
        except BaseException as error:
            self.error = error
            raise

    def _epoch(self, frame: DataFrame, number: int) -> None:
        begun = time.monotonic()
        self.staging.clear(number)
        epochs = [self._of(self.graph.name(write), number) for write in self.query.outputs]
        skip = [write.sink.committed(epoch) for write, epoch in zip(self.query.outputs, epochs, strict=True)]
        rows, tokens = self._prepared(frame)
        late, rejected = self._kept(number, "late"), self._kept(number, "rejected")
        self.on_epoch(number, "prepared")
        for write, epoch, done, mine in zip(self.query.outputs, epochs, skip, tokens, strict=True):
            if done:
                write.sink.abort(epoch, mine)
            else:
                _commit(write.sink, epoch, mine)
        rows |= self._aside(number, late, rejected)
        self.on_epoch(number, "committed")
        self._record(number, rows, time.monotonic() - begun)
        self.staging.clear(number)
        self.on_done()

    def _prepared(self, frame: DataFrame) -> tuple[dict[str, int], list[list[Any]]]:
        """Run the epoch's tasks, and return the rows and tokens of each output."""
        names = [self.graph.name(write) for write in self.query.outputs]
        rows = dict.fromkeys(names, 0)
        tokens: list[list[Any]] = [[] for _ in names]
        for output, count, token in frame.collect():
            rows[names[output]] += count
            tokens[output].append(pickle.loads(token))
        return rows, tokens

    def _aside(self, number: int, late: Tables, rejected: Tables) -> dict[str, int]:
        """Publish late and rejected rows in the same epoch."""
        rows: dict[str, int] = {}
        for write in self.query.asides:
            rows[self.graph.name(write)] = self._publish_late(write, late, number)
        sink = self.graph.rejected_to
        if sink is not None:
            bad = [table for node, tables in rejected.items() if node in self.query.owned for table in tables]
            table = pa.concat_tables(bad) if bad else REJECTED.arrow.empty_table()
            rows[sink.name] = self._publish(sink, sink.name, keyed(table, sink, self.query.context), number)
        return rows

    def _kept(self, number: int, kind: Kind) -> Tables:
        """Return what tasks put aside, by node, and make sure that it is all that they counted."""
        kept: Tables = {}
        for node, table in self.staging.rows(number, kind):
            kept.setdefault(node, []).append(table)
        for node, counted in self.staging.counts(number).items():
            there = sum(table.num_rows for table in kept.get(node, []))
            if counted.get(kind, 0) != there:
                message = f"epoch {number} counted {counted.get(kind, 0)} {kind} rows and kept {there}"
                raise SparkFailed(
                    message, node=node, hint="no row may vanish, so the epoch is not committed: report this"
                )
        return kept

    def _publish_late(self, write: Write, late: Tables, number: int) -> int:
        side = aside(write)
        assert side is not None
        tables = late.get(self.graph.name(side.input))
        table = pa.concat_tables(tables) if tables else side.schema.nullable().arrow.empty_table()
        table = handled(table, side, write, self.query.context)
        return self._publish(write.sink, self.graph.name(write), table, number)

    def _publish(self, sink: Sink, name: str, table: pa.Table, number: int) -> int:
        epoch = self._of(name, number)
        if table.num_rows and not sink.committed(epoch):
            _commit(sink, epoch, [sink.prepare(epoch, 0, table.to_batches())])
        return int(table.num_rows)

    def _of(self, sink: str, number: int) -> Epoch:
        return epoch_of(self.lineage, self.query.name, sink, number)

    def _record(self, number: int, rows: dict[str, int], seconds: float) -> None:
        nodes = [node for node in self.graph.nodes if self.graph.name(node) in self.query.owned]
        counted: Counted = tally(self.graph, nodes, self.staging.counts(number), self.observed())
        totals = self.records.before(number).plus(rows, counted)
        self.records.write(number, totals)
        self._report(number, counted, rows, seconds, totals)

    def _report(self, number: int, counted: Counted, rows: dict[str, int], seconds: float, totals: Totals) -> None:
        rows_in = sum(counted.get(self.graph.name(node), {}).get("rows_in", 0) for node in self.graph.reads)
        rows_out = sum(rows.get(self.graph.name(write), 0) for write in self.query.outputs)
        progress = self._progress(number, totals)
        progress.rows_in_per_s = rows_in / seconds
        progress.rows_out_per_s = rows_out / seconds
        progress.epoch_ms = round(seconds * 1000)
        self.progress = progress

    def _progress(self, number: int, totals: Totals) -> Progress:
        """Return the totals; before the first epoch they are those of earlier runs."""
        total = totals.counts.values()
        return Progress(
            epoch=number,
            epochs=totals.epochs,
            rows_in=sum(totals.counts.get(self.graph.name(node), {}).get("rows_in", 0) for node in self.graph.reads),
            rows_out=sum(totals.rows.get(self.graph.name(write), 0) for write in self.query.outputs),
            late=sum(node.get("late", 0) for node in total),
            rejected=sum(node.get("rejected", 0) for node in total),
        )


def _commit(sink: Sink, epoch: Epoch, tokens: list[Any]) -> None:
    try:
        sink.commit(epoch, tokens)
    except PenstockError as error:
        error.node = error.node or f"write '{epoch.sink}'"
        raise
    except Exception as error:
        message = f"{type(sink).__name__} could not commit: {type(error).__name__}: {error}"
        raise SinkFailed(message, node=f"write '{epoch.sink}'", transient=True) from error
