"""VWAP per symbol over 60 s windows: the same files, or the same topic, and the same job in every system."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks import chart, results, topic
from benchmarks.answer import answer, is_equal
from benchmarks.bars import bars
from benchmarks.data import CACHE, Trades
from benchmarks.peers import INSTALLABLE, installed
from benchmarks.peers.protocol import Outcome
from benchmarks.process import Measured, configured, measure
from penstock.spark.session.jars import jar_sets

NOTE = """
seconds: best of {runs} after {warmups} warm-up in one process, from the start of the query until all results
are written; imports, JVM and session are not in it, but in cold_s: from the start of the process to the end
of its first run. epochs: those that read rows (a closing row too), where a system says so. peak: resident
memory of all its processes. equal: every row is that of DuckDB in batch.
"""
INSTALL = "not installed; run `make bench-peers`"
# Those that read a topic here; Spark by its connector.
OF_TOPICS = ("spark", "spark-defaults")


def run(
    events: int = 6_000_000,
    symbols: int = 10_000,
    format: str = "parquet",
    epochs: int = 12,
    peers: Sequence[str] = ("spark", "spark-defaults", "duckdb"),
    json: Path | str | None = None,
    *,
    source: str = "files",
    runs: int = 3,
    warmups: int = 1,
    cache: Path = CACHE,
) -> int:
    """Measure Penstock and its peers one after the other; return 1 if one has not the right result."""
    trades = Trades(events, symbols, format, epochs, cache)
    trades.prepare()
    skipped = {name: why for name in peers if (why := _reason(name, format, source))}
    systems = [results.OURS, *(name for name in peers if name not in skipped)]
    with topic.filled(trades) if source == "topic" else nullcontext("") as log:
        found = [_result(trades, name, warmups, runs, log) for name in systems]
    settings = {
        "source": source,
        "events": events,
        "symbols": symbols,
        "format": format,
        "epochs": epochs,
        "runs": runs,
        "skipped": skipped,
    }
    made = results.document("vwap", settings, found)
    target = Path(json) if json else cache / "vwap.json"
    results.save(made, target)
    chart.draw(made, target.with_suffix(".png"))
    results.show(made, NOTE.format(runs=runs, warmups=warmups), bars(made))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found) else 1


def _reason(name: str, format: str, source: str = "files") -> str | None:
    """Return why a system cannot take part."""
    if source == "topic":
        return _reason_of_topic(name)
    if not installed(name):
        return INSTALL
    if name in INSTALLABLE and format == "parquet":
        return "its file connectors read csv and json, not parquet; pass --format csv"
    return None


def _reason_of_topic(name: str) -> str | None:
    if name not in OF_TOPICS:
        return "it reads files here; topics are for Penstock and Spark"
    if not jar_sets()["kafka"].fetched:
        return "it needs Spark's Kafka connector; run `penstock jars fetch kafka`"
    return None


def _result(trades: Trades, system: str, warmups: int, runs: int, log: str) -> results.Result:
    print(f"{system} ...", end=" ", flush=True)
    work = trades.folder / "work" / system
    config = configured(trades, system, "windowed", work, warmups=warmups, runs=runs, log=log)
    case = f"vwap-{'topic-' if log else ''}{trades.format}"
    try:
        return _judge(trades, system, case, measure(config))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _judge(trades: Trades, system: str, case: str, measured: Measured) -> results.Result:
    outcome = measured.outcome
    if outcome is None:
        print(f"failed: {measured.error}")
        return results.Result(system, case, 0.0, 0.0, measured.peak_mb, False, _extra(Outcome()))
    expected = answer("windowed", trades.input, trades.format)
    equal = is_equal("windowed", expected, outcome)
    best = min(outcome.seconds)
    print(f"{best:.2f} s")
    return results.Result(
        system,
        case,
        rows_per_s=round(trades.events / best),
        seconds=round(best, 3),
        peak_mb=round(measured.peak_mb),
        equal=equal,
        extra=_extra(outcome),
    )


def _extra(outcome: Outcome) -> dict[str, float | None]:
    return {"cold_s": round(outcome.cold, 3), "epochs": len(outcome.epochs_ms) or None}
