"""What the lowerings share while one query is compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.contracts import ROW_KEY, ROW_REMOVED, Sink
from penstock.folders import Folder
from penstock.plan.graph import Graph, upstream
from penstock.plan.lanes import Lanes
from penstock.plan.node import Node
from penstock.plan.nodes import EventTime
from penstock.plan.queries import parts_late, time_key, times_of
from penstock.plan.stateful import Grouped
from penstock.plan.time_range import time_range
from penstock.schema import quoted
from penstock.spark.epochs.staging import Staging
from penstock.spark.hidden import EVENT_TIME, TICK, hidden
from penstock.spark.lowering.marks import Mark, mark_column
from penstock.windows import TimeRange


@dataclass
class Context:
    """One query in the making; `nodes` are those that it computes.

    `first_us` is the time that Spark's zero stands for. Where Python is not called, no row is put aside. `partitioned`
    are the event times that follow the slowest partition of their sources.
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
    wakeups: DataFrame | None = None
    moved_clock: Folder | None = None
    nodes: tuple[Node, ...] = ()
    first_us: int = 0
    calls_python: bool = True
    partitioned: set[EventTime] = field(default_factory=set)
    frames: dict[Node, DataFrame] = field(default_factory=dict)
    _times: Counter[Node] = field(default_factory=Counter)

    def begin(self, node: Node) -> bool:
        """Lower a node that each branch computes for itself; say whether another branch has it already."""
        self._times[node] += 1
        return self.again(node)

    def again(self, node: Node) -> bool:
        """Say whether a node is lowered once more: then its rows were counted and put aside already."""
        return self._times[node] > 1

    def name(self, node: Node) -> str:
        """The node's name."""
        return self.graph.name(node)

    def counted(self, frame: DataFrame, node: Node, *, rows: Column | None = None, output: str = "") -> DataFrame:
        """Count the rows that leave a node, or one of its outputs; nothing is pushed past it: a barrier too."""
        if not self.streaming:
            return frame
        # Of a node that several branches compute, the first one's count is told; the others are barriers only.
        kind = f"again{self._times[node]}" if self.again(node) else "out"
        name = f"{kind}:{self.name(node)}" + (f":{output}" if output else "")
        newest = self._newest(node) if isinstance(node, EventTime) else []
        return frame.observe(name, F.count(F.lit(1) if rows is None else rows).alias("rows"), *newest)

    def _newest(self, node: EventTime) -> list[Column]:
        """The newest time that enters an event time; declared times count too.

        Where it follows partitions, tasks leave theirs (`origins.py`), and the declared times are observed alone.
        """
        at = F.unix_micros(F.col(EVENT_TIME))
        return [F.max(F.when(F.col(TICK), at) if node in self.partitioned else at).alias("newest")]

    def lateness_us(self, node: EventTime) -> int:
        """The longest lateness that a window of this query after this event time allows."""
        nodes = self.nodes or self.graph.nodes
        windows = (n for n in nodes if isinstance(n, Grouped) and node in upstream(n))
        return max((window.lateness_us for window in windows), default=0)

    def extra_us(self, node: Node) -> int:
        """How far Spark's one watermark is behind that of a node with less lateness than the longest.

        Behind another window nothing: its results come as late as Spark's watermark does.
        """
        own = node.lateness_us if isinstance(node, Grouped) else 0
        windows = [one for one in upstream(node) if isinstance(one, Grouped) and one != node]
        ahead = (
            0 if any(time in upstream(window) for window in windows) else self.lateness_us(time) - own
            for time in times_of(node)
        )
        return min(ahead, default=0)

    def mark(self, node: Node) -> Mark:
        """The watermark that a node goes by: the smallest of the event times that its rows came through."""
        return self._mark(times_of(node))

    @property
    def whole_mark(self) -> Mark:
        """The watermark of the query: the smallest of all its event times."""
        return self._mark([node for node in self.nodes if isinstance(node, EventTime)])

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The marks of all nodes of the query that put late rows aside."""
        return tuple(dict.fromkeys(self.mark(node) for node in self.nodes if parts_late(node)))

    def mark_column(self, node: Node) -> str:
        """The hidden column that carries the watermark of a node."""
        return mark_column(self.marks.index(self.mark(node)))

    def time_range(self, node: EventTime) -> TimeRange:
        """The times that an event time takes."""
        return time_range(node, self.nodes or self.graph.nodes, self.first_us)

    def _mark(self, times: Sequence[EventTime]) -> Mark:
        allowed = min((self.lateness_us(time) for time in times), default=0)
        return Mark(tuple(sorted({(time_key(time), time.max_delay_us) for time in times})), allowed, self.first_us)


def column(name: str) -> Column:
    """A column by its bare name, whatever signs it holds."""
    return F.col(f"`{name.replace('`', '``')}`")


def with_key(frame: DataFrame, sink: Sink) -> DataFrame:
    """Add the key of each row as bytes, and whether it removes its key, if the sink asks for them."""
    added = {}
    if sink.row_key is not None:
        added[ROW_KEY] = F.expr(sink.row_key).cast("string").cast("binary")
    if sink.row_removed is not None:
        added[ROW_REMOVED] = F.coalesce(F.expr(sink.row_removed), F.lit(False))
    return frame.withColumns(added) if added else frame


def keep_hidden(frame: DataFrame) -> list[Column]:
    """The hidden columns of a frame, to be carried along."""
    return [column(name) for name in hidden(frame.columns)]


def row(node: Node) -> Column:
    """A whole row of a node's output as one struct."""
    return F.struct(*(column(name) for name in node.schema.names))


def sql_name(name: str) -> str:
    """A bare name as SQL."""
    return quoted(name)
