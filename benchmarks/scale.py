"""What the VWAP costs as its input grows: in rows, and in keys. Penstock only, one run of each size."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import chart, results
from benchmarks.answer import answer, is_equal
from benchmarks.data import CACHE, Trades
from benchmarks.process import configured, measure
from benchmarks.results import Bar

ROWS = (1_000_000, 10_000_000, 50_000_000)
KEYS = (1_000, 100_000, 1_000_000)
KEYS_OF_ROWS = 10_000
ROWS_OF_KEYS = 6_000_000
# An epoch of the same size whatever the input: what a job holds is then what an epoch holds.
EPOCH_ROWS = 1_000_000
LINEAR = 1.25
FLAT = 1.25
NOTE = """
One run each, warm: a run over the smallest input comes before it in the same process. Epochs of {epoch:,} rows.
seconds: from the start of the query until all results are written; start_s: of that, what lies outside of epochs;
us_per_row: the rest, per row. peak: resident memory of all processes. equal: every row is that of DuckDB in batch.
"""


@dataclass(frozen=True)
class Size:
    """One input, in the series whose axis it is on."""

    series: str
    rows: int
    keys: int


def run(
    json: Path | str | None = None,
    rows: Sequence[int] = ROWS,
    keys: Sequence[int] = KEYS,
    format: str = "parquet",
    *,
    keys_of_rows: int = KEYS_OF_ROWS,
    rows_of_keys: int = ROWS_OF_KEYS,
    epoch_rows: int = EPOCH_ROWS,
    cache: Path = CACHE,
) -> int:
    """Measure every size; return 1 if one has not the right result."""
    sizes = [Size("rows", number, keys_of_rows) for number in sorted(rows)]
    sizes += [Size("keys", rows_of_keys, number) for number in sorted(keys)]
    inputs = [_trades(size, format, epoch_rows, cache) for size in sizes]
    warm = min(inputs, key=lambda trades: trades.events)
    found = [_result(size, trades, warm) for size, trades in zip(sizes, inputs, strict=True)]
    settings = {"format": format, "epoch_rows": epoch_rows, "sizes": [vars(size) for size in sizes]}
    made = results.document("scale", settings, found)
    target = Path(json) if json else cache / "scale.json"
    results.save(made, target)
    chart.draw_series(made, target.with_suffix(".png"))
    results.show(made, NOTE.format(epoch=epoch_rows), bars(made))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found) else 1


def bars(made: dict[str, Any]) -> list[Bar]:
    """Say whether the cost is linear in rows and the memory flat; both need two sizes that came to their end."""
    measured = [row for row in made["results"] if row["case"].startswith("rows-") and row["seconds"]]
    if len(measured) < 2:
        return []
    least, most = measured[0], measured[-1]
    cost, memory = (most[name] / least[name] for name in ("us_per_row", "peak_mb"))
    sizes = f"{most['rows']:,} rows / {least['rows']:,} rows"
    return [
        Bar(f"linear: {sizes} {cost:.2f} in time per row, bar at most {LINEAR:.2f}", cost <= LINEAR),
        Bar(f"flat: {sizes} {memory:.2f} in peak memory, bar at most {FLAT:.2f}", memory <= FLAT),
    ]


def _trades(size: Size, format: str, epoch_rows: int, cache: Path) -> Trades:
    trades = Trades(size.rows, size.keys, format, max(1, size.rows // epoch_rows), cache)
    trades.prepare()
    return trades


def _result(size: Size, trades: Trades, warm: Trades) -> results.Result:
    print(f"{size.rows:,} rows, {size.keys:,} keys ...", end=" ", flush=True)
    work = trades.folder / "work" / "scale"
    config = configured(trades, results.OURS, "windowed", work, warmups=1, runs=1, warm_input=str(warm.input))
    try:
        measured = measure(config)
        outcome = measured.outcome
        seconds = outcome.seconds[0] if outcome else 0.0
        print(f"{seconds:.2f} s" if outcome else f"failed: {measured.error}")
        equal = outcome is not None and is_equal("windowed", answer("windowed", trades.input, trades.format), outcome)
        epochs_ms = outcome.epochs_ms if outcome else []
        return _row(size, seconds, epochs_ms, measured.peak_mb, equal)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _row(size: Size, seconds: float, epochs_ms: list[float], peak_mb: float, equal: bool) -> results.Result:
    in_epochs = min(seconds, sum(epochs_ms) / 1000)
    return results.Result(
        results.OURS,
        f"{size.series}-{size.rows if size.series == 'rows' else size.keys}",
        rows_per_s=round(size.rows / seconds) if seconds else 0,
        seconds=round(seconds, 3),
        peak_mb=round(peak_mb),
        equal=equal,
        extra={
            "rows": size.rows,
            "keys": size.keys,
            "epochs": len(epochs_ms) or None,
            "start_s": round(seconds - in_epochs, 3),
            "us_per_row": round(1e6 * in_epochs / size.rows, 4),
        },
    )
