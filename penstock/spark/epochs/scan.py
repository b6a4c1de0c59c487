"""Sources as Spark sees them: one Python data source that reads any `Source` in Arrow batches.

The scan is the one place where every row of a source passes. It counts them, stages those that do not parse, and,
where the plan allows, runs the native prefix. `partitions` runs on the driver after Spark wrote the epoch's offsets, so
it can ship the watermark by which this epoch's rows are late: that of the epoch before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from penstock.connectors.nanoseconds import to_microseconds
from penstock.contracts import OnError, Rejected, Source
from penstock.errors import PenstockError, RowRejected, SourceFailed
from penstock.folders import Folder
from penstock.native.program import Program
from penstock.rejected.rows import row_json
from penstock.schema import Schema
from penstock.spark.epochs.admission import Admission, dropped
from penstock.spark.epochs.alignment import Alignment
from penstock.spark.epochs.answers import AnswerStore
from penstock.spark.epochs.clock import END_OF_TIME, Ticks, tick_rows
from penstock.spark.epochs.notes import (
    EMPTY,
    TICKS,
    newest_epoch,
    note_offsets,
    note_planned,
    own_offsets,
    replayed_ends,
)
from penstock.spark.epochs.pacer import USUAL, Limits
from penstock.spark.epochs.piece_parts import PieceParts
from penstock.spark.epochs.records import Totals, totals_before
from penstock.spark.epochs.staging import PLANNING, Staging, rejected_table
from penstock.spark.hidden import ORDER, ORIGIN
from penstock.spark.lowering.marks import Marks, mark_column
from penstock.values import fit_array
from penstock.windows import FIRST_US

# The local property by which the epoch writer hands the bounds of an epoch to its tasks.
BOUNDS = "penstock.bounds"
# The numbers of pieces without rows of a source.
TIMES, DROPPED = -1, -2


@dataclass(frozen=True)
class Scan:
    """All that a task needs to read one source; `closes` if its end is the end of time.

    `late_mark` is the number of the mark by which the native program parts late rows; with `carries_marks` each row
    carries all marks, for Spark to part them. With `by_partition` the program leaves the newest time of each partition;
    where Spark declares the event time, each row `carries_origin` instead.
    """

    name: str
    source: Source
    output: Schema
    query: str
    planned: Folder
    notes: Folder
    staging: Staging
    parallelism: int
    on_error: OnError = "reject"
    limits: Limits = USUAL
    marks: Marks | None = None
    late_mark: int = 0
    carries_marks: bool = False
    order: int | None = None
    by_partition: bool = False
    carries_origin: bool = False
    alignment: Alignment | None = None
    program: Program | None = None
    ticks: Folder | None = None
    time_key: str | None = None
    closes: bool = False
    answers: AnswerStore | None = None

    @property
    def format(self) -> str:
        """The name that Spark knows it by; the prefix keeps a topic called "json" apart from Spark's own formats."""
        return f"penstock-{self.name}"

    def data_source(self) -> type[DataSource]:
        """Return a data source class that Spark can register under a name of its own."""
        scan = self

        class Bound(DataSource):
            @classmethod
            def name(cls) -> str:
                return scan.format

            def schema(self) -> str:
                return scan.output.nullable().ddl

            def streamReader(self, schema: Any) -> DataSourceStreamReader:
                return ScanReader(scan)

        return Bound


@dataclass(frozen=True)
class Piece(InputPartition):
    """What one task reads, and the watermarks by which its rows are late; or times that the driver declared."""

    split: Any
    number: int
    marks: tuple[int, ...]
    ticks: tuple[int, ...] = ()
    dropped: int = 0


