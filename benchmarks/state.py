"""Keyed state in Python: a process function beside Spark's own transformWithStateInPandas."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks import chart, results
from benchmarks.data import CACHE
from benchmarks.process import answered
from benchmarks.results import OURS, Bar, Result
from benchmarks.state_jobs import Job
from penstock.settings import cores

SPARK = "spark"
LEAST = {"events": 5.0, "touched": 1.0}
NOTE = """
A running count and sum of each key, in Python, told for every row; Parquet files to Parquet files, RocksDB in both.
events: {events:,} events of {keys:,} keys in {epochs} epochs, after one of the same size that does not count. touched:
{many:,} keys have state, and each of {rounds} epochs touches one in {share}; what made the state does not count.
Seconds are those that Spark tells of the epochs, so that starting is left out. spark: transformWithStateInPandas by
hand. equal: every row has the count that it must, and each key the sum that DuckDB has in batch.
"""


@dataclass(frozen=True)
class Case:
    """Stages of epochs, each with so many rows; of the last stage, the first epoch does not count."""

    name: str
    keys: int
    stages: tuple[tuple[int, int], ...]

    def prepare(self, folder: Path) -> list[tuple[str, int]]:
        """Write a folder for each stage, with a file for each epoch."""
        shutil.rmtree(folder, ignore_errors=True)
        made: list[tuple[str, int]] = []
        first = 0
        with duckdb.connect() as db:
            for stage, (epochs, rows) in enumerate(self.stages):
                made.append((str(folder / f"stage{stage}"), rows))
                Path(made[-1][0]).mkdir(parents=True)
                for number in range(epochs):
                    db.execute(f"COPY ({self._rows(first, rows)}) TO '{made[-1][0]}/{number:04}.parquet'")
                    first += rows
        return made

    def _rows(self, first: int, rows: int) -> str:
        """Return rows whose keys lie anywhere among all (the step is a prime), with amounts whose sums are exact."""
        amount = "(i % 1024) / 256.0::DOUBLE"
        return f"SELECT (i * 7919) % {self.keys} AS key, {amount} AS amount FROM range({first}, {first + rows}) r(i)"


def run(
    json: Path | str | None = None,
    events: int = 1_000_000,
    *,
    keys: int = 10_000,
    many: int = 1_000_000,
    epochs: int = 4,
    rounds: int = 10,
    share: int = 100,
    cache: Path = CACHE,
) -> int:
    """Measure both cases in both systems; return 1 if a result is wrong."""
    cases = (
        Case("events", keys, ((epochs + 1, events // epochs),)),
        Case("touched", many, ((epochs, many // epochs), (rounds + 1, many // share))),
    )
    found = [result for case in cases for result in _measured(case, cache.absolute() / f"state-{case.name}")]
    settings = {"events": events, "keys": keys, "epochs": epochs, "many": many, "rounds": rounds, "share": share}
    made = results.document("state", settings, found)
    target = Path(json) if json else cache / "state.json"
    results.save(made, target)
    chart.draw(made, target.with_suffix(".png"))
    results.show(made, NOTE.format(**settings), bars(found))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found) else 1


def bars(found: Sequence[Result]) -> Iterator[Bar]:
    """Say which bars were reached."""
    for pair, ratio in results.ratios(found).items():
        least = LEAST[pair.split(":")[1]]
        yield Bar(f"{pair} {ratio:.2f}, bar {least:.2f}", ratio >= least)


def _measured(case: Case, folder: Path) -> list[Result]:
    given = case.prepare(folder)
    made = []
    for system in (SPARK, OURS):
        print(f"{case.name}, {system} ...", end=" ", flush=True)
        work = folder / system
        job = Job(system, given, str(work), cores())
        try:
            told, peak_mb = answered("benchmarks.state_jobs", job, job.system)
            equal = _equal(folder, work / "output")
        finally:
            shutil.rmtree(work, ignore_errors=True)
        counted = told[1:]
        seconds = sum(one["seconds"] for one in counted)
        rows = sum(one["rows"] for one in counted)
        print(f"{seconds:.2f} s in {len(counted)} epochs")
        made.append(Result(system, case.name, round(rows / seconds), round(seconds, 3), peak_mb, equal))
    shutil.rmtree(folder, ignore_errors=True)
    return made


def _equal(given: Path, output: Path) -> bool:
    """Say whether each key was told 1, 2, 3, ... and at last its count and sum."""
    told = f"read_parquet('{output}/**/*.parquet')"
    right = (
        f"SELECT key, count(*) AS n, sum(amount) AS total FROM read_parquet('{given}/stage*/*.parquet') GROUP BY key"
    )
    last = f"SELECT key, max(n) AS n, max(total) AS total FROM {told} GROUP BY key"
    last += " HAVING count(*) = max(n) AND count(DISTINCT n) = max(n)"
    with duckdb.connect() as db:
        wrong = db.execute(f"SELECT count(*) FROM (({right}) EXCEPT ({last}))").fetchone()
    return wrong is not None and wrong[0] == 0
