"""What lowerings share while one query is compiled, and event time as Spark's watermark counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.contracts import ROW_KEY, ROW_REMOVED, Sink
from penstock.native.key_buckets import KeyBuckets
from penstock.plan.graph import Graph, event_times_in, upstream
from penstock.plan.operators.grouped import Grouped
from penstock.plan.operators.node import BUCKETS, Node
from penstock.plan.operators.stateless import EventTime
from penstock.plan.physical.lanes import Lanes
from penstock.plan.physical.queries import event_times_of, splits_late_rows, time_key
from penstock.plan.physical.watermark_lag import time_range
from penstock.schema import Schema, quoted
from penstock.spark.tasks.internal_columns import EVENT_TIME, OTHER_WINDOW, PREFIX, TICK, internal_columns
from penstock.spark.tasks.node_watermarks import WatermarkSpec, watermark_column
from penstock.spark.tasks.packed_rows import PackedFrame
from penstock.spark.tasks.staging import Staging
from penstock.storage.file_names import file_name
from penstock.storage.folders import Folder
from penstock.windows import TimeRange

# What Spark observes of the state of nodes in buckets.
STATE = "state"


@dataclass
class Context:
    """One query that is being compiled; `nodes` are those that it computes.

    `first_us` is the time that is zero in Spark. Where Python is not called, no row is staged. `partitioned`
    are the event times that follow the slowest partition of their sources. `packed` are the columns of the rows that a
    scan packs for a node, by the input they are of and the node; `packed_results` the nodes whose results leave their
    buckets as they are.
    """

    spark: SparkSession
    graph: Graph
    lanes: Lanes
    staging: Staging
    clock: DataFrame | None
    rejects: bool
    mode: str = "append"
    cores: int = 1
    streaming: bool = True
    # Where the runs of keyed state are, and for how many epochs unused ones are kept; without a folder there are none.
    runs: Folder | None = None
    retention: int = 0
    # What keys are divided into.
    buckets: KeyBuckets = field(default_factory=lambda: KeyBuckets(BUCKETS))
    # How many operators each node with state has: one in each branch that computes it.
    operators: Counter[Node] = field(default_factory=Counter)
    timers: DataFrame | None = None
    shifted_clock: Folder | None = None
    nodes: tuple[Node, ...] = ()
    first_us: int = 0
    calls_python: bool = True
    partitioned: set[EventTime] = field(default_factory=set)
    packed: dict[tuple[Node, Node], Schema] = field(default_factory=dict)
    packed_results: dict[Node, PackedFrame] = field(default_factory=dict)
    frames: dict[Node, DataFrame] = field(default_factory=dict)
    _times: Counter[Node] = field(default_factory=Counter)

    def begin(self, node: Node) -> bool:
        """Lower a node that each branch computes for itself; return whether another branch has lowered it before."""
        self._times[node] += 1
        return self.again(node)

    def again(self, node: Node) -> bool:
        """Say whether a node is lowered once more: then its rows were counted and staged already."""
        return self._times[node] > 1

    def packed_rows(self, node: Node, number: int = 0) -> Schema | None:
        """Return the columns of the rows of an input that a scan packs for a node; None if it does not."""
        return self.packed.get((node.inputs[number], node))

    def runs_folder(self, node: Node) -> Folder | None:
        """Return the folder for the runs of a node's state."""
        return self.runs and self.runs / file_name(self.graph.own_name(node))

    def name(self, node: Node) -> str:
        """The node's name."""
        return self.graph.name(node)

    def counted(self, frame: DataFrame, node: Node, *, count: Column | None = None, output: str = "") -> DataFrame:
        """Count the rows that leave a node, or one of its outputs; nothing is pushed past it: a barrier too."""
        if not self.streaming:
            return frame
        # Of a node that several branches compute, only the first is counted; the other counts are barriers only.
        kind = f"again{self._times[node]}" if self.again(node) else "out"
        name = f"{kind}:{self.name(node)}" + (f":{output}" if output else "")
        newest = [one for time in event_times_in([node]) for one in self._newest(time)]
        return frame.observe(name, (F.count(F.lit(1)) if count is None else count).alias("rows"), *newest)

    def measured(self, results: DataFrame, node: Node) -> DataFrame:
        """Observe by how much the state of a node in buckets has grown."""
        if not self.streaming:
            return results
        kind = f"{STATE}-again{self._times[node]}" if self.again(node) else STATE
        sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("state_rows", "state_bytes"))
        return results.observe(f"{kind}:{self.name(node)}", *sums)

    def _newest(self, node: EventTime) -> list[Column]:
        """The newest time that enters an event time; declared times count too.

        Where it follows partitions, tasks stage theirs (`source_partitions.py`), and only declared times are observed.
        """
        at = F.unix_micros(F.col(EVENT_TIME))
        return [F.max(F.when(F.col(TICK), at) if node in self.partitioned else at).alias("newest")]

    def lateness_us(self, node: EventTime) -> int:
        """The longest lateness that a window of this query after this event time allows."""
        nodes = self.nodes or self.graph.nodes
        return max((one.lateness_us for one in nodes if node in upstream(one)), default=0)

    def extra_us(self, node: Node) -> int:
        """How far Spark's one watermark lags that of a node with less lateness than the longest.

        Downstream of another window it is 0: its results come as late as Spark's watermark does.
        """
        windows = [one for one in upstream(node) if one.window is not None and one != node]
        ahead = (
            0 if any(time in upstream(window) for window in windows) else self.lateness_us(time) - node.lateness_us
            for time in event_times_of(node)
        )
        return min(ahead, default=0)

    def watermark(self, node: Node) -> WatermarkSpec:
        """The watermark that a node uses: the smallest of the event times that its rows came through."""
        return self._spec(event_times_of(node))

    @property
    def query_watermark(self) -> WatermarkSpec:
        """The watermark of the query: the smallest of all its event times."""
        return self._spec(event_times_in(self.nodes))

    @property
    def watermarks(self) -> tuple[WatermarkSpec, ...]:
        """The watermarks of all nodes of the query that divert late rows."""
        return tuple(dict.fromkeys(self.watermark(node) for node in self.nodes if splits_late_rows(node)))

    def watermark_column(self, node: Node) -> str:
        """The internal column that carries the watermark of a node."""
        return watermark_column(self.watermarks.index(self.watermark(node)))

    def time_range(self, node: EventTime) -> TimeRange:
        """The range of times that an event time accepts."""
        return time_range(node, self.nodes or self.graph.nodes, self.first_us)

    def _spec(self, times: Sequence[EventTime]) -> WatermarkSpec:
        allowed = min((self.lateness_us(time) for time in times), default=0)
        return WatermarkSpec(
            tuple(sorted({(time_key(time), time.max_delay_us) for time in times})), allowed, self.first_us
        )


