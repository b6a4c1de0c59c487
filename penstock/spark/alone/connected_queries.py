"""From a plan to queries without Python: one for each sink, one for the rejected rows of each source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.contracts import Sink
from penstock.errors import BadExpression
from penstock.plan.graph import Graph, upstream
from penstock.plan.lanes import split_lanes
from penstock.plan.node import Node
from penstock.plan.nodes import EventTime, Read, Write
from penstock.settings import Settings
from penstock.spark.alone.connector_scan import connector_records
from penstock.spark.alone.payload_columns import PLACE, REASON, records, rejected, rows
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.lowering import lower_state  # noqa: F401 - registers its lowerings
from penstock.spark.lowering.context import Context, column
from penstock.spark.lowering.lower import lower

BAD_ROW = "penstock: bad row at "


@dataclass(frozen=True)
class ConnectedQuery:
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
        """The one node that keeps state, if there is one."""
        return next((node for node in self.nodes if node.stateful), None)


def connected_queries(
    spark: SparkSession, graph: Graph, checkpoint: Checkpoint, epoch_rows: int | None
) -> tuple[ConnectedQuery, ...]:
    """Compile a whole pipeline; `epoch_rows` is the most that an epoch reads of each source, where there are epochs."""
    compiler = _Compiler(spark, graph, checkpoint, epoch_rows)
    queries = [compiler.output(write) for write in graph.writes]
    if graph.rejected_to is not None:
        queries += [compiler.rejected(read, graph.rejected_to) for read in graph.reads if not _fails(read)]
    return tuple(queries)


def task_slots(graph: Graph, settings: Settings) -> int:
    """Return how many tasks run at once in real-time mode: all tasks of all stages do, from batch to batch."""
    parts = {read: _partitions(read) for read in graph.reads}
    aside = sum(parts.values()) if graph.rejected_to is not None else 0
    return aside + sum(_tasks(list(upstream(write)), parts, settings.cores) for write in graph.writes)


def _partitions(read: Read) -> int:
    topic: Any = read.source
    described = topic.cluster.describe(topic.name)
    return len(described.partitions) if described else 1


def _tasks(nodes: list[Node], parts: dict[Read, int], shuffled: int) -> int:
    scanned = sum(parts[node] for node in nodes if isinstance(node, Read))
    return scanned + (shuffled if any(node.stateful for node in nodes) else 0)


class _Compiler:
    """Lowers nodes by the same rules as epochs are, behind rows that Spark itself parses."""

    def __init__(self, spark: SparkSession, graph: Graph, checkpoint: Checkpoint, epoch_rows: int | None) -> None:
        self.graph = graph
        self.limit = {} if epoch_rows is None else {"maxOffsetsPerTrigger": str(epoch_rows)}
        self.context = Context(
            spark=spark,
            graph=graph,
            lanes=split_lanes(graph, "spark"),
            staging=checkpoint.staging("connected"),
            clock=None,
            rejects=graph.rejected_to is not None,
            calls_python=False,
        )

    def output(self, write: Write) -> ConnectedQuery:
        name, reached = self.graph.own_name(write), set(upstream(write))
        nodes = tuple(node for node in self.graph.nodes if node in reached)
        frame = self._frame(write.input).select(*map(column, write.schema.names))
        reads = tuple(node for node in nodes if isinstance(node, Read))
        times = [node for node in nodes if isinstance(node, EventTime)]
        lateness = max(map(self.context.lateness_us, times), default=0)
        return ConnectedQuery(f"to-{name}", records(frame, write.sink), write.sink, name, reads, nodes, lateness)

    def rejected(self, read: Read, sink: Sink) -> ConnectedQuery:
        name = self.graph.name(read)
        frame = records(rejected(self._parsed(read), name), sink)
        return ConnectedQuery(f"rejected-{name}", frame, sink, sink.name, (read,), ())

    def _frame(self, node: Node) -> DataFrame:
        if node not in self.context.frames:
            try:
                inputs = [self._frame(one) for one in node.inputs]
                made = self._read(node) if isinstance(node, Read) else lower(node, self.context, *inputs)
            except AnalysisException as error:
                message = f"Spark refuses it: {str(error).splitlines()[0]}"
                raise BadExpression(message, node=self.graph.label(node)) from error
            self.context.frames[node] = made
        return self.context.frames[node]

    def _read(self, read: Read) -> DataFrame:
        bad = column(REASON).isNotNull()
        counts = F.count(F.lit(1)).alias("rows"), F.count_if(bad).alias("rejected")
        # Nothing is pushed past a count: every record is looked at whole, whatever is filtered later.
        counted = self._parsed(read).observe(f"in:{self.graph.name(read)}", *counts)
        return counted.filter(~bad).select(*map(column, read.schema.names))

    def _parsed(self, read: Read) -> DataFrame:
        fetched = connector_records(self.context.spark, read.source, **self.limit)
        parsed = rows(fetched, read.source.spec() or {})
        if not _fails(read):
            return parsed
        said = F.concat(F.lit(BAD_ROW), PLACE, F.lit(": "), REASON)
        return parsed.withColumn(REASON, F.when(column(REASON).isNotNull(), F.raise_error(said).cast("string")))


def _fails(read: Read) -> bool:
    return bool((read.source.spec() or {})["on_error"] == "fail")
