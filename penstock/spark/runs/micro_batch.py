"""The micro-batch run: one pipeline in epochs on Spark, from its checkpoint until it is stopped, drained or ended."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.contracts import REJECTED, Offsets
from penstock.durations import micros
from penstock.errors import CheckpointDamaged, PenstockError, SparkFailed
from penstock.plan.graph import Graph, stateful_upstream
from penstock.plan.operators.stateless import Read
from penstock.plan.physical.overload import Overload
from penstock.plan.physical.pace import FAST_ROWS, Pace
from penstock.report import Progress, Report
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.compatibility import read_sink_partitions, write_sink_partitions
from penstock.spark.checkpoints.layout import build_layout, check_positions, query_layout, read_layout, write_layout
from penstock.spark.checkpoints.migration import migrate
from penstock.spark.checkpoints.physical_plan import write_plan
from penstock.spark.checkpoints.preflight import check_run_kind, preflight
from penstock.spark.checkpoints.repair import request_full_check
from penstock.spark.epochs.backpressure import Backpressure, rate_limits
from penstock.spark.epochs.idle import IdleSources, restore_declared_times
from penstock.spark.epochs.input_warnings import InputWarnings, TableWarnings
from penstock.spark.epochs.journal_compaction import JournalCompaction, journal_readers
from penstock.spark.epochs.partition_watermarks import read_metrics
from penstock.spark.epochs.progress import ProgressReporter
from penstock.spark.epochs.row_accounting import build_report
from penstock.spark.epochs.running_query import DroppedRows, RunningQuery, SparkWatermark
from penstock.spark.epochs.spark_errors import is_full, translate
from penstock.spark.epochs.timers import TimerService
from penstock.spark.epochs.writer import EpochWriter, StopRequested
from penstock.spark.lowering.compile import Query, compile_pipeline
from penstock.spark.runs.connector_checks import check_connectors, warn_of_earlier_rows
from penstock.spark.runs.runner import Runner, Until
from penstock.spark.session.code_shipping import ship_archive, ship_code
from penstock.spark.session.object_stores import configure_store, store_settings, with_store
from penstock.spark.session.spark_session import query_name, query_settings, session
from penstock.spark.tasks.control_journal import MAX_WATERMARK, MIN_WATERMARK
from penstock.spark.tasks.internal_columns import internal_columns
from penstock.spark.tasks.source_readers import check_reader, source_reader
from penstock.spark.tasks.spark_types import schema_of
from penstock.storage.folders import Folder

POLL_SECONDS = 0.05


class MicroBatchRun(Runner):
    """A pipeline that runs in micro-batches; made by `Pipeline.start`."""

    def __init__(
        self,
        name: str,
        graph: Graph,
        checkpoint: str | Path | Folder,
        settings: Settings,
        until: Until,
        pace: Pace = "throughput",
        allow_drop: Sequence[str] = (),
        overload: Overload = "block",
        token: int | None = None,
    ) -> None:
        is_limited = settings.epoch_rows is not None or pace != "fast"
        limited = settings if is_limited else replace(settings, epoch_rows=FAST_ROWS)
        self.until, self.pace, self.limits = until, pace, rate_limits(graph, limited, overload)
        check_connectors(name, graph, settings)
        how: dict[str, Any] = {"allow_drop": allow_drop, "pace": pace, "overload": overload, "token": token}
        opened = Checkpoint(checkpoint, name, graph, settings, prepare=preflight(graph), **how)
        super().__init__(name, graph, limited, opened)
        self.plan = self.checkpoint.plan
        self.ended = self._closed = False
        self._idle = IdleSources(self.checkpoint, self._offsets)
        self._progress = ProgressReporter(graph, self._idle, self._offsets)
        self._timers = TimerService(self.checkpoint.folder, self.checkpoint.timers)
        self._backpressure = Backpressure(graph, self.checkpoint)
        self._inputs = InputWarnings(graph)
        self._readers = {read: source_reader(read.source, self.settings) for read in graph.reads}
        self._reached: dict[Read, Offsets] = {}
        self.writers: list[EpochWriter] = []
        try:
            self._open()
        except BaseException as error:
            self._close()
            if isinstance(error, (Py4JError, PySparkException, ConnectionError)) or is_full(error):
                raise self._translated(error) from error
            raise

    def stop(self) -> None:
        """Ask for a clean stop: the epoch that is running is finished, and no other starts."""
        for writer in self.writers:
            writer.stopping.set()
        super().stop()

    @property
    def one_scan(self) -> bool:
        """Whether one scan offers all rows and then the end of input, so that no row comes after that."""
        return len(self.graph.reads) == len(self.queries) == 1 and self._compiled[0].context.clock is None

    def end(self) -> None:
        """Declare the end of input once all that is there is read: windows close for good."""
        if not self.one_scan:
            self.process_available()
        self._close_windows()
        self.until = "ended"

    def progress(self) -> Progress:
        """Return the newest epoch and the totals so far."""
        return self._progress.progress()

    def report(self) -> Report:
        """Return what was done over all epochs of the checkpoint."""
        newest = [writer.records.newest() for writer in self.writers]
        report = build_report(newest, self.graph, watermarks=self._progress.watermarks(), ended=self.ended)
        report.backpressure_ratio = self._backpressure.mean
        report.changed_inputs = self._inputs.counted()
        return report

    def fire_timers(self) -> None:
        """Fire the processing-time timers that are due."""
        self._timers.fire_due([writer.timers for writer in self.writers])

    def check_idle_sources(self) -> None:
        """Find sources that are idle, at a moment when all that is there was read."""
        self._idle.watch(settled=True)

    def process_available(self) -> None:
        """Wait until every sink has all rows that are there."""
        for query in self.queries:
            query.processAllAvailable()

    # --- starting -------------------------------------------------------------------------------

    def _open(self) -> None:
        check_run_kind(self.checkpoint, "epochs")
        warn_of_earlier_rows(self.graph, self.checkpoint)
        for read in self.graph.reads:
            folder = self.checkpoint.source(self.graph.name(read))
            check_reader(folder, read.source, self.settings)
            read.source.open(folder)
        ship_code(self.graph)
        spark = session(with_store(self.settings, self.checkpoint.root))
        configure_store(spark, self.checkpoint.root)
        ship_archive(self.graph, spark)
        self.checkpoint.lease.share_with(spark._jvm)
        if self.checkpoint.migration is not None:
            self.notice = migrate(self.checkpoint, spark, self.graph, self.settings)
        # Of several sources one may lag behind the end of another, so the driver has to declare when all have ended.
        closes = self.until == "ended" and len(self.graph.reads) == len(self.plan.queries) == 1
        self._compiled = compile_pipeline(
            spark, self.graph, self.checkpoint, self.settings, closes=closes, limits=self.limits
        )
        self._tables = TableWarnings(query.context for query in self._compiled)
        self._write_layout()
        restore_declared_times(self.checkpoint, self._compiled)
        if any(query.redeclares_watermark for query in self.plan.queries) and not self.checkpoint.ticks.is_over():
            self.checkpoint.tick(MIN_WATERMARK)
        for query in self._compiled:
            self._open_sinks(query)
        if self.graph.rejected_to is not None:
            self.graph.rejected_to.open(REJECTED, ())
        for read in self.graph.reads:
            read.source.start_background()

    def _write_layout(self) -> None:
        known = {one.name: query_layout(one) for one in self._compiled}
        started = {name: one for name, one in known.items() if (self.checkpoint.query(name) / "offsets").names()}
        check_positions(read_layout(self.checkpoint.folder), started)
        self._compaction = JournalCompaction(
            {one.name: one for one in (self.checkpoint.ticks, self.checkpoint.timers)},
            (journal_readers(self.checkpoint, one, known[one.name].sources) for one in self._compiled),
        )
        write_layout(self.checkpoint.folder, build_layout(self.plan, self.graph, known))
        write_plan(self.checkpoint.folder, self.plan)

    def _open_sinks(self, query: Query) -> None:
        kept = read_sink_partitions(self.checkpoint.folder, query.name)
        for frame, write in zip(query.frames, query.outputs, strict=True):
            write.sink.open(schema_of(frame.drop(*internal_columns(frame.columns))), write.input.key)
            if write.sink.partitions is not None:
                write.sink.partitions = kept.get(self.graph.own_name(write), write.sink.partitions)
        for write in query.asides:
            write.sink.open(write.schema, ())

    def _start_queries(self) -> None:
        for query in self._compiled:
            self._start(query)

    def _start(self, query: Query) -> None:
        spark = query.context.spark
        running = RunningQuery(spark)
        writer = EpochWriter(query, self.checkpoint, lambda: read_metrics(running.observed()))
        if query.context.timers is not None:
            writer.timers.create()
        if operators := [self.graph.label(node) for write in query.outputs for node in stateful_upstream(write)]:
            in_tasks = writer.results is None and any(write.sink.partitions is not None for write in query.outputs)
            writer.dropped = DroppedRows(running, operators, in_tasks)
        if query.context.partitioned:
            writer.spark_watermark = SparkWatermark(running)
        writer.on_done = partial(self._record_progress, query, writer)
        self.writers.append(writer)
        partitions = {self.graph.own_name(write): write.sink.partitions for write in query.outputs}
        counts = {name: number for name, number in partitions.items() if number is not None}
        write_sink_partitions(self.checkpoint.folder, query.name, counts)
        chosen = query_settings(self.settings, branches=query.branches, fast=self.pace == "fast")
        chosen |= store_settings(self.checkpoint.root, self.settings)
        for key, value in chosen.items():
            spark.conf.set(key, value)
        frame = writer.preparer.frame(query)
        stream = frame.writeStream.outputMode(query.mode).foreachBatch(writer)
        stream = stream.option("checkpointLocation", self.checkpoint.query(query.name).hadoop)
        if self.settings.checkpoint_interval:
            stream = stream.trigger(processingTime=f"{micros(self.settings.checkpoint_interval)} microseconds")
        started = stream.queryName(query_name(self.name, query.name, self.checkpoint.lineage)).start()
        self.queries.append(started)
        self._progress.add(writer, started)
        self._idle.add(writer, started)
        running.started(started)

    # --- running --------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopping.is_set() and all(query.isActive for query in self.queries):
            self.fire_timers()
            self._inputs.watch()
            if self.until == "stopped":
                self._idle.watch()
                self._stopping.wait(POLL_SECONDS)
            elif self._drained():
                break

    def _finish(self) -> None:
        self._halt()
        for query in self.queries:
            if (error := query.exception()) is not None:
                self._fail(error)
        self._commit_progress()
        self._inputs.report()
        if isinstance(self.error, SparkFailed | CheckpointDamaged):
            # The run has failed already, and that error is the one to report.
            with contextlib.suppress(Exception):
                request_full_check(self.checkpoint.folder)

    def _drained(self) -> bool:
        """Read all that is there; at the end of all sources, close what is open.

        The last rows of a single source need not be done before the end of input is declared: it offers them first. Of
        several, or in several queries, one could lag behind the end of another, so all are read to the end before.
        """
        if self.until == "drained" or len(self.graph.reads) > 1 or len(self.queries) > 1:
            self.process_available()
        if self.until == "drained" or self._stopping.is_set():
            return True
        if not all(read.source.ended(self._offsets(read)) for read in self.graph.reads):
            self._stopping.wait(POLL_SECONDS)
            return False
        self._close_windows()
        self.process_available()
        while not self._stopping.is_set() and self._timers.fire_all(
            [one.timers for one in self.writers], self._unclosed
        ):
            self.process_available()
        self.ended = not self._stopping.is_set()
        return True

    def _close_windows(self) -> None:
        self._idle.close()
        if not self._closed and self.graph.event_times and not self.checkpoint.ticks.is_over():
            self.checkpoint.tick(MAX_WATERMARK)
        self._closed = True

    @property
    def _unclosed(self) -> list[str]:
        """The windows that no watermark closes."""
        return [self.graph.own_name(node) for node in self.graph.nodes if node.bucketed and node.window is not None]

    def _offsets(self, read: Any) -> Offsets:
        query = next((query for query in self._compiled if read in query.context.nodes), self._compiled[0])
        messages = self.checkpoint.messages(self.graph.name(read))
        return self._readers[read].planned(self.checkpoint.query(query.name), messages)

    def _record_progress(self, query: Query, writer: EpochWriter) -> None:
        held: dict[Read, int | None] = {}
        folder = self.checkpoint.query(query.name)
        for read, reader in self._readers.items():
            messages = self.checkpoint.messages(self.graph.name(read))
            reached, held[read] = reader.reached(folder, messages, query.name, writer.number)
            if reached:
                self._reached[read] = reached
                if not reader.commits:
                    read.source.commit(reached)
        self._backpressure.record(writer, held)
        self._tables.report()
        self._compaction.run()

    def _commit_progress(self) -> None:
        """Commit the offsets of the last epoch: Spark does so only when it plans the next one."""
        for read, reached in self._reached.items():
            # For tools that show the lag: the checkpoint has the offsets, so no failure here may fail the run.
            with contextlib.suppress(Exception):
                read.source.commit(reached)

    def _halt(self) -> None:
        """Stop every query between two epochs."""
        for writer in self.writers:
            writer.stopping.set()
        for query in self.queries:
            while query.isActive:
                if query.status["isTriggerActive"]:
                    self._done.wait(POLL_SECONDS)
                else:
                    query.stop()

    def _fail(self, error: Exception) -> None:
        if StopRequested.__name__ not in str(error):
            super()._fail(error)

    def _error_of_query(self, error: BaseException) -> PenstockError:
        """Return our own error if there is one, else a translation of Spark's."""
        own = [writer.error for writer in self.writers if isinstance(writer.error, PenstockError)]
        if own:
            return own[0]
        found = [translate(error, self.graph, writer.staging, writer.number) for writer in self.writers]
        named = [one for one in found if one.node is not None]
        return (named or found or [translate(error, self.graph, self.checkpoint.staging("final"), -1)])[0]

    def _close(self) -> None:
        for read in self.graph.reads:
            # A source may be user code; the others are stopped all the same.
            with contextlib.suppress(Exception):
                read.source.stop_background()
        super()._close()
