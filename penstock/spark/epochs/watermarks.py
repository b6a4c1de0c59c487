"""How far the event times of a query have come, as its epochs noted it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from penstock.plan.nodes import EventTime
from penstock.plan.queries import source_of, time_key
from penstock.report import EventTimes, Watermark
from penstock.spark.lowering.context import Context
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


def watermark(query: str, context: Context, newest: Mapping[str, int], idle: Collection[EventTime]) -> Watermark:
    """Return the watermark of a query and what it is made of."""
    times = tuple(
        EventTimes(source_of(time), time.column, time.max_delay_us, _instant(newest.get(time_key(time))), time in idle)
        for time in _times(context)
    )
    return Watermark(query, times)


def _times(context: Context) -> list[EventTime]:
    return [node for node in context.nodes if isinstance(node, EventTime)]


def _instant(micros: int | None) -> datetime | None:
    # A run may begin with a declared time that means nothing: that of year 1, or in older checkpoints of 1970.
    return None if micros in (None, 0, FIRST_US) else _BEGIN + timedelta(microseconds=micros or 0)
