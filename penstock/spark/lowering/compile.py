"""From a plan to Spark queries, each with its own output mode and watermark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.contracts import Source
from penstock.errors import BadExpression, BadFunction
from penstock.native.program import Program
from penstock.native.translate import program
from penstock.plan.graph import Graph, aside, stateful_above, upstream
from penstock.plan.lanes import Prefix, split_lanes
from penstock.plan.naming import node_id
from penstock.plan.node import Node
from penstock.plan.nodes import EventTime, PythonNode, Read, Side, Write
from penstock.plan.queries import Group, groups, partition_sources, parts_late, time_key
from penstock.plan.replay import varying
from penstock.plan.stateful import Deduplicate, Grouped
from penstock.schema import Field, Schema
from penstock.settings import Settings
from penstock.spark.alone.connector_scan import by_connector, connector_frame
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.layout import read_layout
from penstock.spark.epochs.alignment import Alignment
from penstock.spark.epochs.answers import AnswerStore
from penstock.spark.epochs.clock import NAME as CLOCK
from penstock.spark.epochs.clock import Clock
from penstock.spark.epochs.idle_source import Idle
from penstock.spark.epochs.pacer import USUAL, Limits
from penstock.spark.epochs.scan import Scan
from penstock.spark.hidden import ORDER, ORIGIN
from penstock.spark.lowering import asof, async_nodes, joins, lower_state, process, python_nodes, table_joins  # noqa: F401 (registers their lowerings)
from penstock.spark.lowering.attempts import checked
from penstock.spark.lowering.context import Context, column, with_key
from penstock.spark.lowering.exchange import exchanged, in_source_order, ordering
from penstock.spark.lowering.lower import lower, timed, watermarked
from penstock.spark.lowering.marks import Marks, mark_column
from penstock.spark.lowering.wakeups import NAME as WAKEUPS
from penstock.spark.lowering.wakeups import Wakeups, moved_clock
from penstock.spark.types import type_text
from penstock.windows import ALL_TIMES


@dataclass(frozen=True)
class Query:
    """One Spark query: what it computes, and what the epoch writer needs to know of it."""

    name: str
    mode: str
    frames: tuple[DataFrame, ...]
    outputs: tuple[Write, ...]
    asides: tuple[Write, ...]
    context: Context
    branches: bool
    owned: frozenset[str]


def compile_pipeline(
    spark: SparkSession,
    graph: Graph,
    checkpoint: Checkpoint,
    settings: Settings,
    *,
    closes: bool = False,
    idle: bool = False,
    limits: Limits = USUAL,
) -> tuple[Query, ...]:
    """Compile a whole pipeline; with `closes` it ends with its source, with `idle` its sources give nothing."""
    queries: list[Query] = []
    seen: set[Node] = set()
    for group in groups(graph, known_queries(checkpoint)):
        # Only the first branch that reads a shared exchange sees the watermark below it.
        writes = tuple(sorted(group.writes, key=lambda write: not stateful_above(write)))
        compiler = _Compiler(spark, graph, checkpoint, settings, replace(group, writes=writes), closes, idle, limits)
        queries.append(compiler.query(seen))
        seen |= set(compiler.nodes)
    return tuple(queries)


def known_queries(checkpoint: Checkpoint) -> dict[str, set[str]]:
    """Return the queries of a checkpoint, by the ids of their sinks and of the nodes whose state they keep."""
    change = checkpoint.migration
    layout = read_layout(change.old).renamed(change.changes.renames) if change else read_layout(checkpoint.folder)
    return {
        name: {*(node_id("write", sink) for sink in query.sinks), *(operator.node for operator in query.operators)}
        for name, query in layout.queries.items()
    }


class _Compiler:
    """Lowers the nodes that the outputs of one query reach."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        checkpoint: Checkpoint,
        settings: Settings,
        group: Group,
        closes: bool,
        idle: bool,
        limits: Limits,
    ) -> None:
        self.spark, self.graph, self.checkpoint, self.settings = spark, graph, checkpoint, settings
        self.name, self.outputs, self.closes, self.idle = group.name, group.writes, closes, idle
        self.limits = limits
        self.mode = "update" if group.updating else "append"
        reached = {node for write in self.outputs for node in upstream(write)}
        self.nodes = [node for node in graph.nodes if node in reached]
        self.lanes = split_lanes(graph, settings.lane)
        self.branches = False
        self.apart = self._apart()
        self.context = self._context()

    def query(self, seen: set[Node]) -> Query:
        """Return the query; of what an earlier one has seen, that one counts rows and publishes what is aside."""
        frames = tuple(self._output(write) for write in self.outputs)
        mine = set(self.nodes) - seen
        asides = tuple(write for write in self.graph.writes if self._beside(write, mine))
        behind = {node for write in asides for node in upstream(write)} - set(self.nodes)
        return Query(
            name=self.name,
            mode=self.context.mode,
            frames=frames,
            outputs=self.outputs,
            asides=asides,
            context=self.context,
            branches=self.branches,
            owned=frozenset(self.graph.name(node) for node in mine | behind),
        )

    def _context(self) -> Context:
        context = Context(
            spark=self.spark,
            graph=self.graph,
            lanes=self.lanes,
            staging=self.checkpoint.staging(self.name),
            clock=None,
            rejects=self.graph.rejected_to is not None,
            mode=self.mode,
            cores=self.settings.cores,
            nodes=tuple(self.nodes),
            first_us=self.checkpoint.identity.first_us,
        )
        ours = (p for p in self.lanes.prefixes.values() if not by_connector(p.read.source, self.settings))
        native = {prefix.times for prefix in ours}
        if resumes(self.nodes) or any(isinstance(node, EventTime) and node not in native for node in self.nodes):
            clock = Clock(self.checkpoint.folder)
            context.clock = self._own(CLOCK, clock)
        if any(node.bucketed and not isinstance(node, Deduplicate) for node in self.nodes):
            context.wakeups = self._own(WAKEUPS, Wakeups(self.checkpoint.folder))
            context.moved_clock = moved_clock(self.checkpoint.folder)
        return context

    def _own(self, name: str, source: Source) -> DataFrame:
        """Return the rows of a source that is Penstock's own."""
        return self._scan(name, source, source.schema, Prefix(Read(source=source)), carries=False)

    def _beside(self, write: Write, nodes: set[Node]) -> bool:
        side = aside(write)
        return side is not None and side.input in nodes

    def _output(self, write: Write) -> DataFrame:
        """Return the columns that the sink gets, and what its rows are ordered by."""
        frame = self._frame(write.input)
        rows = frame.select(*map(column, write.schema.names), *ordering(frame, write))
        return with_key(checked(rows, write, self.context), write.sink)

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
            if self._fans_out(node):
                frame = self._shared(frame, node)
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

    def _apart(self) -> frozenset[Node]:
        """Return what each branch computes for itself: an event time that several operators follow, and all after it.

        Spark tells an operator the watermark that it finds below it, and sees nothing below an exchange that was read
        before. So branches share the rows before the event time, and each declares it anew.
        """
        found: set[Node] = set()
        for time in (node for node in self.nodes if isinstance(node, EventTime)):
            after = [node for node in self.nodes if time in upstream(node)]
            operators = [one for write in self.outputs for one in stateful_above(write) if one in after]
            if len(operators) > 1 and any(self._fans_out(node) for node in after):
                found |= set(after)
                found |= {prefix.read for prefix in self.lanes.prefixes.values() if prefix.times == time}
        return frozenset(found)

    def _lowered(self, node: Node) -> DataFrame:
        in_scan = any(node == prefix.times for prefix in self.lanes.prefixes.values())
        if node in self.apart and not isinstance(node, Read) and not in_scan:
            self._begin(node)
        if isinstance(node, Read):
            return self._read(node)
        for prefix in self.lanes.prefixes.values():
            if node in prefix.chain:
                return self._frame(prefix.read)
            if node == prefix.partial and prefix.partial is not None and prefix.split is not None:
                return lower_state.merged(self._frame(prefix.read), prefix.partial, prefix.split, self.context)
        if isinstance(node, Side):
            return python_nodes.flat_output(self._whole(node.input), f"side_{node.output}")
        if node in self.apart and isinstance(node, EventTime):
            return watermarked(self._timed(node), node, self.context)
        frames = (self._frame(one) for one in node.inputs)
        return lower(node, self.context, *(frame.drop(ORIGIN) if node.stateful else frame for frame in frames))

    def _begin(self, node: Node) -> None:
        """Note that a node is lowered for one branch more, which Python's would not bear: it would run for each."""
        again = self.context.begin(node)
        if again and isinstance(node, PythonNode):
            message = "it stands between an event time and several operators with state, and would run for each"
            hint = "declare the event time after it: .map(...).event_time(...)"
            raise BadFunction(message, node=self.graph.label(node), hint=hint)

    def _timed(self, node: EventTime) -> DataFrame:
        """Return the rows of an event time, which branches share, before Spark learns of it."""
        if node not in self.context.frames:
            (frame,) = (self._frame(one) for one in node.inputs)
            self.context.frames[node] = self._shared(timed(frame, node, self.context), node)
        return self.context.frames[node]

    def _fans_out(self, node: Node) -> bool:
        late = (n for n in self.nodes if isinstance(n, Side) and n.put_aside)
        consumers = [n for n in self.nodes if n not in set(late) and any(i == node for i in n.inputs)]
        inside = any(node in p.chain or (node == p.read and p.chain) for p in self.lanes.prefixes.values())
        return len(consumers) > 1 and not (inside and isinstance(node, Read))

    def _shared(self, frame: DataFrame, node: Node) -> DataFrame:
        self.branches = True
        shared = exchanged(frame, self.settings.cores)
        return shared.observe(f"shared:{self.graph.name(node)}", F.count(F.lit(1)).alias("rows"))

    def _read(self, node: Read) -> DataFrame:
        prefix = self.lanes.prefixes[node]
        if node not in self.context.frames:
            frame = self._scan(self.graph.name(node), node.source, node.schema, prefix, carries=self._carries(prefix))
            self.context.frames[node] = self._shared(frame, node) if node in self.apart else frame
        frame = self.context.frames[node]
        if prefix.times is None:
            return frame
        self.context.begin(prefix.times)
        # Our own scan gives declared times among its rows; Spark's connector cannot.
        ticks = by_connector(node.source, self.settings)
        return watermarked(frame, prefix.times, self.context, ticks=ticks)

    def _carries(self, prefix: Prefix) -> bool:
        """Rows carry the watermark when Spark, not the scan, parts the late ones."""
        after = [node for node in self.nodes if prefix.read in upstream(node) and parts_late(node)]
        return any(node != prefix.late or (isinstance(node, Grouped) and node.overlaps) for node in after)

    def _marks(self, name: str) -> Marks:
        """Return what a source's rows are late by; the clock's are asked for before there is a context."""
        marks = self.context.marks if name not in (CLOCK, WAKEUPS) else ()
        return Marks(marks, self.checkpoint.query(self.name), self.checkpoint.records(self.name))

    def _answers(self, name: str) -> AnswerStore | None:
        """Return where a node that is not deterministic stores its answers, if the query has one."""
        if name in (CLOCK, WAKEUPS) or not any(map(varying, self.outputs)):
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
        return [node for node in self.nodes if isinstance(node, EventTime) and read in partition_sources(node)]

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

    def _scan(self, name: str, source: Source, schema: Schema, prefix: Prefix, *, carries: bool) -> DataFrame:
        source = Idle(source) if self.idle else source
        native = self._native(prefix)
        output = native.output if native else schema
        marks = self._marks(name)
        if carries:
            columns = (mark_column(number) for number in range(len(marks.all)))
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
        scan = Scan(
            name=name,
            source=source,
            output=output,
            query=self.name,
            planned=self.checkpoint.query(self.name),
            notes=self.checkpoint.messages(name),
            staging=self.checkpoint.staging(self.name),
            parallelism=self.settings.cores,
            on_error=getattr(source, "on_error", "reject"),
            limits=self.limits if name not in (CLOCK, WAKEUPS) else USUAL,
            marks=marks,
            late_mark=marks.all.index(self.context.mark(prefix.late)) if prefix.late else 0,
            carries_marks=carries,
            order=order,
            by_partition=native_time is not None,
            carries_origin=bool(followed) and native_time is None,
            alignment=self._alignment(name, source, followed),
            program=native,
            ticks=self.checkpoint.folder if prefix.times else None,
            time_key=time_key(prefix.times) if prefix.times else None,
            closes=self.closes,
            answers=self._answers(name),
        )
        if by_connector(source, self.settings):
            return connector_frame(self.spark, scan)
        self.spark.dataSource.register(scan.data_source())
        return self.spark.readStream.format(scan.format).load()


def resumes(nodes: Iterable[Node]) -> bool:
    """Say whether state follows on state in buckets, behind which the watermark has to be declared anew."""
    return any(one.bucketed for node in nodes if node.stateful for one in upstream(node) if one != node)


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
