"""The scan: one Python data source of Spark that reads any `Source` in Arrow batches.

Every row of a source passes through it. It counts rows, stages those that do not parse, and, where the plan allows,
runs the native prefix. `partitions` runs on the driver after Spark wrote the epoch's offsets, so it can ship the
watermark by which this epoch's rows are late: that of the epoch before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from penstock.connectors.formats.arrow_types import to_microseconds
from penstock.contracts import Offsets, OnError, Rejected, Source
from penstock.errors import PenstockError, RowRejected, SourceFailed
from penstock.native.program import Program
from penstock.rejected.rows import row_dicts, row_json
from penstock.schema import Schema
from penstock.spark.tasks.admission import DEFAULT_LIMITS, Admission, Alignment, RateLimits, dropped
from penstock.spark.tasks.control_journal import MAX_WATERMARK, DeclaredTimes, tick_rows
from penstock.spark.tasks.internal_columns import ORDER, ORIGIN
from penstock.spark.tasks.node_watermarks import Watermarks, watermark_column
from penstock.spark.tasks.offset_files import (
    EMPTY,
    SPLITS,
    TICKS,
    newest_epoch,
    replayed_ends,
    source_offsets,
    write_offsets,
    write_planned,
)
from penstock.spark.tasks.packed_rows import ScanPacker
from penstock.spark.tasks.source_partitions import SplitReader
from penstock.spark.tasks.staging import ARRIVED, PLANNING, Staging, rejected_table
from penstock.spark.tasks.stored_results import AnswerStore
from penstock.spark.tasks.task_context import current_epoch
from penstock.spark.tasks.totals import Totals, totals_before
from penstock.storage.folders import Folder
from penstock.values import fit_array
from penstock.windows import FIRST_US

# The numbers of scan partitions without rows of a source.
TIMES, DROPPED = -1, -2


@dataclass(frozen=True)
class Scan:
    """All that a task needs to read one source; `closes` if its end is the end of input.

    `late_watermark` is the number of the watermark by which the native program separates late rows; with
    `carries_watermarks` each row carries all watermarks, for Spark to separate them. With `by_partition` the program
    stages the newest time of each partition; where Spark declares the event time, each row `carries_origin` instead.
    With a `packer` rows leave in blobs, by buckets of keys. With `marks_splits` offsets say for how many tasks an epoch
    was split, and a replay is split for as many.
    """

    name: str
    source: Source
    output: Schema
    query: str
    planned: Folder
    messages: Folder
    staging: Staging
    parallelism: int
    on_error: OnError = "reject"
    limits: RateLimits = DEFAULT_LIMITS
    watermarks: Watermarks | None = None
    late_watermark: int = 0
    carries_watermarks: bool = False
    order: int | None = None
    by_partition: bool = False
    carries_origin: bool = False
    alignment: Alignment | None = None
    program: Program | None = None
    packer: ScanPacker | None = None
    ticks: Folder | None = None
    time_key: str | None = None
    closes: bool = False
    answers: AnswerStore | None = None
    marks_splits: bool = False

    @property
    def format(self) -> str:
        """The name that Spark knows it by; the prefix keeps a topic called "json" apart from Spark's own formats."""
        return f"penstock-{self.name}"

    def data_source(self) -> type[DataSource]:
        """Return a data source class that Spark can register under a name of its own."""
        scan, driver_at = self, os.getcwd()

        class Bound(DataSource):
            @classmethod
            def name(cls) -> str:
                return scan.format

            def schema(self) -> str:
                return scan.output.nullable().ddl

            def streamReader(self, schema: Any) -> DataSourceStreamReader:
                # The planner's process has the folder in which the JVM started; relative paths are the driver's.
                with contextlib.suppress(FileNotFoundError):
                    os.chdir(driver_at)
                return ScanReader(scan)

        return Bound


@dataclass(frozen=True)
class ScanPartition(InputPartition):
    """What one task reads, and the watermarks by which its rows are late; or times that the driver declared."""

    split: Any
    number: int
    watermarks: tuple[int, ...]
    ticks: tuple[int, ...] = ()
    dropped: int = 0


