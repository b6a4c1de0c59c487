"""Watermarks per node and epoch, computed by Penstock.

Spark has one watermark in each query, the smallest of all, less the longest lateness. It closes windows. It does not
decide which rows are late: a node uses the event times that its own rows came through, whatever else is in the query.
So the newest time that entered each event time is stored with every epoch, before Spark commits the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.spark.tasks.internal_columns import WATERMARK
from penstock.spark.tasks.offset_files import watermark_us
from penstock.spark.tasks.totals import Totals, totals_before
from penstock.storage.folders import Folder


@dataclass(frozen=True)
class WatermarkSpec:
    """The watermark of some event times together: the smallest of theirs.

    `times` are their keys and delays; `allowed_us` is the shortest lateness downstream of any, by which Spark's lags.
    `first_us` is the time that is zero in Spark.
    """

    times: tuple[tuple[str, int], ...] = ()
    allowed_us: int = 0
    first_us: int = 0

    def at(self, newest: Mapping[str, int], spark_us: int) -> int:
        """Return the watermark in microseconds, `first_us` without one; never less than Spark's."""
        known = [newest[key] - delay for key, delay in self.times if key in newest]
        own = min(known) if known and len(known) == len(self.times) else self.first_us
        by_spark = spark_us + self.first_us + self.allowed_us if spark_us else self.first_us
        return max(own, by_spark, self.first_us)


@dataclass(frozen=True)
class Watermarks:
    """The watermarks that a query's rows carry, and the folders from which they are computed."""

    all: tuple[WatermarkSpec, ...]
    planned: Folder
    records: Folder

    def before(self, epoch: int) -> tuple[int, ...]:
        """Return the watermarks by which rows of an epoch are late: those of the epoch before."""
        return self.after(totals_before(self.records, epoch), epoch - 1)

    def after(self, totals: Totals, epoch: int) -> tuple[int, ...]:
        """Return the watermarks after an epoch, up to which these are the totals."""
        spark_us = watermark_us(self.planned, epoch)
        return tuple(spec.at(totals.newest, spark_us) for spec in self.all)


def watermark_column(number: int) -> str:
    """Return the internal column that carries a watermark."""
    return f"{WATERMARK}_{number}" if number else WATERMARK
