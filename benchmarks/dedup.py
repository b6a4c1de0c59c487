"""Deduplication within a span of event time, by Penstock and by Spark's dropDuplicatesWithinWatermark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from pyarrow import parquet

from benchmarks import chart, results
from benchmarks.by_turns import SYSTEMS, Job
from benchmarks.data import CACHE
from benchmarks.process import answered
from benchmarks.results import OURS, Bar, Result
from penstock.settings import cores

LEAST = 0.9
EPOCHS = 12
WITHIN_S = 10
NOTE = """
{rows:,} events from Parquet in {epochs} epochs, duplicates within {within} s dropped, the rest to Parquet; in one
process and session, so with the same settings, by turns, best of {runs} after one that does not count, from the start
of the query to its end. retries: ids that are sent once, one in ten again within two seconds. keys: events of 10,000
users in order of time, of which each user's are dropped that are too close to one that was kept.
equal: the rows of a plain loop over the input. Spark is right on retries only: it compares rows with the watermark.
"""
_START = 1_767_225_600_000_000
# An event each 100 microseconds; every eleventh repeats one of the 20,000 before it.
_RETRIES = """
    SELECT 'order-' || CASE WHEN i % 11 = 10 THEN greatest(i - 1 - (hash(i) % 20000)::BIGINT, 0) // 11 * 11
        ELSE i END AS id, (i % 1024) / 256.0 AS amount, {start} + i * 100 AS ts FROM range({first}, {last}) t(i)
"""
_KEYS = """
    SELECT 'user-' || (hash(i) % 10000) AS id, (i % 1024) / 256.0 AS amount, {start} + i * 100 AS ts
    FROM range({first}, {last}) t(i)
"""
CASES = {"retries": _RETRIES, "keys": _KEYS}


@dataclass(frozen=True)
class Events:
    """The input of a case in as many files as there are epochs; none is late."""

    case: str
    rows: int
    cache: Path = CACHE

    @property
    def folder(self) -> Path:
        """Where they are kept."""
        return self.cache.absolute() / f"dedup-{self.case}-{self.rows}"

    def prepare(self) -> None:
        """Make the files unless they are there."""
        if self.folder.is_dir():
            return
        partial = self.folder.with_name(f"{self.folder.name}.partial-{os.getpid()}")
        partial.mkdir(parents=True, exist_ok=True)
        with duckdb.connect() as db:
            for number in range(EPOCHS):
                first, last = (self.rows * n // EPOCHS for n in (number, number + 1))
                path = partial / f"part-{number:05}.parquet"
                table = db.sql(CASES[self.case].format(start=_START, first=first, last=last)).to_arrow_table()
                times = table.column("ts").cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
                parquet.write_table(table.drop_columns(["ts"]).append_column("ts", times), path)
                os.utime(path, (1_800_000_000 + number,) * 2)
        partial.rename(self.folder)

    def expected(self) -> list[tuple[str, int]]:
        """Return the rows that are no duplicates, by the rule itself; here rows are in the order of their times."""
        newest: dict[str, int] = {}
        kept = []
        for path in sorted(self.folder.glob("*.parquet")):
            table = parquet.read_table(path)
            for id_, ts in zip(table["id"].to_pylist(), table["ts"].cast(pa.int64()).to_pylist(), strict=True):
                if ts - newest.get(id_, -(10**18)) > WITHIN_S * 1_000_000:
                    newest[id_] = ts
                    kept.append((id_, ts))
        return sorted(kept)


def run(json: Path | str | None = None, rows: int = 3_000_000, *, runs: int = 3, cache: Path = CACHE) -> int:
    """Measure both; return 1 if a result of Penstock is wrong."""
    found = []
    for case in CASES:
        events = Events(case, rows, cache)
        events.prepare()
        print(f"{case} ...", end=" ", flush=True)
        found += _measured(events, runs)
    settings = {"rows": rows, "epochs": EPOCHS, "within": WITHIN_S, "runs": runs}
    made = results.document("dedup", settings, found)
    target = Path(json) if json else cache / "dedup.json"
    results.save(made, target)
    chart.draw(made, target.with_suffix(".png"))
    results.show(made, NOTE.format(**settings), bars(found))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found if result.system == OURS) else 1


def bars(found: Sequence[Result]) -> Iterator[Bar]:
    """Say which bars were reached."""
    for pair, ratio in results.ratios(found).items():
        yield Bar(f"{pair} {ratio:.2f}, bar {LEAST:.2f}", ratio >= LEAST)


def _measured(events: Events, runs: int) -> list[Result]:
    work = events.folder.with_name(f"{events.folder.name}-work-{os.getpid()}")
    try:
        job = Job(str(events.folder), str(work), events.rows // EPOCHS, cores(), WITHIN_S, runs)
        answer, peak_mb = answered("benchmarks.dedup_jobs", job, "dedup")
        right = events.expected()
        equal = {system: _written(answer["outputs"][system]) == right for system in SYSTEMS}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    best = {system: min(answer["seconds"][system]) for system in SYSTEMS}
    print(", ".join(f"{system} {best[system]:.2f} s" for system in SYSTEMS))
    return [
        Result(system, events.case, round(events.rows / best[system]), round(best[system], 3), peak_mb, equal[system])
        for system in SYSTEMS
    ]


def _written(output: str) -> list[tuple[str, int]]:
    with duckdb.connect() as db:
        return db.execute(f"SELECT id, epoch_us(ts) FROM '{output}/*.parquet' ORDER BY ALL").fetchall()