class ScanReader(DataSourceStreamReader):
    """Plans epochs in Spark's planner, and reads in its tasks."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self.admission = Admission(scan.source, scan.limits, scan.messages, scan.query, scan.alignment)
        self.written: dict[str, Any] | None = None
        self.replayed: dict[int, Any] | None = None
        self.ticks = DeclaredTimes(scan.ticks) if scan.ticks else None
        self.replays = scan.answers is not None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new checkpoint starts."""
        return dict(self.scan.source.initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next epoch reads."""
        with self._named():
            return self._latest(start)

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        if (before := self._replayed_end(start)) is not None:
            return before
        admitted = self.admission.end(start)
        end = source_offsets(admitted)
        ticks = {TICKS: self._offered(end, self.ticks)} if self.ticks else {}
        if end != self.written:
            write_offsets(self.scan.messages, end)
            self.written = end
        latest = admitted | ticks
        # Without new rows the offset stays as it is, marked or not: another one would be one more epoch.
        if latest == _unmarked(start):
            return start
        return latest | ({SPLITS: self.scan.parallelism} if self.scan.marks_splits else {})

    def _replayed_end(self, start: dict[str, Any]) -> dict[str, Any] | None:
        """Return how far the next epoch reads if it ran before and is replayed after a repair."""
        if self.replayed is None:
            self.replayed = replayed_ends(self.scan.planned).get(self.scan.name, {})
        if not self.replayed:
            return None
        epoch = newest_epoch(self.scan.planned) + 1
        end: dict[str, Any] | None = self.replayed.get(epoch)
        # Spark would skip an epoch without rows, and give its number to other rows: the mark makes it differ.
        is_empty = end is not None and _unmarked(end) == _unmarked(start)
        return {**end, EMPTY: epoch} if end is not None and is_empty else end

    def _offered(self, end: dict[str, Any], declared: DeclaredTimes) -> int:
        """Return how many declared times to offer; the maximum watermark only with or after the last rows.

        It comes in the same epoch as these: lateness uses the watermark of the epoch before. An epoch of its own would
        be slower.
        """
        is_over = declared.is_over()
        if not is_over and not self.scan.closes:
            return declared.end()
        if not self.scan.source.ended(end):
            return declared.end() - is_over
        if not is_over:
            declared.tick(MAX_WATERMARK)
        return declared.end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[ScanPartition]:
        """Split the epoch into tasks."""
        with self._named():
            return self._partitions(start, end)

    def _partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[ScanPartition]:
        (begin, first), (upto, last) = _separated(start), _separated(end)
        left_out = dropped(begin, upto, end)
        epoch = newest_epoch(self.scan.planned)
        splits = self.scan.source.splits(left_out.upto if left_out else begin, upto, self._parallelism(epoch, end))
        totals = totals_before(self.scan.watermarks.records, epoch) if self.scan.watermarks else Totals()
        watermarks = self.scan.watermarks.after(totals, epoch - 1) if self.scan.watermarks else ()
        waiting = self.scan.alignment.waiting(self.scan.source, upto, totals) if self.scan.alignment else ()
        write_planned(self.scan.messages, self.scan.query, epoch, end, self.admission.held, waiting)
        partitions = [ScanPartition(split, number, watermarks) for number, split in enumerate(splits)]
        if left_out:
            partitions.append(ScanPartition(None, DROPPED, watermarks, dropped=left_out.rows))
        mine = self.ticks.times(first, last) if self.ticks else []
        times = tuple(tick.at for tick in mine if tick.only in (None, self.scan.time_key))
        return [*partitions, ScanPartition(None, TIMES, watermarks, times)] if times else partitions

    def _parallelism(self, epoch: int, end: dict[str, Any]) -> int:
        """Return for how many tasks to split an epoch: a replay as before.

        So its tasks find their stored answers, and sinks get the same partitions.
        """
        if SPLITS in end:
            return int(end[SPLITS])
        before = self.scan.answers.parallelism(epoch) if self.scan.answers and self.replays else None
        # After the first epoch without answers all epochs are new.
        self.replays = before is not None
        return before or self.scan.parallelism

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        assert isinstance(partition, ScanPartition)
        if partition.dropped:
            gone = {"rows_in": partition.dropped, "dropped": partition.dropped}
            self.scan.staging.put_counts(current_epoch(), f"{self.scan.name}={DROPPED}", {self.scan.name: gone})
            return
        if partition.ticks:
            yield tick_rows(partition.ticks, self.scan.output)
            return
        task = _Task(self.scan, partition)
        try:
            yield from task.batches()
        except PenstockError as error:
            error.node = error.node or f"read '{self.scan.name}'"
            self.scan.staging.put_error(task.epoch, error)
            raise
        except OSError as error:
            message = f"cannot read: {error}"
            failed = SourceFailed(message, node=f"read '{self.scan.name}'", transient=True)
            self.scan.staging.put_error(task.epoch, failed)
            raise failed from error

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Stage an error of the planning for the driver: this is another process."""
        try:
            yield
        except PenstockError as error:
            error.node = error.node or f"read '{self.scan.name}'"
            self.scan.staging.put_error(PLANNING, error)
            raise

    def commit(self, end: dict[str, Any]) -> None:
        """Report to the source that every sink has the epoch."""
        own, ticks = _separated(end)
        self.scan.source.commit(own)
        if self.ticks:
            self.ticks.forget(ticks)


class _Task:
    """One read of one scan partition."""

    def __init__(self, scan: Scan, partition: ScanPartition) -> None:
        self.scan = scan
        self.partition = partition
        self.epoch = current_epoch()
        self.rejected: list[Rejected] = []
        self.rows = self.given = 0
        self.splits = SplitReader(scan, self._good)

    def batches(self) -> Iterator[pa.RecordBatch]:
        packer = self.scan.packer
        rows = self._rows()
        yield from packer.pack(rows, self.partition.number) if packer else rows

    def _rows(self) -> Iterator[pa.RecordBatch]:
        scan, partition = self.scan, self.partition
        part = f"{scan.name}={partition.number}"
        counts: dict[str, dict[str, int]] = {}
        if scan.program is None:
            yield from starmap(self._with_internal_columns, self.splits.rows(partition.split))
        else:
            late = partition.watermarks[scan.late_watermark] if partition.watermarks else FIRST_US
            run = scan.program.start(late, ticks=not scan.by_partition)
            yield from starmap(self._with_internal_columns, self.splits.through(run, partition.split))
            counts = run.counts
            for kind, node, rows in run.side_rows(self.epoch):
                scan.staging.put_rows(self.epoch, kind, node, part, rows)
        if self.rejected:
            table = rejected_table(scan.name, self.epoch, self.rejected, scan.name)
            scan.staging.put_rows(self.epoch, "rejected", scan.name, part, table)
        total = self.rows + len(self.rejected)
        counts[scan.name] = {"rows_in": total, "rejected": len(self.rejected)}
        if arrived := scan.source.take_arrivals():
            counts[ARRIVED + scan.name] = {str(at): rows for at, rows in arrived.items()}
        scan.staging.put_counts(self.epoch, part, counts)
        self.splits.stage(self.epoch, part)

    def _good(self, split: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows that parse and respect `not null`; reject the others."""
        schema = self.scan.source.schema
        required = [field.name for field in schema if not field.nullable]
        for item in self.scan.source.read_split(split):
            if isinstance(item, Rejected):
                self._reject(item)
                continue
            batch = conform(item, schema, self.scan.name)
            if any(batch.column(name).null_count for name in required):
                batch = self._without_nulls(batch, required)
            self.rows += batch.num_rows
            yield batch

    def _without_nulls(self, batch: pa.RecordBatch, required: list[str]) -> pa.RecordBatch:
        for name in required:
            missing = pc.is_null(batch.column(name))
            for row in row_dicts(pa.Table.from_batches([batch.filter(missing)])):
                reason = f"column '{name}' is null, and it is declared not null"
                self._reject(Rejected(reason, b"", "", row_json(row)))
            batch = batch.filter(pc.invert(missing))
        return batch

    def _reject(self, row: Rejected) -> None:
        if self.scan.on_error == "fail":
            what = repr(row.raw[:200]) if row.row is None else row.row[:200]
            message = f"a row cannot be read: {row.reason} at {row.position or 'an unknown position'}: {what}"
            raise RowRejected(message, hint='fix the input, or read with on_error="reject"')
        self.rejected.append(row)

    def _with_internal_columns(self, origin: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = self._with_order(self._with_watermarks(batch))
        if not self.scan.carries_origin:
            return batch
        return batch.append_column(ORIGIN, pa.repeat(pa.scalar(origin, pa.int64()), batch.num_rows))

    def _with_watermarks(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for number, watermark in enumerate(self.partition.watermarks if self.scan.carries_watermarks else ()):
            column = pa.repeat(pa.scalar(watermark, pa.int64()), batch.num_rows)
            batch = batch.append_column(watermark_column(number), column)
        return batch

    def _with_order(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Number the rows: by source, by scan partition (these follow partitions and offsets), by row."""
        if self.scan.order is None:
            return batch
        first = (self.scan.order << 56) + (self.partition.number << 40) + self.given
        self.given += batch.num_rows
        return batch.append_column(ORDER, pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64)))


