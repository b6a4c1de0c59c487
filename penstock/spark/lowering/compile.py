"""From a plan to Spark queries, each with its own output mode and watermark."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import singledispatchmethod

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.contracts import Source
from penstock.errors import BadExpression, BadFunction
from penstock.native.key_buckets import KeyBuckets
from penstock.native.program import Program
from penstock.native.translate import program
from penstock.plan.graph import Graph, event_times_in, stateful_upstream, upstream
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import EventTime, Read, Side, Write
from penstock.plan.physical.binding import BoundPlan
from penstock.plan.physical.determinism import nondeterministic_upstream
from penstock.plan.physical.lanes import Prefix
from penstock.plan.physical.plan import PlannedQuery
from penstock.plan.physical.queries import partition_sources, splits_late_rows, time_key
from penstock.schema import Field, Schema
from penstock.settings import Settings
from penstock.spark.lowering import asof_joins, joins, lower_state, table_joins, views  # noqa: F401 (registers them)
from penstock.spark.lowering.context import Context, column, with_key
from penstock.spark.lowering.fallible_expressions import checked
from penstock.spark.lowering.job_storage import JobStorage
from penstock.spark.lowering.kept_splits import keeps_splits
from penstock.spark.lowering.lower import lower, timed, watermarked
from penstock.spark.lowering.partitioning import exchanged, in_source_order, ordering
from penstock.spark.lowering.python import functions as python_nodes
from penstock.spark.lowering.python import map_async, process  # noqa: F401 (registers their lowerings)
from penstock.spark.tasks.admission import DEFAULT_LIMITS, Alignment, RateLimits
from penstock.spark.tasks.control_journal import CLOCK, TIMERS, ClockSource
from penstock.spark.tasks.internal_columns import ORDER, ORIGIN, TICK
from penstock.spark.tasks.node_watermarks import Watermarks, watermark_column
from penstock.spark.tasks.packed_rows import PackedFrame, ScanPacker
from penstock.spark.tasks.scan import EmptySource, Scan
from penstock.spark.tasks.source_readers import source_reader
from penstock.spark.tasks.spark_types import type_text
from penstock.spark.tasks.stored_results import AnswerStore
from penstock.spark.tasks.timer_source import TimerSource, shifted_clock
from penstock.windows import ALL_TIMES


@dataclass(frozen=True)
class Query:
    """One Spark query: what it computes, and what the epoch writer needs to know of it.

    `frames` are the rows of each output; `packed` has the same rows in blobs, where they left their buckets so. With
    `keeps_splits` the sink writes the splits of the source as its partitions.
    """

    name: str
    mode: str
    frames: tuple[DataFrame, ...]
    packed: tuple[PackedFrame | None, ...]
    outputs: tuple[Write, ...]
    asides: tuple[Write, ...]
    context: Context
    branches: bool
    owned: frozenset[str]
    keeps_splits: bool


def compile_pipeline(
    spark: SparkSession,
    graph: Graph,
    checkpoint: JobStorage,
    settings: Settings,
    *,
    closes: bool = False,
    idle: bool = False,
    limits: RateLimits = DEFAULT_LIMITS,
) -> tuple[Query, ...]:
    """Compile a whole pipeline; with `closes` it ends with its source, with `idle` its sources give nothing."""
    bound = BoundPlan(checkpoint.plan, graph)
    compilers = (
        _Compiler(spark, bound, query, checkpoint, settings, closes, idle, limits) for query in checkpoint.plan.queries
    )
    return tuple(compiler.query() for compiler in compilers)


class _Compiler:
    """Lowers the nodes that the outputs of one query reach."""

    def __init__(
        self,
        spark: SparkSession,
        bound: BoundPlan,
        planned: PlannedQuery,
        checkpoint: JobStorage,
        settings: Settings,
        closes: bool,
        idle: bool,
        limits: RateLimits,
    ) -> None:
        self.spark, self.graph, self.checkpoint, self.settings = spark, bound.graph, checkpoint, settings
        self.bound, self.planned = bound, planned
        self.name, self.closes, self.idle, self.limits = planned.name, closes, idle, limits
        # Only the first branch that reads a shared exchange sees the watermark below it.
        self.outputs = tuple(sorted(bound.writes(planned.sinks), key=lambda write: not stateful_upstream(write)))
        self.nodes = bound.nodes(planned.nodes)
        self.lanes = bound.lanes()
        self.keeps_splits = keeps_splits(planned, self.outputs, checkpoint.query(planned.name))
        self.shared, self.apart = (frozenset(bound.nodes(ids)) for ids in (planned.shared, planned.per_branch))
        self.context = self._context()

    def query(self) -> Query:
        """Return the query; of what an earlier one computes too, that one counts rows and publishes what is aside."""
        return Query(
            name=self.name,
            mode=self.context.mode,
            frames=tuple(self._output(write) for write in self.outputs),
            packed=tuple(self._packed_output(write) for write in self.outputs),
            outputs=self.outputs,
            asides=self.bound.writes(self.planned.late_sinks),
            context=self.context,
            branches=bool(self.shared),
            owned=frozenset(self.graph.name(node) for node in self.bound.nodes(self.planned.counts)),
            keeps_splits=self.keeps_splits,
        )

    def _context(self) -> Context:
        context = Context(
            spark=self.spark,
            graph=self.graph,
            lanes=self.lanes,
            staging=self.checkpoint.staging(self.name),
            clock=None,
            rejects=self.graph.rejected_to is not None,
            mode=self.planned.mode,
            cores=self.settings.cores,
            nodes=self.nodes,
            first_us=self.checkpoint.first_us,
            runs=self.checkpoint.runs(self.name),
            retention=self.checkpoint.retention,
            buckets=KeyBuckets(self.checkpoint.plan.buckets, even=self.checkpoint.even_buckets),
            operators=Counter(node for write in self.outputs for node in stateful_upstream(write)),
        )
        ours = (p for p in self.lanes.prefixes.values() if source_reader(p.read.source, self.settings).offers_times)
        native = {prefix.times for prefix in ours}
        if self.planned.redeclares_watermark or any(time not in native for time in event_times_in(self.nodes)):
            clock = ClockSource(self.checkpoint.folder)
            context.clock = self._own(CLOCK, clock)
        if self.planned.timers:
            context.timers = self._own(TIMERS, TimerSource(self.checkpoint.folder))
            context.shifted_clock = shifted_clock(self.checkpoint.folder)
        return context

    def _own(self, name: str, source: Source) -> DataFrame:
        """Return the rows of a source that is Penstock's own."""
        return self._scan(name, source, source.schema, Prefix(Read(source=source)), carries=False)

    def _output(self, write: Write) -> DataFrame:
        """Return the columns that the sink gets, and what its rows are ordered by."""
        frame = self._frame(write.input)
        rows = frame.select(*map(column, (*write.schema.names, *write.hidden)), *ordering(frame, write))
        return with_key(checked(rows, write, self.context), write.sink).drop(*write.hidden)

    def _packed_output(self, write: Write) -> PackedFrame | None:
        """Return the rows of an output as their buckets made them, if no other branch of the query needs them."""
        return None if write.input in self.shared | self.apart else self.context.packed_results.get(write.input)

    def _frame(self, node: Node) -> DataFrame:
        """Return the rows of a node; of one with several outputs, the main one's."""
        frame = self._whole(node)
        return python_nodes.flat_output(frame, "main") if python_nodes.OUT in frame.columns else frame

    def _whole(self, node: Node) -> DataFrame:
        """Lower a node once; what several branches share goes through one exchange, and so is computed once."""
        if node in self.apart:
            return self._explained(node)
        if node not in self.context.frames:
            frame = self._explained(node)
            if node in self.shared:
                frame = self._exchange(frame, node)
            self.context.frames[node] = frame
        return self.context.frames[node]

    def _explained(self, node: Node) -> DataFrame:
        try:
            return self._lowered(node)
        except AnalysisException as error:
            reason = re.split(r" SQLSTATE|; line \d", str(error).splitlines()[0])[0]
            message = f"Spark refuses {node.detail}: {reason}"
            hint = "change the expression, or convert what it takes with cast(... as TYPE)"
            raise BadExpression(message, node=self.graph.label(node), hint=hint) from error

    def _lowered(self, node: Node) -> DataFrame:
        prefixes = self.lanes.prefixes
        in_scan = node in prefixes or any(node == prefix.times for prefix in prefixes.values())
        if node in self.apart and not in_scan:
            self._begin(node)
        for prefix in prefixes.values():
            if node in prefix.chain:
                return self._frame(prefix.read)
            if node == prefix.partial and prefix.partial is not None and prefix.split is not None:
                return lower_state.merged(self._frame(prefix.read), prefix.partial, prefix.split, self.context)
        return self._by_kind(node)

    @singledispatchmethod
    def _by_kind(self, node: Node) -> DataFrame:
        """Lower a node; sources, further outputs and event times need more of the query than their inputs."""
        frames = (self._frame(one) for one in node.inputs)
        return lower(node, self.context, *(frame.drop(ORIGIN) if node.stateful else frame for frame in frames))

    @_by_kind.register
    def _side(self, node: Side) -> DataFrame:
        return python_nodes.flat_output(self._whole(node.input), f"side_{node.output}")

    @_by_kind.register
    def _event_time(self, node: EventTime) -> DataFrame:
        if node in self.apart:
            return watermarked(self._timed(node), node, self.context)
        return lower(node, self.context, *(self._frame(one) for one in node.inputs))

    def _begin(self, node: Node) -> None:
        """Note that a node is lowered for one branch more, which Python's would not bear: it would run for each."""
        again = self.context.begin(node)
        if again and not node.repeatable:
            message = "it stands between an event time and several operators with state, and would run for each"
            hint = "declare the event time after it: .map(...).event_time(...)"
            raise BadFunction(message, node=self.graph.label(node), hint=hint)

    def _timed(self, node: EventTime) -> DataFrame:
        """Return the rows of an event time, which branches share, before Spark learns of it."""
        if node not in self.context.frames:
            (frame,) = (self._frame(one) for one in node.inputs)
            self.context.frames[node] = self._exchange(timed(frame, node, self.context), node)
        return self.context.frames[node]

    def _exchange(self, frame: DataFrame, node: Node) -> DataFrame:
        """Send rows through the exchange that branches read them from."""
        shared = exchanged(frame, self.settings.cores)
        return shared.observe(f"shared:{self.graph.name(node)}", F.count(F.lit(1)).alias("rows"))

    @_by_kind.register
    def _read(self, node: Read) -> DataFrame:
        prefix = self.lanes.prefixes[node]
        if node not in self.context.frames:
            frame = self._scan(self.graph.name(node), node.source, node.schema, prefix, carries=self._carries(prefix))
            self.context.frames[node] = self._exchange(frame, node) if node in self.apart else frame
        frame = self.context.frames[node]
        if prefix.times is None:
            return frame
        self.context.begin(prefix.times)
        ticks = not source_reader(node.source, self.settings).offers_times
        return watermarked(frame, prefix.times, self.context, ticks=ticks)

    def _carries(self, prefix: Prefix) -> bool:
        """Rows carry the watermark when Spark, not the scan, parts the late ones."""
        after = [node for node in self.nodes if prefix.read in upstream(node) and splits_late_rows(node)]
        return any(node != prefix.late or node.overlaps for node in after)

    def _watermarks(self, name: str) -> Watermarks:
        """Return what a source's rows are late by; the clock's are asked for before there is a context."""
        specs = self.context.watermarks if name not in (CLOCK, TIMERS) else ()
        return Watermarks(specs, self.checkpoint.query(self.name), self.checkpoint.records(self.name))

    def _answers(self, name: str) -> AnswerStore | None:
        """Return where a node that is not deterministic stores its answers, if the query has one."""
        if name in (CLOCK, TIMERS) or not any(map(nondeterministic_upstream, self.outputs)):
            return None
        return AnswerStore(self.checkpoint.staging(self.name).folder / "answers")

    def _order(self, prefix: Prefix) -> int | None:
        """Rows carry their position when a node or a keyed sink uses it; return the source's number among all."""
        reads = self.graph.reads
        used = any(node.bucketed and prefix.read in upstream(node) for node in self.nodes)
        used = used or any(prefix.read in in_source_order(write) for write in self.outputs)
        return reads.index(prefix.read) if used and prefix.read in reads else None

    def _followed(self, read: Read) -> list[EventTime]:
        """Return the event times that follow the partitions of a source."""
        return [time for time in event_times_in(self.nodes) if read in partition_sources(time)]

    def _alignment(self, name: str, source: Source, followed: list[EventTime]) -> Alignment | None:
        """Return what keeps the partitions of a source together in a backlog."""
        if not followed or not source.partitioned:
            return None
        delays = tuple((time_key(time), time.max_delay_us) for time in followed)
        return Alignment(name, delays, self.checkpoint.query(self.name), self.checkpoint.records(self.name))

    def _native(self, prefix: Prefix) -> Program | None:
        if not prefix.chain and not prefix.partial:
            return None
        times = self.context.time_range(prefix.times) if prefix.times else ALL_TIMES
        return program(prefix, self.graph.names, rejects=self.graph.rejected_to is not None, time_range=times)

    def _packer(self, prefix: Prefix, given: Schema) -> ScanPacker | None:
        """Return what packs the rows of a scan, which have these columns, for the buckets of the next node."""
        node = prefix.packed
        if node is None:
            return None
        rows = Schema(tuple(field for field in given if field.name not in (TICK, ORIGIN)))
        self.context.packed[prefix.last, node] = rows
        keys = node.packed_by(prefix.last) or ()
        return ScanPacker(keys, self.context.buckets, rows, node.inputs.index(prefix.last))

    def _scan(self, name: str, source: Source, schema: Schema, prefix: Prefix, *, carries: bool) -> DataFrame:
        source = EmptySource(source) if self.idle else source
        native = self._native(prefix)
        output = native.output if native else schema
        watermarks = self._watermarks(name)
        if carries:
            columns = (watermark_column(number) for number in range(len(watermarks.all)))
            output = Schema((*output.fields, *(Field(name, "bigint") for name in columns)))
        order = self._order(prefix)
        if order is not None:
            output = Schema((*output.fields, Field(ORDER, "bigint")))
        followed = self._followed(prefix.read)
        native_time = prefix.times if prefix.times in followed else None
        if native_time is not None:
            self.context.partitioned.add(native_time)
        elif followed:
            output = Schema((*output.fields, Field(ORIGIN, "bigint")))
        packer = self._packer(prefix, output)
        scan = Scan(
            name=name,
            source=source,
            output=packer.output if packer else output,
            query=self.name,
            planned=self.checkpoint.query(self.name),
            messages=self.checkpoint.messages(name),
            staging=self.checkpoint.staging(self.name),
            parallelism=self.settings.cores,
            on_error=getattr(source, "on_error", "reject"),
            limits=self.limits if name not in (CLOCK, TIMERS) else DEFAULT_LIMITS,
            watermarks=watermarks,
            late_watermark=watermarks.all.index(self.context.watermark(prefix.late)) if prefix.late else 0,
            carries_watermarks=carries,
            order=order,
            by_partition=native_time is not None,
            carries_origin=bool(followed) and native_time is None,
            alignment=self._alignment(name, source, followed),
            program=native,
            packer=packer,
            ticks=self.checkpoint.folder if prefix.times else None,
            time_key=time_key(prefix.times) if prefix.times else None,
            closes=self.closes,
            answers=self._answers(name),
            marks_splits=self.keeps_splits,
        )
        return source_reader(source, self.settings).frame(self.spark, scan)


def tagged(frames: list[DataFrame]) -> DataFrame:
    """Put the outputs of a query in one frame: a single one as it is, several as one column each and a tag."""
    if len(frames) == 1:
        return frames[0]
    kinds = [type_text(frame.schema) for frame in frames]
    parts = []
    for number, frame in enumerate(frames):
        columns = [
            F.struct(*map(column, frame.columns)).alias(f"o{i}")
            if i == number
            else F.lit(None).cast(kind).alias(f"o{i}")
            for i, kind in enumerate(kinds)
        ]
        parts.append(frame.select(F.lit(number).alias("tag"), *columns))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole
