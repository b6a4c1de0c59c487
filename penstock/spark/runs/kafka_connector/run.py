"""The Kafka connector run: Spark's own connector reads and writes topics, and no row reaches Python.

In real time each row is written as soon as it comes; at the fast pace in the shortest possible micro-batches. Every
sink has a query of its own, and so have the rejected rows of every source, for such a query has one output. Both paces
are at least once. Spark reports counts at the end of a batch; of a real-time batch it writes offsets only then.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.contracts import REJECTED, KafkaConnectable
from penstock.durations import micros
from penstock.errors import BadValue, PenstockError, RowRejected
from penstock.plan.graph import Graph
from penstock.plan.physical.binding import BoundPlan
from penstock.plan.physical.overload import Overload
from penstock.plan.physical.pace import FAST_ROWS, Pace
from penstock.plan.physical.plan import RunnerKind
from penstock.report import Progress, Report
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.physical_plan import write_plan
from penstock.spark.checkpoints.preflight import check_run_kind
from penstock.spark.epochs.row_accounting import build_report
from penstock.spark.epochs.spark_errors import translate
from penstock.spark.runs.connector_checks import check_connectors
from penstock.spark.runs.kafka_connector.progress import QueryProgress
from penstock.spark.runs.kafka_connector.queries import BAD_ROW, ConnectorQuery, compile_connector_queries, task_slots
from penstock.spark.runs.runner import Runner
from penstock.spark.session.object_stores import configure_store, store_settings, with_store
from penstock.spark.session.spark_session import (
    clock_ahead,
    fast_settings,
    query_name,
    realtime_settings,
    session,
    with_jars,
)
from penstock.storage.folders import Folder

POLL_SECONDS = 0.2
STOP_SECONDS = 10.0
BETWEEN_SECONDS = 0.005


class KafkaConnectorRun(Runner):
    """A pipeline that Spark's Kafka connector runs; made by `Pipeline.start`."""

    def __init__(
        self,
        name: str,
        graph: Graph,
        checkpoint: str | Path | Folder,
        settings: Settings,
        until: str,
        pace: Pace,
        overload: Overload = "block",
        token: int | None = None,
    ) -> None:
        if until != "stopped":
            message = f'pace="{pace}" runs this until it is stopped, not until it is {until}'
            raise BadValue(message, node=name, hint='leave until out, or choose pace="throughput"')
        check_connectors(name, graph, settings)
        self.realtime = pace == "realtime"
        runner: RunnerKind = "real-time" if self.realtime else "kafka-connector"
        how: dict[str, Any] = {"pace": pace, "overload": overload, "runner": runner, "token": token}
        super().__init__(name, graph, settings, Checkpoint(checkpoint, name, graph, settings, migrates=False, **how))
        self._lag: tuple[int, int | None] = (-2, None)
        try:
            self._open()
        except BaseException:
            self._close()
            raise

    def progress(self) -> Progress:
        """Return the newest batch and the totals so far."""
        whole = Progress(**self.by_query[0].progress.__dict__)
        for other in (progress.progress for progress in self.by_query[1:]):
            whole.rows_in += other.rows_in
            whole.rows_out += other.rows_out
            whole.rows_out_per_s += other.rows_out_per_s
            whole.late, whole.rejected = whole.late + other.late, whole.rejected + other.rejected
            whole.filtered += other.filtered
            whole.state_rows += other.state_rows
            whole.state_bytes += other.state_bytes
            whole.nodes = whole.nodes | other.nodes
        if whole.epoch != self._lag[0]:
            self._lag = (whole.epoch, self._lag_rows())
        whole.lag_rows = self._lag[1]
        return whole

    def report(self) -> Report:
        """Return what was done over all batches of the checkpoint, as Spark reported it."""
        newest = [progress.records.newest() for progress in self.by_query]
        return build_report(newest, self.graph, watermark=self.by_query[0].progress.watermark)

    # --- starting -------------------------------------------------------------------------------

    def _open(self) -> None:
        check_run_kind(self.checkpoint, "realtime" if self.realtime else "connected")
        for read in self.graph.reads:
            read.source.open(self.checkpoint.source(self.graph.name(read)))
        for write in self.graph.writes:
            write.sink.open(write.schema, write.input.key)
        if self.graph.rejected_to is not None:
            self.graph.rejected_to.open(REJECTED, ())
        slots = task_slots(self.graph, self.settings) if self.realtime else 0
        self.spark = session(with_store(with_jars(self.settings, "kafka"), self.checkpoint.root), slots)
        configure_store(self.spark, self.checkpoint.root)
        self.checkpoint.lease.share_with(self.spark._jvm)
        limit = None if self.realtime else self.settings.epoch_rows or FAST_ROWS
        self._compiled = compile_connector_queries(self.spark, self.graph, self.checkpoint, limit)
        write_plan(self.checkpoint.folder, self.checkpoint.plan)
        self.by_query = self._progress_by_query()

    def _progress_by_query(self) -> list[QueryProgress]:
        bound = BoundPlan(self.checkpoint.plan, self.graph)
        planned = zip(self._compiled, self.checkpoint.plan.queries, strict=True)
        counted = ((query, list(bound.nodes(one.counts))) for query, one in planned)
        return [QueryProgress(query, owned, self.graph, self.checkpoint) for query, owned in counted]

    def _start_queries(self) -> None:
        for query in self._compiled:
            self._start(query)

    def _start(self, query: ConnectorQuery) -> None:
        settings = realtime_settings if self.realtime else fast_settings
        chosen = settings(self.settings) | store_settings(self.checkpoint.root, self.settings)
        for key, value in chosen.items():
            self.spark.conf.set(key, value)
        assert isinstance(query.sink, KafkaConnectable)
        options = query.sink.connector_options()
        stream = query.frame.writeStream.format("kafka").options(**options)
        stream = stream.option("checkpointLocation", self.checkpoint.query(query.name).hadoop)
        name = query_name(self.name, query.name, self.checkpoint.lineage)
        self.queries.append(self._triggered(stream, query).queryName(name).start())

    def _triggered(self, stream: DataStreamWriter, query: ConnectorQuery) -> DataStreamWriter:
        if self.realtime:
            length = f"{micros(self.settings.realtime_batch)} microseconds"
            return stream.outputMode("update").trigger(realTime=length)  # type: ignore[call-overload, no-any-return]
        if query.stateful is None:
            # Offsets are written asynchronously; Spark refuses that where there is state.
            stream = stream.outputMode("append").option("asyncProgressTrackingEnabled", True)
        else:
            stream = stream.outputMode("update")
        if self.settings.checkpoint_interval:
            stream = stream.trigger(processingTime=f"{micros(self.settings.checkpoint_interval)} microseconds")
        return stream

    # --- running --------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopping.wait(POLL_SECONDS) and self._active():
            self._collect_progress()
        if self._active():
            self._end_batch() if self.realtime else self._end_epoch()

    def _active(self) -> bool:
        return all(query.isActive for query in self.queries)

    def _collect_progress(self) -> None:
        for query, progress in zip(self.queries, self.by_query, strict=True):
            # As text: Spark's own Python objects would be a hundred calls to the JVM for each batch.
            recent = [one for one in query._jsq.recentProgress() if one.batchId() > progress.batch]
            if recent:
                progress.add([one.json() for one in recent])
                self._commit(progress)

    def _commit(self, progress: QueryProgress) -> None:
        """Commit offsets to the consumer group of the source, so that tools can show the lag."""
        for read in progress.query.reads:
            if read in progress.owned and (reached := progress.reached.get(read.source.name)):
                # The checkpoint has the offsets, so no failure here may fail the run.
                with contextlib.suppress(Exception):
                    read.source.commit(reached)

    def _end_batch(self) -> None:
        """End the running batch now: its readers check a clock, which is set ahead, whenever a row comes.

        A partition without rows holds the batch up; then it is aborted, and the next run repeats it.
        """
        before = [progress.batch for progress in self.by_query]
        deadline = time.monotonic() + STOP_SECONDS
        with clock_ahead(self.spark) as advance:
            while time.monotonic() < deadline and self._active():
                # Repeatedly: the next batch may just have started.
                advance(micros(self.settings.realtime_batch) // 1000)
                time.sleep(POLL_SECONDS)
                self._collect_progress()
                if all(progress.batch > old for progress, old in zip(self.by_query, before, strict=True)):
                    return

    def _end_epoch(self) -> None:
        """Wait for a moment between two epochs; under constant load there may be none."""
        deadline = time.monotonic() + STOP_SECONDS
        for query in self.queries:
            while query.isActive and time.monotonic() < deadline and query.status["isTriggerActive"]:
                time.sleep(BETWEEN_SECONDS)
            query.stop()
        self._collect_progress()

    def _halt(self) -> None:
        for query in self.queries:
            # Without its JVM there is nothing left to stop.
            with contextlib.suppress(Exception):
                if error := query.exception():
                    self._fail(error)
                query.stop()

    def _error_of_query(self, error: BaseException) -> PenstockError:
        bad = re.search(f"{BAD_ROW}(.*?): (.*?)(?: SQLSTATE|$)", str(error), re.MULTILINE)
        if bad is None:
            return translate(error, self.graph, self.checkpoint.staging("connected"), -1)
        message = f"bad row at {bad[1]}: {bad[2]}"
        hint = 'fix the row, or pass on_error="reject" to set such rows aside'
        topic = bad[1].rpartition("/")[0]
        read = next((self.graph.label(read) for read in self.graph.reads if read.source.name == topic), None)
        return RowRejected(message, node=read, hint=hint)

    def _lag_rows(self) -> int | None:
        reached = {topic: ends for progress in self.by_query for topic, ends in progress.reached.items()}
        behind = [read.source.lag(reached.get(read.source.name, {})) for read in self.graph.reads]
        known = [rows for rows in behind if rows is not None]
        return sum(known) if len(known) == len(behind) else None
