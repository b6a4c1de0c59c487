"""Spark's own watermark, where it must follow the slowest partition.

Spark takes the largest time that its watermark operators saw in an epoch, after the epoch's function has returned.
Before that, what they saw is replaced by what all partitions have reached, so that the epoch's end has the right
watermark, without an epoch of delay, and Spark keeps it in its logs as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

# The partial function by which Spark itself finds the watermark operators of a plan.
_COLLECTOR = "WatermarkTracker$$anonfun$2"


@dataclass(frozen=True)
class SparkWatermark:
    """That of one query."""

    query: Callable[[], StreamingQuery]
    spark: SparkSession

    def follow(self, newest_ms: Mapping[str, int | None]) -> None:
        """Let operators have seen these times in the epoch that is running, by column; None: nothing yet."""
        operators = self._execution.lastExecution().executedPlan().collect(self._collector)
        for number in range(operators.size()):
            operator = operators.apply(number)
            column = operator.eventTime().name()
            if column in newest_ms:
                seen = operator.eventTimeStats()
                seen.reset()
                if (newest := newest_ms[column]) is not None:
                    seen.add(newest)

    @cached_property
    def _execution(self) -> Any:
        return self.query()._jsq.streamingQuery()

    @cached_property
    def _collector(self) -> Any:
        jvm: Any = self.spark._jvm
        return getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, _COLLECTOR)(None)
