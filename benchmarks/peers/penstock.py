"""Penstock, by its public API only."""

from __future__ import annotations

from typing import Any, Literal

import penstock as ps
from benchmarks.peers.protocol import TOPIC, Config, Folders, main

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


def read(config: Config) -> ps.Stream:
    """Read the files, or the topic."""
    if config.log:
        return ps.read_topic(TOPIC, schema=SCHEMA, format=config.format)  # type: ignore[arg-type]
    return ps.read_files(config.input, format=config.format, schema=SCHEMA)  # type: ignore[arg-type]


def _until(config: Config) -> Literal["drained", "ended"]:
    """A topic has a row that closes the windows, as every other system needs it; the end of files is an end."""
    return "drained" if config.log else "ended"


def _settings(config: Config) -> ps.Settings:
    progress = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    log = config.log or None
    return ps.Settings(log=log, epoch_rows=config.epoch_rows, parallelism=config.cores, spark=progress)


def job(config: Config, folders: Folders) -> list[float]:
    """Run the pipeline to its end; return milliseconds per epoch that read rows, as Spark says."""
    pipeline = ps.Pipeline(config.case, CASES[config.case](read(config)).to(ps.files(folders.output)))
    run = pipeline.start(until=_until(config), checkpoint=folders.checkpoint, settings=_settings(config))
    run.wait()
    return [float(epoch.batchDuration) for epoch in run.queries[0].recentProgress if epoch.numInputRows]


if __name__ == "__main__":
    main(job)
