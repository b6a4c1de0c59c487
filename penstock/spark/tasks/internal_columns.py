"""Penstock's internal columns, which travel through Spark beside those of the user."""

from __future__ import annotations

PREFIX = "__penstock_"
EVENT_TIME = PREFIX + "time"
WATERMARK = PREFIX + "watermark"
TICK = PREFIX + "tick"
ORDER = PREFIX + "order"
# The number of the source partition that a row came from, up to its event time; see `source_partitions.py`.
ORIGIN = PREFIX + "origin"
# The name of Spark's window in its state where a column of the results is called "window".
OTHER_WINDOW = PREFIX + "window"
# One of several windows of a row, before rows are grouped.
ASSIGNED_WINDOW = PREFIX + "assigned_window"


def internal_columns(columns: list[str]) -> list[str]:
    """Return the internal columns among these."""
    return [name for name in columns if name in (EVENT_TIME, TICK, ORDER, ORIGIN) or name.startswith(WATERMARK)]