class ScanReader(DataSourceStreamReader):
    """The driver's half plans epochs; the tasks' half reads."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self.admission = Admission(scan.source, scan.limits, scan.notes, scan.query, scan.alignment)
        self.noted: dict[str, Any] | None = None
        self.replayed: dict[int, Any] | None = None
        self.ticks = Ticks(scan.ticks) if scan.ticks else None
        self.replays = scan.answers is not None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new checkpoint begins."""
        return dict(self.scan.source.initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next epoch reads."""
        with self._named():
            return self._latest(start)

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        if (before := self._replayed_end(start)) is not None:
            return before
        admitted = self.admission.end(start)
        end = own_offsets(admitted)
        ticks = {TICKS: self._offered(end, self.ticks)} if self.ticks else {}
        if end != self.noted:
            note_offsets(self.scan.notes, end)
            self.noted = end
        latest = admitted | ticks
        # Without news the offset stays as it is, marked or not: another one would be an epoch more.
        return start if latest == _unmarked(start) else latest

    def _replayed_end(self, start: dict[str, Any]) -> dict[str, Any] | None:
        """Return how far the next epoch reads if it ran before, and damage made it run again."""
        if self.replayed is None:
            self.replayed = replayed_ends(self.scan.planned).get(self.scan.name, {})
        if not self.replayed:
            return None
        epoch = newest_epoch(self.scan.planned) + 1
        end: dict[str, Any] | None = self.replayed.get(epoch)
        # Spark would leave out an epoch without rows, and give its number to other rows: the mark makes it differ.
        return {**end, EMPTY: epoch} if end is not None and end == _unmarked(start) else end

    def _offered(self, end: dict[str, Any], declared: Ticks) -> int:
        """Return how many declared times to offer; the end of time only with or after the last rows.

        It comes in the same epoch as these, for lateness goes by the epoch before; an epoch of its own would be slower.
        """
        is_over = declared.is_over()
        if not is_over and not self.scan.closes:
            return declared.end()
        if not self.scan.source.ended(end):
            return declared.end() - is_over
        if not is_over:
            declared.tick(END_OF_TIME)
        return declared.end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Piece]:
        """Cut the epoch into tasks."""
        with self._named():
            return self._pieces(start, end)

    def _pieces(self, start: dict[str, Any], end: dict[str, Any]) -> list[Piece]:
        (begin, first), (upto, last) = _parted(start), _parted(end)
        left_out = dropped(begin, upto, end)
        epoch = newest_epoch(self.scan.planned)
        splits = self.scan.source.splits(left_out.upto if left_out else begin, upto, self._parallelism(epoch))
        totals = totals_before(self.scan.marks.records, epoch) if self.scan.marks else Totals()
        marks = self.scan.marks.after(totals, epoch - 1) if self.scan.marks else ()
        waiting = self.scan.alignment.waiting(self.scan.source, upto, totals) if self.scan.alignment else ()
        note_planned(self.scan.notes, self.scan.query, epoch, end, self.admission.held, waiting)
        pieces = [Piece(split, number, marks) for number, split in enumerate(splits)]
        if left_out:
            pieces.append(Piece(None, DROPPED, marks, dropped=left_out.rows))
        mine = self.ticks.times(first, last) if self.ticks else []
        times = tuple(tick.at for tick in mine if tick.only in (None, self.scan.time_key))
        return [*pieces, Piece(None, TIMES, marks, times)] if times else pieces

    def _parallelism(self, epoch: int) -> int:
        """Return for how many tasks to cut an epoch: a replay as before, so that tasks find the answers of theirs."""
        before = self.scan.answers.parallelism(epoch) if self.scan.answers and self.replays else None
        # Once there is an epoch without answers, those that follow are new.
        self.replays = before is not None
        return before or self.scan.parallelism

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece."""
        assert isinstance(partition, Piece)
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
        """Leave an error of the planning where the driver finds it: this is another process."""
        try:
            yield
        except PenstockError as error:
            error.node = error.node or f"read '{self.scan.name}'"
            self.scan.staging.put_error(PLANNING, error)
            raise

    def commit(self, end: dict[str, Any]) -> None:
        """Every sink has the epoch."""
        own, ticks = _parted(end)
        self.scan.source.commit(own)
        if self.ticks:
            self.ticks.forget(ticks)


class _Task:
    """One read of one piece."""

    def __init__(self, scan: Scan, piece: Piece) -> None:
        self.scan = scan
        self.piece = piece
        self.epoch = current_epoch()
        self.rejected: list[Rejected] = []
        self.rows = self.given = 0
        self.parts = PieceParts(scan, self._good)

    def batches(self) -> Iterator[pa.RecordBatch]:
        scan, piece = self.scan, self.piece
        part = f"{scan.name}={piece.number}"
        counts: dict[str, dict[str, int]] = {}
        if scan.program is None:
            yield from starmap(self._with_hidden, self.parts.rows(piece.split))
        else:
            late = piece.marks[scan.late_mark] if piece.marks else FIRST_US
            run = scan.program.start(late, ticks=not scan.by_partition)
            yield from starmap(self._with_hidden, self.parts.through(run, piece.split))
            counts = run.counts
            for kind, node, rows in run.aside(self.epoch):
                scan.staging.put_rows(self.epoch, kind, node, part, rows)
        if self.rejected:
            table = rejected_table(scan.name, self.epoch, self.rejected, scan.name)
            scan.staging.put_rows(self.epoch, "rejected", scan.name, part, table)
        total = self.rows + len(self.rejected)
        counts[scan.name] = {"rows_in": total, "rejected": len(self.rejected)}
        scan.staging.put_counts(self.epoch, part, counts)
        self.parts.leave(self.epoch, part)

    def _good(self, split: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows that parse and keep `not null`; put the others aside."""
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
            for row in batch.filter(missing).to_pylist():
                reason = f"column '{name}' is null, and it is declared not null"
                self._reject(Rejected(reason, b"", "", row_json(row)))
            batch = batch.filter(pc.invert(missing))
        return batch

    def _reject(self, row: Rejected) -> None:
        if self.scan.on_error == "fail":
            what = repr(row.raw[:200]) if row.row is None else row.row[:200]
            message = f"a row cannot be read: {row.reason} at {row.position or 'an unknown place'}: {what}"
            raise RowRejected(message, hint='mend the input, or read with on_error="reject"')
        self.rejected.append(row)

    def _with_hidden(self, origin: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = self._with_order(self._with_marks(batch))
        if not self.scan.carries_origin:
            return batch
        return batch.append_column(ORIGIN, pa.repeat(pa.scalar(origin, pa.int64()), batch.num_rows))

    def _with_marks(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for number, mark in enumerate(self.piece.marks if self.scan.carries_marks else ()):
            column = pa.repeat(pa.scalar(mark, pa.int64()), batch.num_rows)
            batch = batch.append_column(mark_column(number), column)
        return batch

    def _with_order(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Number the rows: by source, by piece (pieces follow partitions and offsets), by row."""
        if self.scan.order is None:
            return batch
        first = (self.scan.order << 56) + (self.piece.number << 40) + self.given
        self.given += batch.num_rows
        return batch.append_column(ORDER, pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64)))


def _parted(offsets: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Part the source's own offsets from the number of declared times."""
    return own_offsets(offsets), int(offsets.get(TICKS, 0))


def _unmarked(offsets: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in offsets.items() if key != EMPTY}


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


def current_partition() -> int:
    """Return the number of this task among those of its stage."""
    context = TaskContext.get()
    return context.partitionId() if context else 0


def current_bounds() -> str:
    """Return the bounds of the epoch that this task belongs to, as the epoch writer set them."""
    context = TaskContext.get()
    return (context.getLocalProperty(BOUNDS) if context else None) or ""


def current_epoch() -> int:
    """Return the number of the epoch that this task belongs to."""
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    return int(number) if number is not None else -1
