"""How far the event times of a query have come, as its epochs noted it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from penstock.plan.nodes import EventTime
from penstock.plan.queries import source_of, time_key
from penstock.report import EventTimes, PartitionTime, Watermark
from penstock.spark.epochs.idle_watch import IdleWatch
from penstock.spark.epochs.records import Totals
from penstock.spark.lowering.context import Context
from penstock.spark.lowering.spark_time import time_column
from penstock.windows import FIRST_US

# Names may hold commas, spaces and other signs: one ends where its values begin.
_METRIC = re.compile(r"(?:^\w*\(|, )(.*?) -> \[(\d+)(?:,(-?\d+|null))?\]")
_NEWEST = "newest:"
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def read_metrics(text: str) -> dict[str, int]:
    """Return what Spark observed: rows by node, and the newest time of each event time.

    >>> read_metrics("Map(out:event_time -> [3,7], out:filter -> [2])")
    {'out:event_time': 3, 'newest:event_time': 7, 'out:filter': 2}
    >>> read_metrics("HashMap(out:filter-a, b,c -> [3], again1:x y -> [2,null], out:z -> [1])")
    {'out:filter-a, b,c': 3, 'again1:x y': 2, 'out:z': 1}
    """
    found: dict[str, int] = {}
    for name, rows, newest in _METRIC.findall(text):
        found[name] = int(rows)
        if newest not in ("", "null") and name.startswith("out:"):
            found[_NEWEST + name.removeprefix("out:")] = int(newest)
    return found


def newest_times(context: Context, observed: Mapping[str, int]) -> dict[str, int]:
    """Return the newest time that entered each event time in an epoch, by the event time's key."""
    found: dict[str, int] = {}
    for time in _times(context):
        newest = observed.get(_NEWEST + context.name(time))
        if newest is not None:
            found[time_key(time)] = max(newest, found.get(time_key(time), newest))
    return found


def spark_times(context: Context, newest: Mapping[str, int]) -> dict[str, int | None]:
    """Return how far event times that follow partitions have come, by the columns that Spark follows; milliseconds."""
    times = [time for time in _times(context) if time in context.partitioned]
    known = {time: newest.get(time_key(time)) for time in times}
    return {
        time_column(time, context): None if at is None else (at - context.first_us) // 1000
        for time, at in known.items()
    }


def watermark(query: str, context: Context, totals: Totals, idle: IdleWatch | None) -> Watermark:
    """Return the watermark of a query and what it is made of."""
    return Watermark(query, tuple(_event_times(time, totals, idle) for time in _times(context)))


def _event_times(time: EventTime, totals: Totals, idle: IdleWatch | None) -> EventTimes:
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


def _times(context: Context) -> list[EventTime]:
    return [node for node in context.nodes if isinstance(node, EventTime)]


def _instant(micros: int | None) -> datetime | None:
    # A run may begin with a declared time that means nothing: that of year 1, or in older checkpoints of 1970.
    return None if micros in (None, 0, FIRST_US) else _BEGIN + timedelta(microseconds=micros or 0)
