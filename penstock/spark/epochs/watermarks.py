"""The watermarks of a query, from the totals of its epochs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.plan.operators.stateless import EventTime
from penstock.plan.physical.queries import source_of, time_key
from penstock.report import EventTimes, PartitionTime, Watermark
from penstock.spark.epochs.idle import IdleWatch
from penstock.spark.epochs.partition_watermarks import event_times
from penstock.spark.lowering.context import Context
from penstock.spark.tasks.totals import Totals
from penstock.windows import FIRST_US

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def watermark(query: str, context: Context, totals: Totals, idle: IdleWatch | None) -> Watermark:
    """Return the watermark of a query, and the event times of which it is the smallest."""
    return Watermark(query, tuple(event_time_of(time, totals, idle) for time in event_times(context)))


def event_time_of(time: EventTime, totals: Totals, idle: IdleWatch | None) -> EventTimes:
    """Return how far one event time has come."""
    left_out = idle.idle_partitions(time) if idle else set()
    found = sorted(totals.partitions.get(time_key(time), {}).items())
    return EventTimes(
        source_of(time),
        time.column,
        time.max_delay_us,
        _instant(totals.newest.get(time_key(time))),
        idle is not None and idle.is_idle(time),
        tuple(PartitionTime(name, _BEGIN + timedelta(microseconds=at), name in left_out) for name, at in found),
    )


def _instant(micros: int | None) -> datetime | None:
    # A run may start with a declared time without meaning: that of year 1, or in older checkpoints of 1970.
    return None if micros in (None, 0, FIRST_US) else _BEGIN + timedelta(microseconds=micros or 0)
