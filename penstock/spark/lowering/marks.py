"""Marks: the watermarks that nodes go by, kept by Penstock for every event time and epoch.

Spark has one watermark in each query, the smallest of all, less the longest lateness. It closes windows. Which rows are
late is not its to say: a node goes by the event times that its own rows came through, whatever else is in the query. So
the newest time that entered each event time is noted with every epoch, before Spark takes the epoch for done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.folders import Folder
from penstock.spark.epochs.notes import watermark_us
from penstock.spark.epochs.records import Totals, totals_before
from penstock.spark.hidden import WATERMARK


@dataclass(frozen=True)
class Mark:
    """The watermark of some event times together: the smallest of theirs.

    `times` are their keys and delays; `allowed_us` is the shortest lateness after any, by which Spark's is behind.
    `first_us` is the time that Spark's zero stands for.
    """

    times: tuple[tuple[str, int], ...] = ()
    allowed_us: int = 0
    first_us: int = 0

    def at(self, newest: Mapping[str, int], spark_us: int) -> int:
        """Return the watermark in microseconds, `first_us` without one; what is past for Spark is past here too."""
        known = [newest[key] - delay for key, delay in self.times if key in newest]
        own = min(known) if known and len(known) == len(self.times) else self.first_us
        by_spark = spark_us + self.first_us + self.allowed_us if spark_us else self.first_us
        return max(own, by_spark, self.first_us)


@dataclass(frozen=True)
class Marks:
    """The marks that a query's rows carry, and where the newest times are noted."""

    all: tuple[Mark, ...]
    planned: Folder
    records: Folder

    def before(self, epoch: int) -> tuple[int, ...]:
        """Return the watermarks by which rows of an epoch are late: those of the epoch before."""
        return self.after(totals_before(self.records, epoch), epoch - 1)

    def after(self, totals: Totals, epoch: int) -> tuple[int, ...]:
        """Return the watermarks after an epoch, up to which these are the totals."""
        spark_us = watermark_us(self.planned, epoch)
        return tuple(mark.at(totals.newest, spark_us) for mark in self.all)


def mark_column(number: int) -> str:
    """Return the hidden column that carries a mark."""
    return f"{WATERMARK}_{number}" if number else WATERMARK