def column(name: str) -> Column:
    """A column by its bare name, whatever characters it has."""
    return F.col(f"`{name.replace('`', '``')}`")


def with_key(frame: DataFrame, sink: Sink) -> DataFrame:
    """Add the key of each row as bytes, and whether it removes its key, if the sink asks for them."""
    added = {}
    if sink.row_key is not None:
        added[ROW_KEY] = F.expr(sink.row_key).cast("string").cast("binary")
    if sink.row_removed is not None:
        added[ROW_REMOVED] = F.coalesce(F.expr(sink.row_removed), F.lit(False))
    return frame.withColumns(added) if added else frame


def carried_columns(frame: DataFrame) -> list[Column]:
    """The internal columns of a frame, to be carried along."""
    return [column(name) for name in internal_columns(frame.columns)]


def row(node: Node) -> Column:
    """A whole row of a node's output as one struct."""
    return F.struct(*(column(name) for name in node.schema.names))


def sql_name(name: str) -> str:
    """A bare name as SQL."""
    return quoted(name)


SPARK_TIME = PREFIX + "spark_time"
DELAY_KEY = "spark.watermarkDelayMs"


def time_column(node: EventTime, context: Context) -> str:
    """Return the column by which Spark follows an event time; its watermark operator is found by that name."""
    return f"{SPARK_TIME}_{context.nodes.index(node)}" if node in context.nodes else SPARK_TIME


def to_spark(time: Column, context: Context, later_us: int = 0) -> Column:
    """Return an event time as Spark counts it, so much later."""
    return F.timestamp_micros(F.unix_micros(time) + F.lit(later_us - context.first_us))


def from_spark(time: Column, context: Context, later_us: int = 0) -> Column:
    """Return what Spark counts as an event time, so much later."""
    return F.timestamp_micros(F.unix_micros(time) + F.lit(later_us + context.first_us))


def known_to_spark(time: Column, name: str) -> Column:
    """Let Spark know that a column is one that its watermark is compared with."""
    return time.alias(name, metadata={DELAY_KEY: 0})


def with_spark_time(frame: DataFrame, context: Context, later_us: int = 0) -> DataFrame:
    """Add the column for Spark's own windows, so much later than the event time."""
    return frame.withColumn(SPARK_TIME, known_to_spark(to_spark(column(EVENT_TIME), context, later_us), SPARK_TIME))


def window_name(node: Grouped) -> str:
    """Return the name of Spark's window in its state: "window", unless a column of the results has that name."""
    return OTHER_WINDOW if "window" in node.schema.names else "window"
