"""From a plan to Spark queries: one for all final results, and one for updating results if there are any."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.contracts import Source
from penstock.errors import BadExpression, BadFunction
from penstock.native.translate import program
from penstock.plan.graph import Graph, aside, stateful_above, upstream
from penstock.plan.lanes import Prefix, split_lanes
from penstock.plan.node import Node
from penstock.plan.nodes import EventTime, FlatMap, PythonNode, Read, Side, Write
from penstock.schema import Field, Schema
from penstock.settings import Settings
from penstock.spark import lower_state, python_nodes  # registers their lowerings
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.clock import NAME as CLOCK
from penstock.spark.clock import Clock
from penstock.spark.connector_scan import by_connector, connector_frame
from penstock.spark.context import Context, column, with_key
from penstock.spark.hidden import WATERMARK
from penstock.spark.lower import lower, timed, watermarked
from penstock.spark.scan import Idle, Scan


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
) -> tuple[Query, ...]:
    """Compile a whole pipeline; with `closes` it ends with its source, with `idle` its sources give nothing."""
    groups = {"final": [], "updates": []}  # type: dict[str, list[Write]]
    for write in graph.writes:
        if aside(write) is None:
            groups["updates" if write.updating else "final"].append(write)
    queries: list[Query] = []
    seen: set[Node] = set()
    for name, writes in groups.items():
        # Only the first branch that reads a shared exchange sees the watermark below it.
        writes.sort(key=lambda write: not stateful_above(write))
        if writes:
            compiler = _Compiler(spark, graph, checkpoint, settings, name, tuple(writes), closes, idle)
            queries.append(compiler.query(seen))
            seen |= set(compiler.nodes)
    return tuple(queries)


class _Compiler:
    """Lowers the nodes that the outputs of one query reach."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        checkpoint: Checkpoint,
        settings: Settings,
        name: str,
        outputs: tuple[Write, ...],
        closes: bool,
        idle: bool,
    ) -> None:
        self.spark, self.graph, self.checkpoint, self.settings = spark, graph, checkpoint, settings
        self.name, self.outputs, self.closes, self.idle = name, outputs, closes, idle
        reached = {node for write in outputs for node in upstream(write)}
        self.nodes = [node for node in graph.nodes if node in reached]
        self.lanes = split_lanes(graph, settings.lane)
        self.branches = False
        self.apart = self._apart()
        self.context = self._context()

    def query(self, seen: set[Node]) -> Query:
        """Return the query; of what an earlier one has seen, that one counts rows and publishes what is aside."""
        frames = tuple(self._visible(write) for write in self.outputs)
        mine = set(self.nodes) - seen
        asides = tuple(write for write in self.graph.writes if self._beside(write, mine))
        behind = {node for write in asides for node in upstream(write)} - set(self.nodes)
        return Query(
            name=self.name,
            mode="append" if self.name == "final" else "update",
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
        )
        ours = (p for p in self.lanes.prefixes.values() if not by_connector(p.read.source, self.settings))
        native = {prefix.times for prefix in ours}
        if any(isinstance(node, EventTime) and node not in native for node in self.nodes):
            clock = Clock(self.checkpoint.folder)
            context.clock = self._scan(CLOCK, clock, clock.schema, Prefix(Read(source=clock)), carries=False)
        return context

    def _beside(self, write: Write, nodes: set[Node]) -> bool:
        side = aside(write)
        return side is not None and side.input in nodes

    def _visible(self, write: Write) -> DataFrame:
        return with_key(self._frame(write.input).select(*map(column, write.schema.names)), write.sink)

    def _frame(self, node: Node) -> DataFrame:
        """Lower a node once; what several branches share goes through one exchange, and so is computed once."""
        if node in self.apart:
            return self._explained(node)
        if node not in self.context.frames:
            frame = self._explained(node)
            if self._fans_out(node):
                frame = self._shared(frame, node)
            self.context.frames[node] = frame
        frame = self.context.frames[node]
        return python_nodes.flat_output(frame, "main") if isinstance(node, FlatMap) else frame

    def _explained(self, node: Node) -> DataFrame:
        try:
            return self._lowered(node)
        except AnalysisException as error:
            reason = str(error).splitlines()[0]
            message = f"Spark refuses it: {reason}"
            raise BadExpression(message, node=self.graph.label(node)) from error

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
        if node in self.apart and not isinstance(node, Read):
            self._begin(node)
        if isinstance(node, Read):
            return self._read(node)
        for prefix in self.lanes.prefixes.values():
            if node in prefix.chain:
                return self._frame(prefix.read)
            if node == prefix.partial and prefix.partial is not None and prefix.split is not None:
                return lower_state.merged(self._frame(prefix.read), prefix.partial, prefix.split, self.context)
        if isinstance(node, Side):
            self._frame(node.input)
            return python_nodes.flat_output(self.context.frames[node.input], f"side_{node.output}")
        if node in self.apart and isinstance(node, EventTime):
            return watermarked(self._timed(node), node, self.context)
        return lower(node, self.context, *(self._frame(one) for one in node.inputs))

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
        late = (n for n in self.nodes if isinstance(n, Side) and not isinstance(n.input, FlatMap))
        consumers = [n for n in self.nodes if n not in set(late) and any(i == node for i in n.inputs)]
        inside = any(node in p.chain or (node == p.read and p.chain) for p in self.lanes.prefixes.values())
        return len(consumers) > 1 and not (inside and isinstance(node, Read))

    def _shared(self, frame: DataFrame, node: Node) -> DataFrame:
        self.branches = True
        exchanged = frame.repartition(self.settings.cores)
        return exchanged.observe(f"shared:{self.graph.name(node)}", F.count(F.lit(1)).alias("rows"))

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
        after = [node for node in self.nodes if prefix.read in upstream(node) and node.sides and node.stateful]
        return any(node != prefix.late for node in after)

    def _scan(self, name: str, source: Source, schema: Schema, prefix: Prefix, *, carries: bool) -> DataFrame:
        source = Idle(source) if self.idle else source
        extra = self.context.extra_us(prefix.late) if prefix.late else 0
        native = program(prefix, self.graph.names, extra) if prefix.chain or prefix.partial else None
        output = native.output if native else schema
        if carries:
            output = Schema((*output.fields, Field(WATERMARK, "bigint")))
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
            epoch_rows=self.settings.epoch_rows if name != CLOCK else None,
            carries_watermark=carries,
            program=native,
            ticks=self.checkpoint.folder if prefix.times else None,
            closes=self.closes,
        )
        if by_connector(source, self.settings):
            return connector_frame(self.spark, scan)
        self.spark.dataSource.register(scan.data_source())
        return self.spark.readStream.format(scan.format).load()


def tagged(frames: list[DataFrame]) -> DataFrame:
    """Put the outputs of a query in one frame: a single one as it is, several as one column each and a tag."""
    if len(frames) == 1:
        return frames[0]
    kinds = [frame.schema.simpleString() for frame in frames]
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
