"""The running query inside the JVM: what Penstock reads from an epoch's execution there, and what it sets.

All of it goes through Py4J to classes of Spark that have no Python side. `observed` is the row counts of an epoch,
`DroppedRows` makes sure that Spark's state dropped none, `SparkWatermark` lets it follow the slowest partition.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import SparkFailed

# The partial functions by which Spark itself collects operators of a plan: their progress, and watermark operators.
_STATE_OPERATORS = "ProgressContext$$anonfun$extractStateOperatorMetrics$2"
_WATERMARK_OPERATORS = "WatermarkTracker$$anonfun$2"


class RunningQuery:
    """One query of Spark; its epochs may ask for it before `start` has returned it, and wait until then."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._query: StreamingQuery | None = None
        self._started = threading.Event()
        self._collectors: dict[str, Any] = {}

    def started(self, query: StreamingQuery) -> None:
        """Set the query, now that Spark has started it."""
        self._query = query
        self._started.set()

    @property
    def execution(self) -> Any:
        """Spark's execution of the epoch that is running."""
        return self._stream.lastExecution()

    def observed(self) -> str:
        """Return the metrics of the epoch as text: every step into the map would be a call to the JVM."""
        return str(self.execution.observedMetrics().toString())

    def operators(self, collector: str) -> list[Any]:
        """Return what a partial function of Spark's collects from the epoch's plan."""
        if collector not in self._collectors:
            # Kept, for each part of the name is a call to the JVM. Spark uses nothing of the context it is made in.
            jvm: Any = self.spark._jvm
            made = getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, collector)(None)
            self._collectors[collector] = made
        found = self.execution.executedPlan().collect(self._collectors[collector])
        return [found.apply(number) for number in range(found.size())]

    @cached_property
    def _stream(self) -> Any:
        self._started.wait()
        assert self._query is not None
        return self._query._jsq.streamingQuery()


@dataclass(frozen=True)
class DroppedRows:
    """Checks that Spark's state dropped no row by its own watermark: Penstock separates late rows before.

    Spark counts such rows in a metric and reports nothing else. An epoch in which the metric is not 0 lost rows that no
    output and no count of late rows has, so it must not be committed. `nodes` are the stateful operators of the query,
    in Spark's order.

    Most sinks are committed by the driver, after all tasks of an epoch. Where one is committed by its tasks
    (`in_tasks`), the stages before these run first, so that the check comes before any sink has the epoch.
    """

    query: RunningQuery
    nodes: Sequence[str]
    in_tasks: bool

    def before_last_stage(self) -> None:
        """Run all stages of the epoch but the last, where tasks commit sinks, and check them."""
        if not self.in_tasks:
            return
        context = self.query.spark._jsc.sc()
        rdd = self.query.execution.toRdd()
        # The shuffles that the last stage reads; when the epoch is run, Spark finds their output there.
        shuffles = context.dagScheduler().getShuffleDependenciesAndResourceProfiles(rdd)._1().toSeq()
        found = [shuffles.apply(number) for number in range(shuffles.size())]
        # In the order in which they were made: Spark cannot submit a stage that another one has brought along, and what
        # a shuffle reads was made before it.
        ordered = sorted(found, key=lambda one: one.shuffleId())
        stages = [context.submitMapStage(one) for one in ordered if one.rdd().getNumPartitions()]
        for stage in stages:
            stage.get()
        self.after_tasks()

    def after_tasks(self) -> None:
        """Raise an error if Spark dropped rows in the epoch that is running."""
        operators = self.query.operators(_STATE_OPERATORS)
        for number, operator in enumerate(operators):
            if rows := operator.numRowsDroppedByWatermark():
                message = f"Spark dropped {rows} rows by its own watermark that Penstock did not find late"
                hint = "no row may vanish, so the epoch is not committed: report this, with `penstock explain`"
                node = self.nodes[number] if len(operators) == len(self.nodes) else operator.operatorName()
                raise SparkFailed(message, node=node, hint=hint)


@dataclass(frozen=True)
class SparkWatermark:
    """Spark's own watermark, where it must follow the slowest partition.

    Spark takes the largest time that its watermark operators saw in an epoch, after the epoch's function has returned.
    Before that, what they saw is replaced by what all partitions have reached, so that the epoch ends with the right
    watermark, without an epoch of delay, and Spark writes it to its logs as usual.
    """

    query: RunningQuery

    def follow(self, newest_ms: Mapping[str, int | None]) -> None:
        """Let operators have seen these times in the epoch that is running, by column; None: nothing yet."""
        for operator in self.query.operators(_WATERMARK_OPERATORS):
            column = operator.eventTime().name()
            if column in newest_ms:
                seen = operator.eventTimeStats()
                seen.reset()
                if (newest := newest_ms[column]) is not None:
                    seen.add(newest)
