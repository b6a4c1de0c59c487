"""Columns that travel beside the user's through Spark, and how they are kept apart."""

from __future__ import annotations

PREFIX = "__penstock_"
EVENT_TIME = PREFIX + "time"
WATERMARK = PREFIX + "watermark"
TICK = PREFIX + "tick"
ORDER = PREFIX + "order"
# The number of the source partition that a row came from, up to its event time; see `epochs/origins.py`.
ORIGIN = PREFIX + "origin"

# What Spark's window is called in its state where a column of the results is called "window".
OTHER_WINDOW = PREFIX + "window"


def hidden(columns: list[str]) -> list[str]:
    """Return the columns among these that are Penstock's own."""
    return [name for name in columns if name in (EVENT_TIME, TICK, ORDER, ORIGIN) or name.startswith(WATERMARK)]
