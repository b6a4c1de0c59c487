"""Pathway with persistence."""

from __future__ import annotations

import os
from datetime import timedelta

import pathway as pw
from pathway.internals.parse_graph import G

from benchmarks.peers.protocol import Config, Folders, main


class Trade(pw.Schema):
    """A row of the input."""

    symbol: str
    price: float
    size: int
    ts: str


READERS = {"csv": pw.io.csv.read, "json": pw.io.jsonlines.read}


def job(config: Config, folders: Folders) -> None:
    """Run the graph to the end of its files, which closes all windows."""
    G.clear()
    trades = READERS[config.format](config.input, schema=Trade, mode="static", name="trades")
    timed = trades.filter(pw.this.size > 0).select(
        pw.this.symbol, pw.this.price, pw.this.size, ts=pw.this.ts.dt.strptime("%Y-%m-%dT%H:%M:%S.%fZ")
    )
    windows = timed.windowby(
        timed.ts,
        window=pw.temporal.tumbling(duration=timedelta(seconds=60)),
        behavior=pw.temporal.exactly_once_behavior(shift=timedelta(seconds=5)),
        instance=timed.symbol,
    )
    prices = windows.reduce(
        symbol=pw.this._pw_instance,
        window_start=pw.this._pw_window_start,
        vwap=pw.reducers.sum(pw.this.price * pw.this.size) / pw.reducers.sum(pw.this.size),
        volume=pw.reducers.sum(pw.this.size),
        trades=pw.reducers.count(),
    )
    pw.io.csv.write(prices, f"{folders.output}/prices.csv")
    backend = pw.persistence.Backend.filesystem(folders.checkpoint)
    persistence = pw.persistence.Config(backend)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=persistence)


if __name__ == "__main__":
    os.environ.setdefault("PATHWAY_THREADS", str(os.cpu_count() or 1))
    main(job, "csv")
