"""Rows that Spark's state drops by its own watermark: there must be none, for Penstock separates late rows before it.

Spark counts such rows in a metric and says nothing else. So an epoch in which the metric is not 0 lost rows without
any output or count of late rows having them, and it must not be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import SparkFailed

# The partial function by which Spark itself collects the progress of stateful operators, for a query's `lastProgress`.
_COLLECTOR = "ProgressContext$$anonfun$extractStateOperatorMetrics$2"


@dataclass(frozen=True)
class DroppedRows:
    """Checks one query; `nodes` are its stateful operators, in Spark's order.

    Most sinks are committed by the driver, after all tasks of an epoch. Where one is committed by its tasks
    (`in_tasks`), the stages before these run first, so that the check comes before any sink has the epoch.
    """

    query: Callable[[], StreamingQuery]
    nodes: Sequence[str]
    in_tasks: bool
    spark: SparkSession

    def before_last_stage(self) -> None:
        """Run all stages of the epoch but the last, where tasks commit sinks, and check them."""
        if not self.in_tasks:
            return
        context = self.spark._jsc.sc()
        rdd = self._execution.lastExecution().toRdd()
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
        progress = self._execution.lastExecution().executedPlan().collect(self._collector)
        operators = [progress.apply(number) for number in range(progress.size())]
        for number, operator in enumerate(operators):
            if rows := operator.numRowsDroppedByWatermark():
                message = f"Spark dropped {rows} rows by its own watermark that Penstock did not find late"
                hint = "no row may vanish, so the epoch is not committed: report this, with `penstock explain`"
                node = self.nodes[number] if len(operators) == len(self.nodes) else operator.operatorName()
                raise SparkFailed(message, node=node, hint=hint)

    @cached_property
    def _execution(self) -> Any:
        return self.query()._jsq.streamingQuery()

    @cached_property
    def _collector(self) -> Any:
        # Kept, for each part of the name is a call to the JVM. Spark uses nothing of the context that it is made in.
        jvm: Any = self.spark._jvm
        return getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, _COLLECTOR)(None)