def _separated(offsets: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Separate the source's own offsets from the number of declared times."""
    return source_offsets(offsets), int(offsets.get(TICKS, 0))


def _unmarked(offsets: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in offsets.items() if key not in (EMPTY, SPLITS)}


def conform(batch: pa.RecordBatch, schema: Schema, name: str) -> pa.RecordBatch:
    """Give a batch the declared columns and types; a value that does not fit stops the job."""
    wanted = schema.nullable().arrow
    if batch.schema.equals(wanted):
        return batch
    missing = [column for column in wanted.names if column not in batch.schema.names]
    if missing:
        message = f"the source gave no column '{missing[0]}'; it gave {', '.join(batch.schema.names)}"
        raise SourceFailed(message, node=f"read '{name}'", hint=f"its schema says {schema.ddl}")
    columns = []
    for field in wanted:
        column, wrong = fit_array(to_microseconds(batch.column(field.name)), field.type)
        for misfit in wrong.values():
            message = f"the source's rows do not fit its schema: {misfit.within(field.name)}"
            raise SourceFailed(message, node=f"read '{name}'", hint=f"its schema says {schema.ddl}")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


class EmptySource(Source):
    """A source without rows that reports one new offset: so Spark creates the state of a new plan."""

    def __init__(self, source: Source) -> None:
        self.name, self.schema = source.name, source.schema

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Always the same."""
        return {"0": 1}

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> list[Any]:
        """Nothing."""
        return []
