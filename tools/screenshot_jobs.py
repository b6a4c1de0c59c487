"""Jobs for the pictures of the dashboard: one that runs, one that ends, and one that fails."""

from __future__ import annotations

import penstock as ps

_TRADES = "symbol string not null, price double, size bigint, ts timestamp"


def trade_counts(connection: str = "log") -> ps.Pipeline:
    """Count the trades of each symbol in ten seconds."""
    trades = ps.read_topic("trades", schema=_TRADES, connection=connection).event_time("ts", max_delay="2s")
    counts = trades.key_by("symbol").window(ps.tumbling("10s")).aggregate(trades="count(*)")
    return ps.Pipeline("trade-counts", counts.to(ps.topic("trade-counts", key="symbol", connection=connection)))


def backfill(out: str = "backfill", rows: int = 200_000) -> ps.Pipeline:
    """Count the clicks of each user in a minute, over rows that end."""
    clicks = ps.datagen("clicks", rows=rows, keys=50, seed=3).event_time("ts", max_delay="5s")
    counts = clicks.key_by("user").window(ps.tumbling("1m")).aggregate(clicks="count(*)")
    return ps.Pipeline("backfill", counts.to(ps.files(out)))


def orders(out: str = "orders") -> ps.Pipeline:
    """Fail at the first row: the customer is missing."""
    clicks = ps.datagen("clicks", rows=1_000, keys=5, seed=3)
    return ps.Pipeline("orders-by-customer", clicks.map(_with_customer, schema="customer string").to(ps.files(out)))


def _with_customer(row: dict[str, object]) -> dict[str, object]:
    return {"customer": row["customer"]}
