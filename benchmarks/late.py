"""What it costs to part late rows from the others instead of dropping them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import results
from benchmarks.data import CACHE
from benchmarks.late_jobs import WAYS, Job
from benchmarks.process import answered
from benchmarks.results import Bar, Result
from penstock.connectors.generators.datagen import DataGen
from penstock.settings import cores

LANES = ("auto", "spark")
MOST = 1.25
EPOCHS = 12
SYMBOLS = 10_000
NOTE = """
VWAP over windows of 60 s of {events:,} trades, of which about 1 in 100 comes late, from Parquet in {epochs} epochs, in
each lane. split: late rows are parted, counted and written to files. dropped: the same job with that taken out, so that
Spark drops them, an epoch later than Penstock. Best of {runs} after one that does not count, in one process. equal: the
windows are those that DuckDB makes in batch of the rows that are in time.
"""
# By how many epochs the watermark is behind that rows are late by.
BEHIND = {"split": 1, "dropped": 2}
_WANTED = """(
    WITH rows AS (SELECT *, parse_filename(filename) AS file FROM read_parquet('{given}/*.parquet', filename = true)),
    epochs AS (SELECT file, max(max(ts)) OVER (ORDER BY file) - INTERVAL 5 SECOND AS watermark FROM rows GROUP BY file),
    marks AS (SELECT file, lag(watermark, {behind}) OVER (ORDER BY file) AS past FROM epochs)
    SELECT symbol, time_bucket(INTERVAL 1 MINUTE, ts) AS window_start, count(*), sum(size)::BIGINT,
        round(sum(price * size) / sum(size), 6)
    FROM rows JOIN marks USING (file)
    WHERE size > 0 AND (past IS NULL OR time_bucket(INTERVAL 1 MINUTE, ts) + INTERVAL 1 MINUTE > past)
    GROUP BY ALL)"""


def run(
    json: Path | str | None = None, events: int = 3_000_000, *, runs: int = 3, cache: Path = CACHE, lanes: Any = LANES
) -> int:
    """Measure both ways in each lane; return 1 if results differ."""
    given = _input(events, cache)
    found = [result for lane in lanes for result in _measured(given, lane, events, runs)]
    settings = {"events": events, "symbols": SYMBOLS, "epochs": EPOCHS, "runs": runs}
    made = results.document("late", settings, found) | {"ratios": ratios(found)}
    target = Path(json) if json else cache / "late.json"
    results.save(made, target)
    results.show(made, NOTE.format(**settings), bars(found))
    print(f"written: {target}")
    return 0 if all(result.equal for result in found) else 1


def ratios(found: Sequence[Result]) -> dict[str, float]:
    """Return the time with the split over the time without it, by lane.

    >>> ratios([Result("split", "auto", 80, 1.2, 1, True), Result("dropped", "auto", 100, 1.0, 1, True)])
    {'split/dropped:auto': 1.2}
    """
    by = {(one.system, one.case): one.seconds for one in found}
    lanes = dict.fromkeys(one.case for one in found)
    return {f"split/dropped:{lane}": round(by["split", lane] / by["dropped", lane], 3) for lane in lanes}


def bars(found: Sequence[Result]) -> Iterator[Bar]:
    """Say whether the split is cheap enough."""
    for pair, ratio in ratios(found).items():
        yield Bar(f"{pair} {ratio:.2f} in seconds, bar less than {MOST:.2f}", ratio < MOST)


def _input(events: int, cache: Path) -> Path:
    """Make the trades unless they are there, a file for each epoch."""
    folder = cache.absolute() / f"late-trades-{events}-{SYMBOLS}-{EPOCHS}"
    if folder.is_dir():
        return folder
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    source = DataGen("trades", rows=events, keys=SYMBOLS, seed=1, late=0.01)
    for number in range(EPOCHS):
        first, last = (events * n // EPOCHS for n in (number, number + 1))
        pq.write_table(pa.Table.from_batches(source.read("0", first, last)), partial / f"part-{number:05}.parquet")
    return partial.rename(folder)


def _measured(given: Path, lane: str, events: int, runs: int) -> list[Result]:
    print(f"{lane} ...", end=" ", flush=True)
    work = given.with_name(f"{given.name}-work-{lane}")
    shutil.rmtree(work, ignore_errors=True)
    try:
        job = Job(str(given), str(work), lane, max(1, events // EPOCHS), cores(), runs)
        answer, peak_mb = answered("benchmarks.late_jobs", job, "late")
        equal = {way: _equal(given, answer["made"][way]["output"], BEHIND[way]) for way in WAYS}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    best = {way: min(answer["seconds"][way]) for way in WAYS}
    print(", ".join(f"{way} {best[way]:.2f} s" for way in WAYS))
    late = answer["made"]["split"]["late"]
    return [
        Result(way, lane, round(events / best[way]), round(best[way], 3), peak_mb, equal[way], {"late": late})
        for way in WAYS
    ]


def _equal(given: Path, output: str, behind: int) -> bool:
    """Say whether every window has what DuckDB gives it of the rows that are in time, a file being an epoch."""
    found = f"SELECT symbol, window_start, trades, volume, round(vwap, 6) FROM '{output}/*.parquet'"
    with duckdb.connect() as db:
        wanted = _WANTED.format(given=given, behind=behind)
        wrong = db.execute(
            f"SELECT count(*) FROM (({wanted} EXCEPT ALL {found}) UNION ALL ({found} EXCEPT ALL {wanted}))"
        )
        return wrong.fetchone() == (0,)
