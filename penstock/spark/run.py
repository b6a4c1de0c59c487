"""A run: one pipeline on Spark, from its checkpoint until it is stopped, drained or ended."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from penstock.contracts import REJECTED, Offsets
from penstock.durations import micros
from penstock.errors import CheckpointDamaged, PenstockError, SparkFailed
from penstock.folders import Folder
from penstock.plan.graph import Graph, stateful_above
from penstock.plan.nodes import EventTime, Read
from penstock.plan.overload import Overload
from penstock.plan.pace import Pace
from penstock.plan.queries import groups
from penstock.plan.stateful import Grouped
from penstock.report import Progress, Report
from penstock.settings import Settings
from penstock.spark.alone.connector_scan import by_connector, connector_offsets, keep_reader
from penstock.spark.alone.opening import FAST_ROWS, check_connectors, keep_pace, warn_of_earlier_rows
from penstock.spark.checkpoints.changing import keep_partitions, kept_partitions
from penstock.spark.checkpoints.checkpoint import Checkpoint, data_folder
from penstock.spark.checkpoints.damage import mend, suspect
from penstock.spark.checkpoints.layout import keep_layout, layout, query_layout
from penstock.spark.checkpoints.migrate import migrate
from penstock.spark.checkpoints.preflight import check_before_run, check_notes
from penstock.spark.checkpoints.stores import connect, store_settings, with_store
from penstock.spark.epochs.clock import BEGIN_OF_TIME, END_OF_TIME
from penstock.spark.epochs.compaction import Compaction, readers
from penstock.spark.epochs.dropped import DroppedRows
from penstock.spark.epochs.figures import Figures
from penstock.spark.epochs.idle import IdleSources, recall_times
from penstock.spark.epochs.input_changes import InputChanges
from penstock.spark.epochs.notes import last_offsets, reached_offsets
from penstock.spark.epochs.pressure import Pressure, limits_of
from penstock.spark.epochs.records import reported
from penstock.spark.epochs.spark_watermark import SparkWatermark
from penstock.spark.epochs.watermarks import read_metrics
from penstock.spark.epochs.writer import EpochWriter, StopRequested
from penstock.spark.faults import is_full, translate
from penstock.spark.hidden import hidden
from penstock.spark.lowering.compile import Query, compile_pipeline, resumes
from penstock.spark.lowering.table_watch import TableWatch
from penstock.spark.lowering.wakeups import Alarm
from penstock.spark.session import query_settings, session
from penstock.spark.ship import ship_archive, ship_code
from penstock.spark.types import schema_of

Until = Literal["stopped", "drained", "ended"]
POLL_SECONDS = 0.05


class Run:
    """A pipeline that is running; made by `Pipeline.start`.

    Invariant: the lease is held from before Spark starts until every query has ended.
    """

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
    ) -> None:
        self.name, self.graph, self.settings, self.until, self.pace = name, graph, settings, until, pace
        if pace == "fast" and settings.epoch_rows is None:
            self.settings = replace(settings, epoch_rows=FAST_ROWS)
        self.limits = limits_of(graph, self.settings, overload)
        check_connectors(name, graph, settings)
        self.checkpoint = Checkpoint(checkpoint, name, graph, settings, allow_drop=allow_drop)
        self.notice: str | None = None
        self.ended = self._closed = False
        self.error: PenstockError | None = None
        self._idle = IdleSources(self.checkpoint, self._offsets)
        self._figures = Figures(graph, self._idle, self._offsets)
        self._alarm = Alarm(self.checkpoint.folder, self.checkpoint.wakeups)
        self._pressure = Pressure(graph, self.checkpoint)
        self._changes = InputChanges(graph)
        self._reached: dict[Read, Offsets] = {}
        self._stopping = threading.Event()
        self._done = threading.Event()
        self.queries: list[StreamingQuery] = []
        self.writers: list[EpochWriter] = []
        try:
            self._open()
        except BaseException as error:
            self._close()
            if isinstance(error, (Py4JError, PySparkException, ConnectionError)) or is_full(error):
                raise self._translated(error) from error
            raise
        self._driver = threading.Thread(target=self._drive, name=f"penstock-{name}", daemon=True)

    def begin(self) -> Run:
        """Start the queries, and return at once."""
        try:
            for query in self._compiled:
                self._start(query)
        except BaseException as error:
            # Without its JVM there is nothing left to halt, and the first error says so.
            with contextlib.suppress(Exception):
                self._halt()
            self._close()
            if isinstance(error, Exception):
                raise self._translated(error) from error
            raise
        self._driver.start()
        return self

    def stop(self) -> None:
        """Ask for a clean end: the epoch that is running is finished, and no other begins."""
        for writer in self.writers:
            writer.stopping.set()
        self._stopping.set()

    @property
    def one_scan(self) -> bool:
        """Whether one scan offers all rows and the end of time after them, so that none is read behind it."""
        return len(self.graph.reads) == len(self.queries) == 1 and self._compiled[0].context.clock is None

    def end(self) -> None:
        """Ask for the end of time once all that is there is read: windows close for good."""
        if not self.one_scan:
            self.process_available()
        self._close_windows()
        self.until = "ended"

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end and return whether it came; raises what made the job fail."""
        finished = self._done.wait(timeout)
        if finished and self.error is not None:
            raise self.error
        return finished

    def progress(self) -> Progress:
        """Return the newest epoch and the totals so far."""
        return self._figures.progress()

    def report(self) -> Report:
        """Return what was done over all epochs of the checkpoint."""
        newest = [writer.records.newest() for writer in self.writers]
        report = reported(newest, self.graph, watermarks=self._figures.watermarks(), ended=self.ended)
        report.backpressure_ratio = self._pressure.mean
        report.changed_inputs = self._changes.counted()
        return report

    def wake(self) -> None:
        """Let state that waits for a processing time have its turn, if that has come."""
        self._alarm.watch([writer.rings for writer in self.writers])

    def look_for_idle(self) -> None:
        """Look for sources that give nothing, at a moment when all that is there was read."""
        self._idle.watch(settled=True)

    def process_available(self) -> None:
        """Wait until everything that is there has been through every sink."""
        for query in self.queries:
            query.processAllAvailable()

    # --- starting -------------------------------------------------------------------------------

    def _open(self) -> None:
        keep_pace(self.checkpoint, "epochs")
        warn_of_earlier_rows(self.graph, self.checkpoint)
        replayable = all(read.source.replayable for read in self.graph.reads)
        by_clock = any(isinstance(node, Grouped) and node.by_clock for node in self.graph.nodes)
        changes = self.checkpoint.migration is not None
        root, data = self.checkpoint.root, data_folder(self.checkpoint.root)
        check_notes(root, data)
        mend(data, replayable=replayable, changes=changes, by_clock=by_clock)
        check_before_run(root, data)
        for read in self.graph.reads:
            folder = self.checkpoint.source(self.graph.name(read))
            keep_reader(folder, read.source, self.settings)
            read.source.open(folder)
        ship_code(self.graph)
        spark = session(with_store(self.settings, self.checkpoint.root))
        connect(spark, self.checkpoint.root)
        ship_archive(self.graph, spark)
        self.checkpoint.lease.share_with(spark._jvm)
        if self.checkpoint.migration is not None:
            self.notice = migrate(self.checkpoint, spark, self.graph, self.settings, self.pace)
        # Of several sources one may lag behind the other's end, so that the driver has to say when all have ended.
        closes = self.until == "ended" and len(self.graph.reads) == len(groups(self.graph)) == 1
        self._compiled = compile_pipeline(
            spark, self.graph, self.checkpoint, self.settings, closes=closes, limits=self.limits
        )
        self._tables = TableWatch(query.context for query in self._compiled)
        self._keep_layout()
        recall_times(self.checkpoint, self._compiled)
        if resumes(self.graph.nodes) and not self.checkpoint.ticks.is_over():
            self.checkpoint.tick(BEGIN_OF_TIME)
        for query in self._compiled:
            self._open_sinks(query)
        if self.graph.rejected_to is not None:
            self.graph.rejected_to.open(REJECTED, ())
        for read in self.graph.reads:
            read.source.begin()

    def _keep_layout(self) -> None:
        known = {one.name: query_layout(one) for one in self._compiled}
        self._compaction = Compaction(
            {one.name: one for one in (self.checkpoint.ticks, self.checkpoint.wakeups)},
            (readers(self.checkpoint, one, known[one.name].sources) for one in self._compiled),
        )
        keep_layout(self.checkpoint.folder, layout(self.name, self.graph, self.settings.lane, self.pace, known))

    def _open_sinks(self, query: Query) -> None:
        kept = kept_partitions(self.checkpoint.folder, query.name)
        for frame, write in zip(query.frames, query.outputs, strict=True):
            write.sink.open(schema_of(frame.drop(*hidden(frame.columns))), write.input.key)
            if write.sink.partitions is not None:
                write.sink.partitions = kept.get(self.graph.own_name(write), write.sink.partitions)
        for write in query.asides:
            write.sink.open(write.schema, ())

    def _start(self, query: Query) -> None:
        spark = query.context.spark
        started: list[StreamingQuery] = []
        ready = threading.Event()

        def running() -> StreamingQuery:
            ready.wait()
            return started[0]

        def observed() -> dict[str, int]:
            # As text: every step into the map would be a call to the JVM, in every epoch.
            text = running()._jsq.streamingQuery().lastExecution().observedMetrics().toString()
            return read_metrics(text)

        writer = EpochWriter(query, self.checkpoint, observed)
        if query.context.wakeups is not None:
            writer.rings.create()
        if operators := [self.graph.label(node) for write in query.outputs for node in stateful_above(write)]:
            in_tasks = writer.outbox is None and any(write.sink.partitions is not None for write in query.outputs)
            writer.dropped = DroppedRows(running, operators, in_tasks, spark)
        if query.context.partitioned:
            writer.spark_watermark = SparkWatermark(running, spark)
        writer.on_done = partial(self._note_progress, query, writer)
        self.writers.append(writer)
        parted = {self.graph.own_name(write): write.sink.partitions for write in query.outputs}
        counts = {name: number for name, number in parted.items() if number is not None}
        keep_partitions(self.checkpoint.folder, query.name, counts)
        chosen = query_settings(self.settings, branches=query.branches, fast=self.pace == "fast")
        chosen |= store_settings(self.checkpoint.root, self.settings)
        for key, value in chosen.items():
            spark.conf.set(key, value)
        frame = writer.preparer.frame(query)
        stream = frame.writeStream.outputMode(query.mode).foreachBatch(writer)
        stream = stream.option("checkpointLocation", self.checkpoint.query(query.name).hadoop)
        if self.settings.checkpoint_interval:
            stream = stream.trigger(processingTime=f"{micros(self.settings.checkpoint_interval)} microseconds")
        started.append(stream.queryName(f"{self.name}/{query.name}").start())
        self.queries.append(started[0])
        self._figures.add(writer, started[0])
        self._idle.add(writer, started[0])
        ready.set()

    # --- running --------------------------------------------------------------------------------

    def _drive(self) -> None:
        """Watch the queries until there is a reason to stop them."""
        try:
            while not self._stopping.is_set() and all(query.isActive for query in self.queries):
                self.wake()
                self._changes.watch()
                if self.until == "stopped":
                    self._idle.watch()
                    self._stopping.wait(POLL_SECONDS)
                elif self._drained():
                    break
        except Exception as error:
            self._fail(error)
        finally:
            try:
                self._finish()
            except Exception as error:  # Spark's JVM may be gone, and who waits must hear of it
                self._fail(error)
            self._close()
            self._done.set()

    def _finish(self) -> None:
        self._halt()
        for query in self.queries:
            if (error := query.exception()) is not None:
                self._fail(error)
        self._commit_progress()
        self._changes.report()
        if isinstance(self.error, SparkFailed | CheckpointDamaged):
            with contextlib.suppress(Exception):
                suspect(self.checkpoint.folder)

    def _drained(self) -> bool:
        """Read all that is there; at the end of all sources, close what is open.

        One source's last rows need not be through before the end of time is declared: it offers them first. Of
        several, or in several queries, one could lag behind the other's end, so all are read to the end before.
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
        while not self._stopping.is_set() and self._alarm.close([one.rings for one in self.writers], self._unclosed):
            self.process_available()
        self.ended = not self._stopping.is_set()
        return True

    def _close_windows(self) -> None:
        self._idle.close()
        timed = any(isinstance(node, EventTime) for node in self.graph.nodes)
        if not self._closed and timed and not self.checkpoint.ticks.is_over():
            self.checkpoint.tick(END_OF_TIME)
        self._closed = True

    @property
    def _unclosed(self) -> list[str]:
        """The windows that no event time ends."""
        return [self.graph.own_name(node) for node in self.graph.nodes if isinstance(node, Grouped) and node.bucketed]

    def _offsets(self, read: Any) -> Offsets:
        if by_connector(read.source, self.settings):
            reading = next(query for query in self._compiled if read in query.context.nodes)
            return connector_offsets(self.checkpoint.query(reading.name), read.source.name)
        return last_offsets(self.checkpoint.messages(self.graph.name(read)))

    def _note_progress(self, query: Query, writer: EpochWriter) -> None:
        held: dict[Read, Any] = {}
        for read in self.graph.reads:
            folder = self.checkpoint.messages(self.graph.name(read))
            connected = by_connector(read.source, self.settings)
            if connected:
                reached, held[read] = self._offsets(read), None
            else:
                reached, held[read] = reached_offsets(folder, query.name, writer.number)
            if reached:
                self._reached[read] = reached
            if connected and reached:
                read.source.commit(reached)
        self._pressure.note(writer, held)
        self._tables.report()
        self._compaction.run()

    def _commit_progress(self) -> None:
        """Tell sources how far the last epoch came: Spark tells them only when it plans the next one."""
        for read, reached in self._reached.items():
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
        if self.error is None and StopRequested.__name__ not in str(error):
            self.error = self._translated(error)

    def _translated(self, error: BaseException) -> PenstockError:
        """Return what the user should meet: our own error if there is one, else Spark's in our words."""
        lost = self.checkpoint.lost()
        if lost is not None:
            return lost
        own = [writer.error for writer in self.writers if isinstance(writer.error, PenstockError)]
        if own:
            return own[0]
        found = [translate(error, self.graph, writer.staging, writer.number) for writer in self.writers]
        named = [one for one in found if one.node is not None]
        return (named or found or [translate(error, self.graph, self.checkpoint.staging("final"), -1)])[0]

    def _close(self) -> None:
        for read in self.graph.reads:
            with contextlib.suppress(Exception):
                read.source.finish()
        self.checkpoint.close()
