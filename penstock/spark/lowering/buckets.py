"""State that Spark has no operator of its own for: one call per bucket of keys and epoch, over Arrow tables.

Spark's Python state is per key, and each key costs a call. Here keys are hashed into a fixed number of buckets. A task,
that of the scan if possible, packs its rows of each bucket into one Arrow blob, Spark brings a bucket's blobs and its
state together, and one call takes them all and gives Arrow back. The state in Spark's own store is the manifest of the
bucket and what was written last; the rest is in runs beside it (`penstock.keyed.store`).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from penstock.errors import PenstockError
from penstock.keyed.store.bucket_store import TAIL_BYTES, BucketStore, RunSettings
from penstock.keyed.store.run_folder import RunFolder
from penstock.native.key_buckets import KeyBuckets
from penstock.plan.operators.node import Node
from penstock.plan.physical.queries import event_times_of
from penstock.plan.physical.watermark_lag import lag_us
from penstock.schema import Field, Schema
from penstock.spark.lowering.context import SPARK_TIME, Context, column, known_to_spark, to_spark
from penstock.spark.tasks.control_journal import MAX_WATERMARK
from penstock.spark.tasks.end_of_stream import OfWholeInput
from penstock.spark.tasks.internal_columns import EVENT_TIME, ORDER
from penstock.spark.tasks.packed_rows import BLOB, BUCKET, MADE, PackedFrame, blob, in_packs, packed, unpacked
from penstock.spark.tasks.spark_types import map_in_arrow, schema_of
from penstock.spark.tasks.staging import Staging
from penstock.spark.tasks.task_context import current_epoch, current_partition
from penstock.spark.tasks.timer_source import clock_shift_us, register_timer
from penstock.storage.folders import Folder
from penstock.windows import FIRST_US, LAST_US, YEAR_US

# Makes a store of the bytes of a bucket's state, and of where its runs are.
Opened = Callable[[bytes | None, RunSettings | None], Any]
OUTPUT_ROWS = 65_536
# The part of a blob without rows: a timer that fires.
_TIMER = -1
_STATE = "state binary, ring_us bigint"
# What blobs are put in order by, and their data.
_PLACED = ("stream", "part", "number", "data")
# For tests: state of any size is written to runs.
TAIL_VARIABLE = "KEYED_TAIL_BYTES"


@dataclass
class Invocation:
    """One call of a step in one epoch, with the rows and state of a bucket; the step leaves the next state in it.

    `watermark_us` is that of this epoch: what is due up to it is due now. The two timers are the event time and the
    processing time at which the bucket has to be called even if nothing is due. `ended`: no row will ever come.
    The step counts in `filtered` the rows that it leaves out. `rows` are those of the first input, `others`
    those of further ones.
    """

    bucket: int
    rows: pa.Table
    store: Any
    watermark_us: int
    now_us: int
    ended: bool = False
    next_event_timer_us: int | None = None
    next_processing_timer_us: int | None = None
    filtered: int = 0
    others: tuple[pa.Table, ...] = ()

    @property
    def streams(self) -> tuple[pa.Table, ...]:
        """The rows of each input."""
        return (self.rows, *self.others)


@dataclass(frozen=True)
class StreamRows:
    """The rows of an input as a frame: packed already, or with the columns to divide them by.

    `schema` is that of the rows. Without a single column to divide them by, all are in one bucket.
    """

    frame: DataFrame
    schema: Schema
    keys: Sequence[Column] | None = None


class Step(Protocol):
    """What is done with a bucket."""

    @property
    def expires_by_watermark(self) -> bool:
        """Whether it is called again when all of the bucket has expired."""

    def __call__(self, call: Invocation) -> Iterable[pa.Table]:
        """Take the rows of a bucket, and yield results."""


def input_schema(frame: DataFrame, node: Node, context: Context) -> Schema:
    """Return the columns of the rows that a node with buckets is given, whether they are packed or not."""
    return context.packed_rows(node) or schema_of(frame)


def bucketed(
    frame: DataFrame,
    keys: Sequence[Column],
    step: Step,
    output: Schema,
    context: Context,
    node: Node,
    *,
    timed: bool,
) -> DataFrame:
    """Run a step over every bucket of keys; with `timed`, what it gives has its event time, so windows can follow."""
    results = _results([_single(frame, keys, context, node)], step, output, context, node, timed=timed)
    return _unpacked(results, context, timed=timed)


def bucketed_streams(
    streams: Sequence[StreamRows], step: Step, output: Schema, context: Context, node: Node, opened: Opened
) -> DataFrame:
    """Run a step over every bucket of the keys of several streams, whose results have no event time.

    `opened` makes the store that the step is given from the bytes of its state. A sink may take the results packed.
    """
    return _counted(_results(streams, step, output, context, node, timed=False, opened=opened), context, node)


def bucketed_results(
    frame: DataFrame, keys: Sequence[Column], step: Step, output: Schema, context: Context, node: Node
) -> DataFrame:
    """Run a step whose rows are the results of the node, with their event time; a sink may take them packed."""
    results = _results([_single(frame, keys, context, node)], step, output, context, node, timed=True)
    return _counted(results, context, node, timed=True)


def _single(frame: DataFrame, keys: Sequence[Column], context: Context, node: Node) -> StreamRows:
    return StreamRows(frame, input_schema(frame, node, context), None if context.packed_rows(node) else keys)


def _counted(results: PackedFrame, context: Context, node: Node, *, timed: bool = False) -> DataFrame:
    """Count the rows of the results, packed and not."""
    if context.clock is None:
        # With a clock the results are united with its rows, also where no window follows: sources must stay the same.
        count = F.coalesce(F.sum("rows"), F.lit(0))
        context.packed_results[node] = PackedFrame(context.counted(results.frame, node, count=count), results.rows)
    return context.counted(_unpacked(results, context, timed=timed), node)


def _results(
    streams: Sequence[StreamRows],
    step: Step,
    output: Schema,
    context: Context,
    node: Node,
    *,
    timed: bool,
    opened: Opened = BucketStore.of,
) -> PackedFrame:
    made = Schema((*output.fields, Field(EVENT_TIME, "timestamp"))) if timed else output
    worker = _worker(step, [one.schema for one in streams], made, context, node, opened)
    blobs = _packed(streams[0], 0, worker, context.buckets)
    for number, one in enumerate(streams[1:], 1):
        blobs = blobs.unionByName(_packed(one, number, worker, context.buckets))
    if context.timers is not None:
        blobs = blobs.unionByName(_fired(context.timers, worker.node))
    has_time = any(EVENT_TIME in one.schema.names for one in streams)
    if has_time:
        blobs = blobs.withColumn("at", known_to_spark(column("at"), "at"))
    timeout = GroupStateTimeout.EventTimeTimeout if has_time else GroupStateTimeout.NoTimeout
    results = blobs.groupBy(BUCKET).applyInPandasWithState(worker.invoke, MADE.ddl, _STATE, context.mode, timeout)
    # The filter drops what is said of state. It also turns Spark's rows into the kind that an Arrow function takes.
    return PackedFrame(context.measured(results, node).filter(F.col("data").isNotNull()), made)


def _worker(step: Step, given: Sequence[Schema], made: Schema, context: Context, node: Node, opened: Opened) -> _Worker:
    return _Worker(
        step,
        tuple(schema.nullable().arrow for schema in given),
        made.nullable().arrow,
        extra_us=context.extra_us(node) - lag_us(node),
        node=context.graph.own_name(node),
        counted_as=context.name(node),
        label=context.graph.label(node),
        staging=context.staging,
        shifted_clock=context.shifted_clock,
        first_us=context.first_us,
        ends_at_us=_ends_at(node, context),
        runs=context.runs_folder(node),
        retention=context.retention,
        shares_runs=context.operators[node] > 1,
        tail_bytes=int(os.environ.get(TAIL_VARIABLE, TAIL_BYTES)),
        opened=opened,
    )


def _unpacked(results: PackedFrame, context: Context, *, timed: bool) -> DataFrame:
    shape = results.rows.nullable().arrow

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from unpacked(batch.column("data"), shape)

    rows = results.frame.select("data").mapInArrow(unpack, results.rows.nullable().ddl)
    return _watermarked(rows, context) if timed else rows


def _packed(stream: StreamRows, number: int, worker: _Worker, buckets: KeyBuckets) -> DataFrame:
    """Pack the rows of a stream in a task of its own, unless the scan did, which computes the same buckets."""
    if stream.keys is None:
        return stream.frame.select(*map(column, BLOB.names))
    place = F.pmod(F.xxhash64(*stream.keys), F.lit(buckets.count)) if stream.keys else F.lit(0)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return worker.pack(number, batches, buckets)

    return map_in_arrow(stream.frame.withColumn(BUCKET, place.cast("int")), pack, BLOB.ddl)


def _ends_at(node: Node, context: Context) -> int:
    """Return the watermark that no row can reach, but the end of input does."""
    return min((context.time_range(time).end_us for time in event_times_of(node)), default=LAST_US)


def _fired(timers: DataFrame, node: str) -> DataFrame:
    """Return a blob without rows for each bucket of a node whose timer fires now."""
    mine = timers.filter(F.col("node") == F.lit(node))
    nulls = [F.lit(None).cast(kind).alias(name) for name, kind in (("at", "timestamp"), ("data", "binary"))]
    return mine.select(
        F.col("bucket").alias(BUCKET),
        *nulls,
        F.lit(0).alias("stream"),
        F.lit(_TIMER).alias("part"),
        F.col("ended").cast("int").alias("number"),
    )


def _watermarked(results: DataFrame, context: Context) -> DataFrame:
    """Let downstream operators know the watermark, which Spark takes for lost downstream of state in Python.

    The union adds no rows, but a watermark of its own: the maximum, which the clock declares once in every run. So the
    query's watermark, the smallest of all, stays what it is, and Spark finds one upstream of what follows.
    """
    if context.clock is None:
        return results
    end = to_spark(F.lit(MAX_WATERMARK), context)
    nulls = [F.lit(None).cast(f.dataType).alias(f.name) for f in results.schema.fields]
    ever = context.clock.select(*nulls, end.alias(SPARK_TIME)).withWatermark(SPARK_TIME, "0 seconds")
    return results.unionByName(ever.filter(column(SPARK_TIME) < end).drop(SPARK_TIME))


@dataclass(frozen=True)
class _Worker(OfWholeInput):
    """What a task needs: the step, and the shapes of what goes in and out."""

    step: Step
    given: tuple[pa.Schema, ...]
    made: pa.Schema
    extra_us: int
    node: str
    counted_as: str
    label: str
    staging: Staging
    shifted_clock: Folder | None
    first_us: int = 0
    ends_at_us: int = LAST_US
    runs: Folder | None = None
    retention: int = 0
    shares_runs: bool = False
    tail_bytes: int = TAIL_BYTES
    opened: Opened = BucketStore.of

    def pack(self, stream: int, batches: Iterator[pa.RecordBatch], buckets: KeyBuckets) -> Iterator[pa.RecordBatch]:
        """Put the rows of each bucket into one blob; their column has its place among all buckets."""
        given = self.given[stream]
        for number, table in in_packs(batches):
            rows = table.select(given.names).cast(given)
            mine = buckets.numbers[table.column(BUCKET).to_numpy()]
            yield packed(rows, mine, stream, current_partition(), number)

    def invoke(self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        """Run the step over the rows and state of a bucket, and store its new state."""
        blobs = [one for frame in frames for one in zip(*(frame[name] for name in _PLACED), strict=True)]
        watermark_us = self._watermark_us(state)
        rows, *others = self._streams(blobs)
        call = Invocation(
            bucket=int(key[0]),
            rows=rows,
            others=tuple(others),
            store=self._opened(int(key[0]), bytes(state.get[0]) if state.exists else None),
            watermark_us=watermark_us,
            now_us=state.getCurrentProcessingTimeMs() * 1000 + clock_shift_us(self.shifted_clock),
            ended=watermark_us >= self.ends_at_us or any((part, number) == (_TIMER, 1) for _, part, number, _ in blobs),
        )
        before = call.store.size
        try:
            with _uncollected():
                made = [(self._blob(part), part.num_rows) for table in self.step(call) for part in _cut(table)]
                self._store(call, state)
        except PenstockError as error:
            error.node = error.node or self.label
            self.staging.put_error(current_epoch(), error)
            raise
        if call.filtered:
            counts = {self.counted_as: {"filtered": call.filtered}}
            self.staging.put_counts(current_epoch(), f"filtered={self.counted_as}={call.bucket}", counts)
        after = call.store.size
        grown = (None, 0, after.rows - before.rows, after.bytes - before.bytes)
        yield pd.DataFrame([*((*one, 0, 0) for one in made), grown], columns=list(MADE.names))

    def _watermark_us(self, state: GroupState) -> int:
        """Return the watermark as event time; before there is one, the earliest time that a row can have."""
        if not state._watermark_present:
            return 0
        found = _spark_watermark_us(state) + self.first_us + self.extra_us
        return max(found, FIRST_US + YEAR_US)

    def _streams(self, blobs: list[tuple[int, int, int, bytes | None]]) -> tuple[pa.Table, ...]:
        """Return the rows of each input."""
        blobs.sort(key=lambda blob: blob[:3])
        batches: list[list[pa.RecordBatch]] = [[] for _ in self.given]
        for stream, _, _, data in blobs:
            if data is not None:
                batches[stream].append(pa.ipc.read_record_batch(pa.py_buffer(data), self.given[stream]))
        tables = map(pa.Table.from_batches, batches, self.given)
        return tuple(map(_ordered, tables))

    def _blob(self, table: pa.Table) -> bytes:
        return blob(table.select(self.made.names).cast(self.made).combine_chunks().to_batches()[0])

    def _opened(self, bucket: int, state: bytes | None) -> Any:
        runs = None
        if self.runs is not None:
            folder = RunFolder(self.runs / str(bucket))
            runs = RunSettings(folder, self.retention, bucket, self.tail_bytes, self.shares_runs)
        return self.opened(state, runs)

    def _store(self, call: Invocation, state: GroupState) -> None:
        """Write a run if it is time for one, and then the manifest and the timers."""
        store = call.store.advanced()
        event, processing = store.next_due()
        if event is None and self.step.expires_by_watermark:
            event = store.last_expiry
        call.store = store.flushed(current_epoch())
        written = call.store.to_bytes()
        event = _first(event, call.next_event_timer_us) if written is not None else None
        processing = _first(processing, call.next_processing_timer_us) if written is not None else None
        if processing != (state.get[1] if state.exists else None):
            register_timer(self.staging, current_epoch(), self.node, call.bucket, processing)
        if written is None:
            if state.exists:
                state.remove()
            return
        state.update((written, processing))
        if event is not None:
            # Spark fires what is older than its watermark, in milliseconds; what is due exactly at it must fire too.
            due_ms = -((self.extra_us + self.first_us - event) // 1000) - 1
            state.setTimeoutTimestamp(max(due_ms, _spark_watermark_us(state) // 1000, 1))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause garbage collection: the rows of a call are many, form no cycles and are freed soon."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _ordered(rows: pa.Table) -> pa.Table:
    """Put rows in the order in which their source has them; after a shuffle that is lost, and event time decides."""
    if ORDER in rows.column_names:
        # The scan packs rows in their order.
        numbers = rows.column(ORDER).to_numpy()
        return rows if bool((numbers[1:] > numbers[:-1]).all()) else rows.sort_by(ORDER)
    if EVENT_TIME not in rows.column_names:
        return rows
    plain = [field.name for field in rows.schema if not pa.types.is_nested(field.type) and field.name != EVENT_TIME]
    return rows.sort_by([(name, "ascending") for name in (EVENT_TIME, *plain)])


def _cut(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, OUTPUT_ROWS):
        yield table.slice(start, OUTPUT_ROWS)


def _first(*times: int | None) -> int | None:
    return min((time for time in times if time is not None), default=None)


def _spark_watermark_us(state: GroupState) -> int:
    return state.getCurrentWatermarkMs() * 1000 if state._watermark_present else 0
