"""The epoch writer: runs an epoch once, hands each output to its sink, and commits them one after another.

Tasks call `prepare`; the driver calls `commit` with their tokens. After a crash Spark replays the epoch under the same
number: sinks whose ledger has it are left out, the others get it, and state is computed again either way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.contracts import REJECTED, Epoch, Sink
from penstock.errors import SparkFailed
from penstock.plan.graph import Graph, aside, upstream
from penstock.plan.joins import late_name
from penstock.plan.nodes import Read, Side, Write
from penstock.plan.replay import varying
from penstock.plan.row_expressions import fallible
from penstock.report import Progress
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.epochs.answers import AnswerStore
from penstock.spark.epochs.bounds import make_durable
from penstock.spark.epochs.dropped import DroppedRows
from penstock.spark.epochs.ledgers import Ledgers
from penstock.spark.epochs.outbox import Outbox, Sealed, Tables
from penstock.spark.epochs.partition_times import PartitionTimes
from penstock.spark.epochs.prepare import Made, Preparer, collected, epoch_of, failures
from penstock.spark.epochs.records import Records, Totals
from penstock.spark.epochs.scan import BOUNDS
from penstock.spark.epochs.spark_watermark import SparkWatermark
from penstock.spark.epochs.staging import PLANNING, Kind, Staging
from penstock.spark.epochs.tally import Counted, tally
from penstock.spark.epochs.watermarks import newest_times, spark_times
from penstock.spark.lowering.compile import Query
from penstock.spark.lowering.late import handled, keyed
from penstock.spark.lowering.wakeups import RingsOf


class StopRequested(Exception):
    """Raised before an epoch touches data, so that Spark does not take it for done."""


class EpochWriter:
    """Called by Spark once for every epoch of one query."""

    def __init__(self, query: Query, checkpoint: Checkpoint, observed: Callable[[], dict[str, int]]) -> None:
        self.query = query
        self.graph = query.context.graph
        self.staging: Staging = query.context.staging
        self.staging.clear(PLANNING)
        self.staging.forget_errors()
        self.lineage, self.confirm = checkpoint.identity.lineage, checkpoint.confirm
        self.records = Records(checkpoint.records(query.name), checkpoint.retention, checkpoint.ids)
        self.rings = RingsOf(checkpoint.folder, query.name)
        self.observed = observed
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self.number = -1
        self.bounds = ""
        self.read: dict[str, int] = {}
        self.progress = self._progress(-1, self.records.newest())
        self.on_epoch: Callable[[int, str], None] = lambda number, moment: None
        self.on_done: Callable[[], None] = lambda: None
        self.dropped: DroppedRows | None = None
        self.spark_watermark: SparkWatermark | None = None
        self.partition_times = PartitionTimes(query.name, query.context, checkpoint.messages)
        for sink, name in self._sinks():
            with failures(sink, name, "go on"):
                sink.continues(self.lineage, self._of(name, -1).sink)
        self.planned = checkpoint.query(query.name)
        self.ledgers = Ledgers(self.planned, checkpoint.root, self._sinks(), self._of)
        self.outbox = Outbox(self.staging.folder / "outbox") if any(map(varying, query.outputs)) else None
        varies = any(map(varying, (*query.outputs, *query.asides)))
        self.answers = AnswerStore(self.staging.folder / "answers") if varies else None
        self.behind_late = _behind_late(self.graph)
        outputs = tuple((write.sink, self.graph.own_name(write)) for write in query.outputs)
        nodes = tuple(map(self.graph.name, query.outputs))
        begun = self.staging.begun()
        self.preparer = Preparer(outputs, nodes, query.name, self.lineage, self.staging, begun, self.outbox)

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
        self.confirm()
        self.bounds = self._settle_bounds(number)
        self.staging.clear(number)
        outputs = [(sink, self._of(name, number)) for sink, name in self.preparer.outputs]
        skip = [self._has(sink, epoch) for sink, epoch in outputs]
        if any(sink.guarantee == "at_most_once" for sink, _ in self._sinks()):
            self.staging.begin(number)
        made, late, rejected = self._computed(frame, number)
        self.confirm()
        self.on_epoch(number, "prepared")
        for output, ((sink, epoch), done) in enumerate(zip(outputs, skip, strict=True)):
            self._end(sink, epoch, [one.token for one in made if one.output == output], done=done)
        rows = self._counted(made) | self._aside(number, late, rejected)
        self.rings.keep(self.staging, number)
        self.on_epoch(number, "committed")
        self._record(number, rows, time.monotonic() - begun)
        self.staging.clear(number)
        self.on_done()

    def _settle_bounds(self, number: int) -> str:
        """Make sure of what the epoch reads, before any task can commit it: known to all ledgers, and durable."""
        bounds = self.ledgers.planned(number) or ""
        self.ledgers.check(number, bounds)
        make_durable(self.planned, number)
        self.query.context.spark.sparkContext.setLocalProperty(BOUNDS, bounds)
        return bounds

    def _computed(self, frame: DataFrame, number: int) -> tuple[list[Made], Tables, Tables]:
        """Run the epoch's tasks, and return what they prepared and what they put aside."""
        if self.outbox is None:
            self._begin_answers(number, complete=True)
            made = self._collected(frame)
            return made, self._kept(number, "late"), self._kept(number, "rejected")
        self.outbox.clear(number)
        whole = self.outbox.sealed(number)
        # Of a try that was not complete nothing went out, so the next one may call again.
        self._begin_answers(number, complete=whole is not None)
        # State is computed again in any case, with the answers of the try that was sealed.
        shares = tuple(one.token for one in self._collected(frame))
        if whole is None:
            whole = Sealed(shares, self._kept(number, "late"), self._kept(number, "rejected"))
            self.outbox.seal(number, whole)
        self.on_epoch(number, "sealed")
        prepared = self.preparer.shares(self.query.context.spark, number, self.bounds, whole.shares)
        return prepared, whole.late, whole.rejected

    def _collected(self, frame: DataFrame) -> list[Made]:
        """Run the epoch's tasks; rows that Spark's state drops fail it before any sink has it."""
        if self.dropped is None:
            return collected(frame)
        self.dropped.before_last_stage()
        made = collected(frame)
        self.dropped.after_tasks()
        return made

    def _begin_answers(self, number: int, *, complete: bool) -> None:
        if self.answers is not None:
            self.answers.begin(number, complete=complete)

    def _end(self, sink: Sink, epoch: Epoch, tokens: list[Any], *, done: bool) -> None:
        """Show what was prepared; what the sink has already, or what it must not show twice, is given up."""
        with failures(sink, epoch.sink, "commit"):
            sink.abort(epoch, tokens) if done or self._over(sink, epoch) else sink.commit(epoch, tokens)

    def _has(self, sink: Sink, epoch: Epoch) -> bool:
        with failures(sink, epoch.sink, "read its ledger"):
            return sink.committed(epoch)

    def _counted(self, made: list[Made]) -> dict[str, int]:
        rows = {name: 0 for _, name in self.preparer.outputs}
        for one in made:
            rows[self.preparer.outputs[one.output][1]] += one.rows
        return rows

    def _aside(self, number: int, late: Tables, rejected: Tables) -> dict[str, int]:
        """Publish late and rejected rows in the same epoch."""
        rows: dict[str, int] = {}
        for write in self.query.asides:
            rows[self.graph.own_name(write)] = self._publish_late(write, late, number)
        if self.behind_late:
            # These have run only now.
            fresh = self._kept(number, "rejected")
            rejected = rejected | {node: tables for node, tables in fresh.items() if node in self.behind_late}
        sink = self.graph.rejected_to
        if sink is not None:
            mine = {node: tables for node, tables in rejected.items() if node in self.query.owned}
            bad = [self._with_source(node, table) for node, tables in mine.items() for table in tables]
            table = pa.concat_tables(bad) if bad else REJECTED.arrow.empty_table()
            rows[sink.name] = self._publish(sink, sink.name, keyed(table, sink, self.query.context), number)
        return rows

    def _with_source(self, name: str, rows: pa.Table) -> pa.Table:
        """Name the source of rows that a later node rejected, if all of them come from one."""
        node = next((node for node in self.graph.nodes if self.graph.name(node) == name), None)
        reads = [one for one in upstream(node) if isinstance(one, Read)] if node else []
        if len(reads) != 1:
            return rows
        column = rows.schema.get_field_index("source")
        named = pc.fill_null(rows.column(column), self.graph.name(reads[0]))
        return rows.set_column(column, rows.schema.field(column), named)

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
        tables = late.get(late_name(self.graph.name(side.input), side.output))
        table = pa.concat_tables(tables) if tables else side.schema.nullable().arrow.empty_table()
        table = handled(table, side, write, self.query.context)
        return self._publish(write.sink, self.graph.own_name(write), table, number)

    def _publish(self, sink: Sink, name: str, table: pa.Table, number: int) -> int:
        """Write a few rows from here, as the only partition of their sink."""
        epoch = self._of(name, number)
        if self._over(sink, epoch):
            return 0
        if table.num_rows and not self._has(sink, epoch):
            with failures(sink, name, "take the rows"):
                token = sink.prepare(epoch, 0, table.to_batches())
            self._end(sink, epoch, [token], done=False)
        return int(table.num_rows)

    def _over(self, sink: Sink, epoch: Epoch) -> bool:
        """Say whether an earlier run began the epoch, for a sink that must not show it twice."""
        return sink.guarantee == "at_most_once" and epoch.number <= self.preparer.begun

    def _sinks(self) -> Iterator[tuple[Sink, str]]:
        """Yield every sink that this query writes, with its name."""
        for write in (*self.query.outputs, *self.query.asides):
            yield write.sink, self.graph.own_name(write)
        if self.graph.rejected_to is not None:
            yield self.graph.rejected_to, self.graph.rejected_to.name

    def _of(self, sink: str, number: int) -> Epoch:
        return epoch_of(self.lineage, self.query.name, sink, number, self.bounds)

    def _record(self, number: int, rows: dict[str, int], seconds: float) -> None:
        mine, here = self.query.owned, set(self.query.context.nodes)
        nodes = [node for node in self.graph.nodes if node in here or self.graph.name(node) in mine]
        observed = self.observed()
        staged = self.staging.counts(number)
        self.read = {name: _rows_read(staged.get(name, {})) for name in map(self.graph.name, self.graph.reads)}
        # What comes to a node is counted on the way to it; what another query counts is not told again.
        counted = {name: count for name, count in tally(self.graph, nodes, staged, observed).items() if name in mine}
        ids = {name: self.graph.id(node) for node, name in self.graph.names.items()}
        by_id = {ids[name]: count for name, count in counted.items()}
        totals = self._advanced(self.records.before(number), number, rows, by_id, observed)
        self.records.write(number, totals)
        if self.spark_watermark is not None:
            self.spark_watermark.follow(spark_times(self.query.context, totals.newest))
        self._report(number, counted, rows, seconds, totals)

    def _advanced(
        self, before: Totals, number: int, rows: dict[str, int], counted: Counted, observed: Mapping[str, int]
    ) -> Totals:
        """Return the totals after an epoch; an event time follows the slowest of its partitions, and declared times."""
        newest = newest_times(self.query.context, observed)
        times = self.staging.times(number) if self.query.context.partitioned else {}
        advances = self.partition_times.advances(before, number, times)
        for key, advance in advances.items():
            if (reached := advance.reached) is not None:
                newest[key] = max(reached, newest.get(key, reached))
        return before.plus(rows, counted, newest, {key: advance.newest for key, advance in advances.items()})

    def _report(self, number: int, counted: Counted, rows: dict[str, int], seconds: float, totals: Totals) -> None:
        rows_in = sum(counted.get(self.graph.name(node), {}).get("rows_in", 0) for node in self.graph.reads)
        rows_out = sum(rows.get(self.graph.own_name(write), 0) for write in self.query.outputs)
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
            rows_in=sum(totals.counts.get(self.graph.id(node), {}).get("rows_in", 0) for node in self.graph.reads),
            rows_out=sum(totals.rows.get(self.graph.own_name(write), 0) for write in self.query.outputs),
            late=sum(node.get("late", 0) for node in total),
            rejected=sum(node.get("rejected", 0) for node in total),
        )


def _rows_read(counted: dict[str, int]) -> int:
    return counted.get("rows_in", 0) - counted.get("dropped", 0)


def _behind_late(graph: Graph) -> set[str]:
    """Return the names of the nodes that handle late rows on their way to a sink, and of sinks whose key can fail."""
    behind = (node for node in graph.nodes if aside(node) is not None and not isinstance(node, Side))
    return {graph.name(node) for node in behind if not isinstance(node, Write) or fallible(node)}
