"""Penstock, by its public API only."""

from __future__ import annotations

from typing import Any

import penstock as ps
from benchmarks.peers.protocol import Config, Folders, main

SCHEMA = "symbol string, price double, size bigint, ts timestamp"


def windowed(trades: ps.Stream) -> ps.Stream:
    """VWAP per symbol and minute."""
    windows = trades.filter("size > 0").event_time("ts", "5s").key_by("symbol").window(ps.tumbling("60s"))
    return windows.aggregate(vwap="sum(price * size) / sum(size)", volume="sum(size)", trades="count(*)")


def stateless(trades: ps.Stream) -> ps.Stream:
    """A filter and a projection."""
    return trades.filter("size > 0").select("symbol", "ts", notional="price * size")


def python(trades: ps.Stream) -> ps.Stream:
    """A Python function on each row."""
    return trades.map(_notional, "symbol string, notional double, ts timestamp")


def _notional(row: dict[str, Any]) -> dict[str, Any]:
    return {"symbol": row["symbol"], "notional": row["price"] * row["size"], "ts": row["ts"]}


CASES = {"windowed": windowed, "stateless": stateless, "python": python}


def job(config: Config, folders: Folders) -> list[float]:
    """Run the pipeline to its end; return milliseconds per epoch that read rows, as Spark says."""
    trades = ps.read_files(config.input, format=config.format, schema=SCHEMA)  # type: ignore[arg-type]
    pipeline = ps.Pipeline(config.case, CASES[config.case](trades).to(ps.files(folders.output)))
    progress = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    settings = ps.Settings(epoch_rows=config.epoch_rows, parallelism=config.cores, spark=progress)
    run = pipeline.start(until="ended", checkpoint=folders.checkpoint, settings=settings)
    run.wait()
    return [float(epoch.batchDuration) for epoch in run.queries[0].recentProgress if epoch.numInputRows]


if __name__ == "__main__":
    main(job)
