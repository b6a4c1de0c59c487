"""From a plan to queries without Python: one for each sink, one for the rejected rows of each source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.contracts import Sink
from penstock.errors import BadExpression
from penstock.plan.graph import Graph, event_times_in, reads_in, upstream
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Read, Write
from penstock.plan.physical.binding import BoundPlan
from penstock.plan.physical.plan import PlannedQuery
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.lowering import lower_state  # noqa: F401 - registers its lowerings
from penstock.spark.lowering.context import Context, column
from penstock.spark.lowering.lower import lower
from penstock.spark.runs.kafka_connector.payload_columns import POSITION, REASON, records, rejected, rows
from penstock.spark.tasks.source_readers import connector_records

BAD_ROW = "penstock: bad row at "


@dataclass(frozen=True)
class ConnectorQuery:
    """One Spark query: the records it writes, and the nodes whose rows it counts."""

    name: str
    frame: DataFrame
    sink: Sink
    output: str
    reads: tuple[Read, ...]
    nodes: tuple[Node, ...]
    lateness_us: int = 0

    @property
    def stateful(self) -> Node | None:
        """The one stateful node, if there is one."""
        return next((node for node in self.nodes if node.stateful), None)


def compile_connector_queries(
    spark: SparkSession, graph: Graph, checkpoint: Checkpoint, epoch_rows: int | None
) -> tuple[ConnectorQuery, ...]:
    """Compile a whole pipeline; `epoch_rows` is the most that an epoch reads of each source, where there are epochs."""
    compiler = _Compiler(spark, BoundPlan(checkpoint.plan, graph), checkpoint, epoch_rows)
    return tuple(map(compiler.query, checkpoint.plan.queries))


def task_slots(graph: Graph, settings: Settings) -> int:
    """Return how many tasks run at once in real-time mode: all tasks of all stages do, from batch to batch."""
    parts = {read: _partitions(read) for read in graph.reads}
    side = sum(parts.values()) if graph.rejected_to is not None else 0
    return side + sum(_tasks(list(upstream(write)), parts, settings.cores) for write in graph.writes)


def _partitions(read: Read) -> int:
    topic: Any = read.source
    described = topic.cluster.describe(topic.name)
    return len(described.partitions) if described else 1


def _tasks(nodes: list[Node], parts: dict[Read, int], shuffled: int) -> int:
    scanned = sum(parts[read] for read in reads_in(nodes))
    return scanned + (shuffled if any(node.stateful for node in nodes) else 0)


class _Compiler:
    """Lowers nodes by the same rules as for micro-batches, downstream of rows that Spark itself parses."""

    def __init__(self, spark: SparkSession, bound: BoundPlan, checkpoint: Checkpoint, epoch_rows: int | None) -> None:
        self.bound, self.graph = bound, bound.graph
        self.limit = {} if epoch_rows is None else {"maxOffsetsPerTrigger": str(epoch_rows)}
        self.context = Context(
            spark=spark,
            graph=bound.graph,
            lanes=bound.lanes(),
            staging=checkpoint.staging("connected"),
            clock=None,
            rejects=bound.graph.rejected_to is not None,
            calls_python=False,
        )

    def query(self, planned: PlannedQuery) -> ConnectorQuery:
        """Compile a query: the rows of an output, or the rejected rows of a source."""
        sink = self.graph.rejected_to
        if planned.rejected_from is None or sink is None:
            (write,) = self.bound.writes(planned.sinks)
            return self._output(write, planned)
        (read,) = (one for one in self.graph.reads if self.graph.id(one) == planned.rejected_from)
        frame = records(rejected(self._parsed(read), self.graph.name(read)), sink)
        return ConnectorQuery(planned.name, frame, sink, sink.name, (read,), ())

    def _output(self, write: Write, planned: PlannedQuery) -> ConnectorQuery:
        nodes = self.bound.nodes(planned.nodes)
        frame = records(self._frame(write.input).select(*map(column, write.schema.names)), write.sink)
        lateness = max(map(self.context.lateness_us, event_times_in(nodes)), default=0)
        name, sink = self.graph.own_name(write), write.sink
        return ConnectorQuery(planned.name, frame, sink, name, reads_in(nodes), nodes, lateness)

    def _frame(self, node: Node) -> DataFrame:
        if node not in self.context.frames:
            try:
                made = self._lowered(node)
            except AnalysisException as error:
                message = f"Spark refuses it: {str(error).splitlines()[0]}"
                raise BadExpression(message, node=self.graph.label(node)) from error
            self.context.frames[node] = made
        return self.context.frames[node]

    @singledispatchmethod
    def _lowered(self, node: Node) -> DataFrame:
        return lower(node, self.context, *(self._frame(one) for one in node.inputs))

    @_lowered.register
    def _read(self, read: Read) -> DataFrame:
        bad = column(REASON).isNotNull()
        counts = F.count(F.lit(1)).alias("rows"), F.count_if(bad).alias("rejected")
        # Nothing is pushed past a count: every record is checked as a whole, whatever is filtered later.
        counted = self._parsed(read).observe(f"in:{self.graph.name(read)}", *counts)
        return counted.filter(~bad).select(*map(column, read.schema.names))

    def _parsed(self, read: Read) -> DataFrame:
        fetched = connector_records(self.context.spark, read.source, **self.limit)
        parsed = rows(fetched, read.source.spec() or {})
        if not _fails(read):
            return parsed
        said = F.concat(F.lit(BAD_ROW), POSITION, F.lit(": "), REASON)
        return parsed.withColumn(REASON, F.when(column(REASON).isNotNull(), F.raise_error(said).cast("string")))


def _fails(read: Read) -> bool:
    return bool((read.source.spec() or {})["on_error"] == "fail")
