"""The epoch writer: runs an epoch once, hands each output to its sink, and commits them one after another.

Tasks call `prepare`; the driver calls `commit` with their tokens. After a crash Spark replays the epoch under the same
number: sinks whose ledger has it are left out, the others get it, and state is computed again either way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.contracts import REJECTED, Epoch, Sink
from penstock.errors import SparkFailed
from penstock.observe.thread_labels import current_label, labelled
from penstock.plan.graph import Graph, late_output_of, reads_in, upstream
from penstock.plan.operators.joins import late_name
from penstock.plan.operators.row_expressions import fallible_expressions
from penstock.plan.operators.stateless import Write
from penstock.plan.physical.determinism import nondeterministic_upstream
from penstock.report import Progress
from penstock.spark.epochs.durable_epochs import sync_commit, sync_offsets
from penstock.spark.epochs.epoch_names import EpochNames, first_by_input
from penstock.spark.epochs.late_output_nodes import add_keys, apply_nodes
from penstock.spark.epochs.latency import latency_ms
from penstock.spark.epochs.ledgers import Ledgers
from penstock.spark.epochs.partition_watermarks import PartitionTimes, grown_state, newest_times, spark_times
from penstock.spark.epochs.result_staging import ResultStaging, SealedEpoch, Tables
from penstock.spark.epochs.row_accounting import RowCounts, account_rows, node_totals
from penstock.spark.epochs.running_query import DroppedRows, SparkWatermark
from penstock.spark.epochs.sink_tasks import Prepared, Preparer, failures, packed_outputs, run_tasks
from penstock.spark.epochs.timers import PendingTimers
from penstock.spark.lowering.compile import Query
from penstock.spark.lowering.job_storage import JobStorage
from penstock.spark.lowering.kept_splits import refuse_other_splits
from penstock.spark.tasks.staging import PLANNING, STARTED, Kind, Staging
from penstock.spark.tasks.stored_results import AnswerStore
from penstock.spark.tasks.task_context import BOUNDS
from penstock.spark.tasks.totals import Totals, TotalsLog

_log = logging.getLogger(__name__)


class StopRequested(Exception):
    """Raised before an epoch touches data, so that Spark does not commit it."""


class EpochWriter:
    """Called by Spark once for every epoch of one query."""

    def __init__(self, query: Query, checkpoint: JobStorage, observed: Callable[[], dict[str, int]]) -> None:
        self.query = query
        self.graph = query.context.graph
        self.staging: Staging = query.context.staging
        self.staging.clear(PLANNING)
        self.staging.forget_errors()
        self.lineage, self.confirm = checkpoint.lineage, checkpoint.confirm
        self.epochs = EpochNames(self.lineage, query.name)
        self.records = TotalsLog(checkpoint.records(query.name), checkpoint.retention, checkpoint.ids)
        self.timers = PendingTimers(checkpoint.folder, query.name)
        self.observed = observed
        self.stopping = threading.Event()
        # Spark calls it in a thread of its own.
        self._job = current_label()
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
                sink.bind_lineage(self.lineage, self._of(name, -1).sink)
        self.planned, started = checkpoint.query(query.name), self.staging.last_started()
        self.ledgers = Ledgers(self.planned, checkpoint.root, self._sinks(), self.epochs, started)
        recorded = self.records.newest()
        if started < 0 and recorded.starts_recorded:
            started = self._started_at_most()
        self.records_starts = bool(self.ledgers.asked) or any(_once_at_most(sink) for sink, _ in self._sinks())
        if self.ledgers.unasked:
            first = first_by_input(self.staging, recorded.first_by_input, self.ledgers.newest)
            self.epochs = replace(self.epochs, by_input=frozenset(self.ledgers.unasked), first=first)
        self.results = (
            ResultStaging(self.staging.folder / "outbox")
            if any(map(nondeterministic_upstream, query.outputs))
            else None
        )
        varies = any(map(nondeterministic_upstream, (*query.outputs, *query.asides)))
        self.answers = AnswerStore(self.staging.folder / "answers") if varies else None
        self.after_late = _after_late(self.graph)
        outputs = tuple((write.sink, self.graph.own_name(write)) for write in query.outputs)
        nodes = tuple(map(self.graph.name, query.outputs))
        packed = packed_outputs(query)
        self.preparer = Preparer(outputs, nodes, self.epochs, self.staging, started, self.results, packed)

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Run one epoch."""
        if self.stopping.is_set():
            raise StopRequested
        self.number = number
        try:
            with labelled(self._job):
                self._epoch(frame, number)
        except BaseException as error:
            self.error = error
            raise

    def _epoch(self, frame: DataFrame, number: int) -> None:
        start = time.monotonic()
        self.confirm()
        self.bounds = self._settle_bounds(number)
        self.staging.clear(number)
        outputs = [(sink, self._of(name, number)) for sink, name in self.preparer.outputs]
        skip = [self._has(sink, epoch) for sink, epoch in outputs]
        self._refuse_lost_seal(number)
        if self.records_starts:
            self.staging.mark_started(number)
        if self.answers is not None:
            sync_commit(self.planned, number - 1)
        prepared, late, rejected = self._computed(frame, number)
        self.confirm()
        self.on_epoch(number, "prepared")
        for output, ((sink, epoch), done) in enumerate(zip(outputs, skip, strict=True)):
            self._end(sink, epoch, [one.token for one in prepared if one.output == output], done=done)
        rows = self._counted(prepared) | self._publish_side_outputs(number, late, rejected)
        self.timers.save(self.staging, number)
        self.on_epoch(number, "committed")
        self._record(number, rows, time.monotonic() - start)
        self.staging.clear(number)
        self.on_done()

    def _settle_bounds(self, number: int) -> str:
        """Fix what the epoch reads, before any task can commit it: it agrees with all ledgers, and is durable."""
        if number <= self.ledgers.newest:
            refuse_other_splits(self.planned, number, keeps=self.query.keeps_splits)
        bounds = self.ledgers.planned(number) or ""
        self.ledgers.start(number, bounds)
        sync_offsets(self.planned, number)
        self.query.context.spark.sparkContext.setLocalProperty(BOUNDS, bounds)
        return bounds

    def _started_at_most(self) -> int:
        """Return which epoch may have been started last, where the file that says so is lost."""
        newest = self.ledgers.newest
        if self.ledgers.is_open(newest):
            lost = f"{self.staging.folder}/{STARTED} is missing: epoch {newest} is taken for started"
            _log.warning("%s, so a sink that gets rows at most once may lack some of it", lost)
        return newest

    def _refuse_lost_seal(self, number: int) -> None:
        """Raise if an epoch that was published has no seal: state and the other sinks would get other rows.

        An earlier plan may have had no seals. The record of an epoch is written after all sinks have it.
        """
        if self.results is None or number > self.ledgers.newest or self.ledgers.of_other_plan(number):
            return
        if self.results.sealed(number) is None and (self.records.has(number) or self._is_in_a_sink(number)):
            raise self.results.lost_seal(number)

    def _is_in_a_sink(self, number: int) -> bool:
        return any(
            self.ledgers.reached(name, number) or self._has(sink, self._of(name, number))
            for sink, name in self._sinks()
        )

    def _computed(self, frame: DataFrame, number: int) -> tuple[list[Prepared], Tables, Tables]:
        """Run the epoch's tasks, and return what they prepared and staged."""
        if self.results is None:
            self._begin_answers(number, complete=True)
            prepared = self._collected(frame)
            return prepared, self._staged(number, "late"), self._staged(number, "rejected")
        self.results.clear(number)
        whole = self.results.sealed(number)
        # Of an attempt that was not complete nothing was published, so the next one may call functions again.
        if whole is not None and self.answers is not None:
            self.answers.require(number, whole.answers)
        self._begin_answers(number, complete=whole is not None)
        # State is computed again in any case, with the answers of the attempt that was sealed.
        staged = tuple(one.token for one in self._collected(frame))
        if whole is None:
            answers = self.answers.names(number) if self.answers is not None else ()
            whole = SealedEpoch(staged, self._staged(number, "late"), self._staged(number, "rejected"), answers)
            self.results.seal(number, whole)
        self.on_epoch(number, "sealed")
        prepared = self.preparer.prepare_staged(self.query.context.spark, number, self.bounds, whole.partitions)
        return prepared, whole.late, whole.rejected

    def _collected(self, frame: DataFrame) -> list[Prepared]:
        """Run the epoch's tasks; rows that Spark's state drops fail it before any sink has it."""
        if self.dropped is None:
            return run_tasks(frame)
        self.dropped.before_last_stage()
        prepared = run_tasks(frame)
        self.dropped.after_tasks()
        return prepared

    def _begin_answers(self, number: int, *, complete: bool) -> None:
        if self.answers is not None:
            self.answers.begin(number, complete=complete)

    def _end(self, sink: Sink, epoch: Epoch, tokens: list[Any], *, done: bool) -> None:
        """Commit what was prepared; abort what the sink has already, or must not commit twice."""
        with failures(sink, epoch.sink, "commit"):
            sink.abort(epoch, tokens) if done or self._over(sink, epoch) else sink.commit(epoch, tokens)

    def _has(self, sink: Sink, epoch: Epoch) -> bool:
        with failures(sink, epoch.sink, "read its ledger"):
            return sink.committed(epoch)

    def _counted(self, prepared: list[Prepared]) -> dict[str, int]:
        rows = {name: 0 for _, name in self.preparer.outputs}
        for one in prepared:
            rows[self.preparer.outputs[one.output][1]] += one.rows
        return rows

    def _publish_side_outputs(self, number: int, late: Tables, rejected: Tables) -> dict[str, int]:
        """Publish late and rejected rows in the same epoch."""
        rows: dict[str, int] = {}
        for write in self.query.asides:
            rows[self.graph.own_name(write)] = self._publish_late(write, late, number)
        if self.after_late:
            # These have run only now.
            fresh = self._staged(number, "rejected")
            rejected = rejected | {node: tables for node, tables in fresh.items() if node in self.after_late}
        sink = self.graph.rejected_to
        if sink is not None:
            mine = {node: tables for node, tables in rejected.items() if node in self.query.owned}
            bad = [self._with_source(node, table) for node, tables in mine.items() for table in tables]
            table = pa.concat_tables(bad) if bad else REJECTED.arrow.empty_table()
            rows[sink.name] = self._publish(sink, sink.name, add_keys(table, sink, self.query.context), number)
        return rows

    def _with_source(self, name: str, rows: pa.Table) -> pa.Table:
        """Name the source of rows that a later node rejected, if all of them come from one."""
        node = next((node for node in self.graph.nodes if self.graph.name(node) == name), None)
        reads = reads_in(upstream(node)) if node else ()
        if len(reads) != 1:
            return rows
        column = rows.schema.get_field_index("source")
        named = pc.fill_null(rows.column(column), self.graph.name(reads[0]))
        return rows.set_column(column, rows.schema.field(column), named)

    def _staged(self, number: int, kind: Kind) -> Tables:
        """Return what tasks staged, by node, and make sure that it is all that they counted."""
        staged: Tables = {}
        for node, table in self.staging.rows(number, kind):
            staged.setdefault(node, []).append(table)
        for node, counted in self.staging.counts(number).items():
            there = sum(table.num_rows for table in staged.get(node, []))
            if counted.get(kind, 0) != there:
                message = f"epoch {number} counted {counted.get(kind, 0)} {kind} rows and staged {there}"
                raise SparkFailed(
                    message, node=node, hint="no row may vanish, so the epoch is not committed: report this"
                )
        return staged

    def _publish_late(self, write: Write, late: Tables, number: int) -> int:
        side = late_output_of(write)
        assert side is not None
        tables = late.get(late_name(self.graph.name(side.input), side.output))
        table = pa.concat_tables(tables) if tables else side.schema.nullable().arrow.empty_table()
        table = apply_nodes(table, side, write, self.query.context)
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
        """Return whether an earlier run started the epoch, for a sink that must not commit it twice."""
        return _once_at_most(sink) and epoch.number <= self.preparer.started

    def _sinks(self) -> Iterator[tuple[Sink, str]]:
        """Yield every sink that this query writes, with its name."""
        for write in (*self.query.outputs, *self.query.asides):
            yield write.sink, self.graph.own_name(write)
        if self.graph.rejected_to is not None:
            yield self.graph.rejected_to, self.graph.rejected_to.name

    def _of(self, sink: str, number: int) -> Epoch:
        return self.epochs.of(sink, number, self.bounds)

    def _record(self, number: int, rows: dict[str, int], seconds: float) -> None:
        mine, here = self.query.owned, set(self.query.context.nodes)
        nodes = [node for node in self.graph.nodes if node in here or self.graph.name(node) in mine]
        observed = self.observed()
        staged = self.staging.counts(number)
        self.read = {name: _rows_read(staged.get(name, {})) for name in map(self.graph.name, self.graph.reads)}
        # The rows into a node are counted upstream of it; what another query counts is not counted again.
        counted = {
            name: count for name, count in account_rows(self.graph, nodes, staged, observed).items() if name in mine
        }
        ids = {name: self.graph.id(node) for node, name in self.graph.names.items()}
        by_id = {ids[name]: count for name, count in counted.items()}
        totals = self._advanced(self.records.before(number), number, rows, by_id, observed)
        self.records.write(number, totals)
        if self.spark_watermark is not None:
            self.spark_watermark.follow(spark_times(self.query.context, totals.newest))
        self._report(number, counted, rows, seconds, totals)
        self.progress.latency_ms = latency_ms(staged, time.time() * 1000)

    def _advanced(
        self, before: Totals, number: int, rows: dict[str, int], counted: RowCounts, observed: Mapping[str, int]
    ) -> Totals:
        """Return the totals after an epoch; an event time follows the slowest of its partitions, and declared times."""
        newest = newest_times(self.query.context, observed)
        times = self.staging.times(number) if self.query.context.partitioned else {}
        advances = self.partition_times.advances(before, number, times)
        for key, advance in advances.items():
            if (reached := advance.reached) is not None:
                newest[key] = max(reached, newest.get(key, reached))
        partitions = {key: advance.newest for key, advance in advances.items()}
        totals = before.plus(rows, counted, newest, partitions, grown_state(self.query.context, observed))
        first = self.epochs.first if self.epochs.by_input else totals.first_by_input
        starts = self.records_starts or totals.starts_recorded
        return replace(totals, first_by_input=first, starts_recorded=starts)

    def _report(self, number: int, counted: RowCounts, rows: dict[str, int], seconds: float, totals: Totals) -> None:
        rows_in = sum(counted.get(self.graph.name(node), {}).get("rows_in", 0) for node in self.graph.reads)
        rows_out = sum(rows.get(self.graph.own_name(write), 0) for write in self.query.outputs)
        progress = self._progress(number, totals)
        progress.rows_in_per_s = rows_in / seconds
        progress.rows_out_per_s = rows_out / seconds
        progress.epoch_ms = round(seconds * 1000)
        for name, node in progress.nodes.items():
            node.rows_in_per_s = counted.get(name, {}).get("rows_in", 0) / seconds
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
            filtered=sum(node.get("filtered", 0) for node in total),
            nodes=node_totals(totals, self.graph),
        )


def _once_at_most(sink: Sink) -> bool:
    return sink.guarantee == "at_most_once"


def _rows_read(counted: dict[str, int]) -> int:
    return counted.get("rows_in", 0) - counted.get("dropped", 0)


def _after_late(graph: Graph) -> set[str]:
    """Return the names of the nodes that handle late rows on their way to a sink, and of sinks whose key can fail."""
    nodes = (node for node in graph.nodes if late_output_of(node) is not None and node.side_of is None)
    return {graph.name(node) for node in nodes if node not in graph.writes or fallible_expressions(node)}
