"""The job manager: requests over a full store, events, submissions beside spark-submit, and jobs of a pool."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from benchmarks import chart, results
from benchmarks.control_cases import IN_POOL, Sizes, measure_pool, measure_requests, measure_submissions
from benchmarks.data import CACHE
from benchmarks.peers import ROOT
from benchmarks.results import OURS, Bar, Result

REQUEST_MS = 50.0
EVENT_SECONDS = 1.0
SUBMIT_SECONDS = 4.0
SUBMIT_RATIO = 0.4
POOL_RATIO = 3.0
MANAGER_MB = 150.0
IDLE_PERCENT = 2.0
# Above this share of all cores, taken by others before a part began, figures of time say little.
BUSY_PERCENT = 10.0
NOTE = """
list, get, epochs: together {rate} requests/s for {seconds:g} s on {jobs:,} jobs and {epochs:,} epochs in SQLite; a time
counts from when a request was due. events: from DELETE of a job until each of {clients:,} WebSocket clients had that
event; seconds is the slowest. submit: from the request until the first epoch of a small job was committed, with a
spare driver, beside spark-submit of the same in PySpark; median of {runs}. pool-N: N small jobs in one driver, until
all had committed an epoch; peak is the memory of that driver, its JVM and Python workers. idle: the manager with
{pooled} jobs that have no input. In the other rows, peak is the memory of the manager itself. cpu_percent: of one core.
"""
FULL = Sizes(jobs=1_000, epochs=100_000, rate=100, seconds=30, clients=1_000, runs=3, idle_seconds=30)
# A run of everything is the one that docs/performance.md shows.
PUBLISHED = ROOT / "docs" / "performance" / "bench-control.json"
Part = Callable[[Sizes, Path], Iterator[Result]]


def run(
    json: Path | str | None = None,
    jobs: int = 1_000,
    epochs: int = 100_000,
    rate: int = 100,
    seconds: float = 30,
    clients: int = 1_000,
    *,
    spark: bool = True,
    runs: int = 3,
    idle_seconds: float = 30,
    cache: Path = CACHE,
) -> int:
    """Measure one part after the other; return 1 if an answer was wrong or missing.

    Without `json`, a run of everything is written to docs/performance, and a smaller one to the cache.
    """
    sizes = Sizes(jobs, epochs, rate, seconds, clients, runs, idle_seconds)
    parts: list[Part] = [measure_requests, *((measure_submissions, measure_pool) if spark else ())]
    busy: list[float] = []
    found = [result for part in parts for result in _measure(part, sizes, cache, busy)]
    settings = {**asdict(sizes), "busy_percent": busy}
    made = results.document("control", settings, found) | {"ratios": ratios(found)}
    is_full = spark and sizes == FULL
    target = Path(json) if json else PUBLISHED if is_full else cache / "control.json"
    results.save(made, target)
    shown = [row for row in made["results"] if row["p99_ms"] is not None]
    chart.draw({**made, "results": shown}, target.with_suffix(".png"), "p99_ms", "p99, ms")
    results.show(made, NOTE.format(pooled=IN_POOL, **asdict(sizes)), [*bars(found), *_idle(busy)])
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found) else 1


def ratios(found: Sequence[Result]) -> dict[str, float]:
    """Return the seconds of a submission over those of spark-submit, and the memory of ten jobs over that of one."""
    by_case = {(row.system, row.case): row for row in found}
    made = {}
    ours, theirs = by_case.get((OURS, "submit")), by_case.get(("spark-submit", "submit"))
    if ours and theirs and theirs.seconds:
        made[f"{OURS}/spark-submit:submit"] = round(ours.seconds / theirs.seconds, 3)
    one, ten = by_case.get((OURS, "pool-1")), by_case.get((OURS, f"pool-{IN_POOL}"))
    if one and ten and one.peak_mb and ten.peak_mb:
        made[f"pool-{IN_POOL}/pool-1:memory"] = round(ten.peak_mb / one.peak_mb, 3)
    return made


def bars(found: Sequence[Result]) -> list[Bar]:
    """Say which bars were reached."""
    made = [bar for row in found if row.system == OURS for bar in _bars_of(row)]
    most = {"submit": SUBMIT_RATIO, "memory": POOL_RATIO}
    for pair, ratio in ratios(found).items():
        bar = most[pair.split(":")[1]]
        made.append(Bar(f"{pair} {ratio:.2f}, bar at most {bar:.2f}", ratio <= bar))
    return made


def _bars_of(row: Result) -> Iterator[Bar]:
    if row.case in ("list", "get", "epochs"):
        p99 = row.extra["p99_ms"] or 0.0
        yield Bar(f"{row.case} p99 {p99:.1f} ms, bar under {REQUEST_MS:.0f}", row.equal and p99 < REQUEST_MS)
    if row.case == "events":
        text = f"events: the slowest client had it after {row.seconds:.2f} s, bar within {EVENT_SECONDS:.0f}"
        yield Bar(text, row.equal and row.seconds <= EVENT_SECONDS)
    if row.case == "submit":
        text = f"submit to first epoch {row.seconds:.2f} s, bar at most {SUBMIT_SECONDS:.0f}"
        yield Bar(text, row.equal and row.seconds <= SUBMIT_SECONDS)
    if row.case == "idle":
        share, memory = row.extra["cpu_percent"] or 0.0, row.peak_mb or 0.0
        text = f"the manager of {IN_POOL} idle jobs takes"
        yield Bar(f"{text} {memory:.0f} MB, bar under {MANAGER_MB:.0f}", memory < MANAGER_MB)
        yield Bar(f"{text} {share:.1f}% of a core, bar under {IDLE_PERCENT:.0f}%", share < IDLE_PERCENT)


def _idle(busy: Sequence[float]) -> list[Bar]:
    share = max(busy)
    return [Bar(f"other processes took {share:.0f}% of the cores before a part", None)] if share > BUSY_PERCENT else []


def _measure(part: Part, sizes: Sizes, cache: Path, busy: list[float]) -> Iterator[Result]:
    cache.mkdir(parents=True, exist_ok=True)
    # The path of a driver's socket is short by law, and a cache may be anywhere.
    folder = Path(tempfile.mkdtemp(prefix="control-"))
    busy.append(psutil.cpu_percent(1.0))
    try:
        for result in part(sizes, folder):
            print(f"{result.case}: {result.system}: {result.seconds:.2f} s", flush=True)
            yield result
    finally:
        shutil.rmtree(folder, ignore_errors=True)
