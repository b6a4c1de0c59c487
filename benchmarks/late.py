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
from penstock.connectors.datagen import DataGen
from penstock.settings import cores

LANES = ("auto", "spark")
MOST = 1.25
EPOCHS = 12
SYMBOLS = 10_000
NOTE = """
VWAP over windows of 60 s of {events:,} trades, of which about 1 in 100 comes late, from Parquet in {epochs} epochs, in
each lane. split: late rows are parted, counted and written to files. dropped: the same job with that taken out, so that
Spark drops them. Best of {runs} after one that does not count, in one process. equal: both give the same results.
"""


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
        outputs = {way: _output(answer["made"][way]["output"]) for way in WAYS}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    best = {way: min(answer["seconds"][way]) for way in WAYS}
    print(", ".join(f"{way} {best[way]:.2f} s" for way in WAYS))
    equal = outputs["split"] == outputs["dropped"]
    late = answer["made"]["split"]["late"]
    return [
        Result(way, lane, round(events / best[way]), round(best[way], 3), peak_mb, equal, {"late": late})
        for way in WAYS
    ]


def _output(folder: str) -> Any:
    query = f"SELECT count(*), sum(trades), sum(volume), round(sum(vwap), 3) FROM '{folder}/*.parquet'"
    return duckdb.sql(query).fetchall()
