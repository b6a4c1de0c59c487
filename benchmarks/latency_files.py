"""How long an epoch of 1,000 rows takes, in stateless, windowed and Python stages."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks import chart, results
from benchmarks.answer import answer, is_equal
from benchmarks.data import CACHE, Trades
from benchmarks.latency import percentile
from benchmarks.peers.protocol import Config
from benchmarks.process import Measured, configured, measure

ROWS = 1_000
SYMBOLS = 1_000
# Epochs before those that count: the first ones of a query compile code and open state.
WARM_UP = 10
SYSTEMS = (results.OURS, "spark-defaults")
CASES = ("stateless", "windowed", "python")
NOTE = """
p50_ms, p99_ms: an epoch of {rows:,} rows, from files to files, as Spark's progress has it (batchDuration)
for both, after {warm} epochs that do not count; seconds: sum of the {epochs} that do. peak: resident memory
of all its processes. equal: every row is that of DuckDB in batch.
"""


def run(
    json: Path | str | None = None,
    epochs: int = 40,
    *,
    systems: Sequence[str] = SYSTEMS,
    cases: Sequence[str] = CASES,
    cache: Path = CACHE,
) -> int:
    """Time epochs of each case in each system; return 1 if one has not the right result."""
    total = epochs + WARM_UP
    trades = Trades(total * ROWS, SYMBOLS, "parquet", total, cache)
    trades.prepare()
    found = [_result(trades, system, case) for case in cases for system in systems]
    settings = {"rows": ROWS, "symbols": SYMBOLS, "epochs": epochs, "warm_up": WARM_UP, "format": "parquet"}
    made = results.document("latency-files", settings, found)
    target = Path(json) if json else cache / "latency-files.json"
    results.save(made, target)
    chart.draw(made, target.with_suffix(".png"), "p50_ms", f"ms per epoch of {ROWS:,} rows, p50")
    results.show(made, NOTE.format(rows=ROWS, warm=WARM_UP, epochs=epochs))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found) else 1


def _result(trades: Trades, system: str, case: str) -> results.Result:
    print(f"{case}: {system} ...", end=" ", flush=True)
    work = trades.folder / "work" / f"{system}-{case}"
    config = configured(trades, system, case, work, warmups=0, runs=1)
    try:
        return _judge(trades, config, measure(config))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _judge(trades: Trades, config: Config, measured: Measured) -> results.Result:
    outcome = measured.outcome
    timed = outcome.epochs_ms[WARM_UP : trades.epochs] if outcome else []
    if outcome is None or not timed:
        print(f"failed: {measured.error or 'it said nothing of its epochs'}")
        times = {"p50_ms": 0.0, "p99_ms": 0.0}
        return results.Result(config.system, config.case, 0.0, 0.0, measured.peak_mb, False, times)
    seconds = sum(timed) / 1000
    print(f"p50 {percentile(timed, 0.5):.0f} ms")
    return results.Result(
        config.system,
        config.case,
        rows_per_s=round(len(timed) * ROWS / seconds),
        seconds=round(seconds, 3),
        peak_mb=round(measured.peak_mb),
        equal=is_equal(config.case, answer(config.case, trades.input, trades.format), outcome),
        extra={"p50_ms": percentile(timed, 0.5), "p99_ms": percentile(timed, 0.99)},
    )
