"""Keyed state in Python: a process function beside Spark's own transformWithStateInPandas, with few and many keys."""

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
LEAST = {"events": 10.0, "few": 4.0, "touched": 5.0}
FEW_MS, RESTART_S, FLAT = 400.0, 5.0, 2.0
# A file of more rows would be an epoch that no job should have.
_LOAD_ROWS = 500_000
# Of Spark's epochs with much state so many are measured: each takes long.
_SPARK_EPOCHS = 3
NOTE = """
A running count and sum of each key, in Python, told for every row; Parquet files to Parquet files, RocksDB in both.
events: {events:,} events of {keys:,} keys in {epochs} epochs, after one of the same size that does not count. few: each
of {rounds} epochs touches 500 of 50,000 keys. touched-N: each touches {touched:,} of N keys. What fills the state tells
nothing and does not count. Spark takes milliseconds for each key, so its state has at most {spark_keys:,} keys: with
more, the time of its epochs is taken to be the same. Seconds are those that Spark tells of the epochs, so that starting
is left out. spark: transformWithStateInPandas by hand. restart s: from the start of a run on the filled checkpoint,
when Spark has started, to the end of its first epoch. equal: every row has the count that it must, and each key the sum
that DuckDB has in batch.
"""


@dataclass(frozen=True)
class Case:
    """Some epochs that fill the state of all keys, if `fills`; and epochs, the first of which does not count."""

    name: str
    keys: int
    epochs: int
    rows: int
    fills: bool = True
    spark: bool = True

    def prepare(self, folder: Path) -> list[tuple[str, int]]:
        """Write a folder for each stage, with a file for each epoch."""
        shutil.rmtree(folder, ignore_errors=True)
        made: list[tuple[str, int]] = []
        first = 0
        with duckdb.connect() as db:
            for stage, files in enumerate(self._stages()):
                made.append((str(folder / f"stage{stage}"), files[0]))
                Path(made[-1][0]).mkdir(parents=True)
                told = stage > 0 or not self.fills
                for number, rows in enumerate(files):
                    db.execute(f"COPY ({self._rows(first, rows, told)}) TO '{made[-1][0]}/{number:04}.parquet'")
                    first += rows
        return made

    def _stages(self) -> list[list[int]]:
        measured = [self.rows] * (self.epochs + 1)
        if not self.fills:
            return [measured]
        pieces = -(-self.keys // _LOAD_ROWS)
        return [[self.keys // pieces + (n < self.keys % pieces) for n in range(pieces)], measured, [self.rows]]

    def _rows(self, first: int, rows: int, told: bool) -> str:
        """Return rows whose keys lie anywhere among all (the step is a prime), with amounts whose sums are exact."""
        columns = f"(i * 7919) % {self.keys} AS key, (i % 1024) / 256.0::DOUBLE AS amount, {told} AS told"
        return f"SELECT {columns} FROM range({first}, {first + rows}) r(i)"


def run(
    json: Path | str | None = None,
    events: int = 1_000_000,
    *,
    keys: int = 10_000,
    sizes: Sequence[int] = (10_000, 100_000, 1_000_000, 10_000_000),
    touched: int = 10_000,
    few: tuple[int, int] = (500, 50_000),
    epochs: int = 4,
    rounds: int = 10,
    spark_keys: int = 100_000,
    cache: Path = CACHE,
) -> int:
    """Measure all cases; return 1 if a result is wrong."""
    cases = (
        Case("events", keys, epochs, events // epochs, fills=False),
        Case("few", few[1], rounds, few[0]),
        *(Case(f"touched-{size}", size, rounds, min(touched, size), spark=size == spark_keys) for size in sizes),
    )
    found = [result for case in cases for result in _measured(case, cache.absolute() / f"state-{case.name}")]
    settings = {"events": events, "keys": keys, "epochs": epochs, "touched": touched, "rounds": rounds}
    settings["spark_keys"] = spark_keys
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
        least = LEAST[pair.split(":")[1].split("-")[0]]
        yield Bar(f"{pair} {ratio:.2f}, bar {least:.2f}", ratio >= least)
    ours = {result.case: result for result in found if result.system == OURS}
    if "few" in ours:
        took = ours["few"].extra["epoch ms"] or 0
        yield Bar(f"few: {took:.0f} ms an epoch, bar at most {FEW_MS:.0f}", took <= FEW_MS)
    sizes = [result for case, result in ours.items() if case.startswith("touched-")]
    for theirs in (result for result in found if result.system == SPARK and result.case.startswith("touched-")):
        for result in (one for one in sizes if one.case != theirs.case):
            ratio = result.rows_per_s / theirs.rows_per_s
            yield Bar(f"{result.case} beside spark's {theirs.case}: {ratio:.2f}, bar 5.00", ratio >= LEAST["touched"])
    if len(sizes) > 1:
        times = [result.extra["epoch ms"] or 0 for result in sizes]
        slowest = max(times) / min(times)
        yield Bar(f"touched: the slowest epoch is {slowest:.2f} x the fastest, bar {FLAT:.2f}", slowest <= FLAT)
        restart = sizes[-1].extra["restart s"] or 0
        yield Bar(f"{sizes[-1].case}: first epoch {restart:.1f} s after Spark's start", restart <= RESTART_S)


def _measured(case: Case, folder: Path) -> list[Result]:
    given = case.prepare(folder)
    made = []
    for system in (SPARK, OURS) if case.spark else (OURS,):
        print(f"{case.name}, {system} ...", end=" ", flush=True)
        work = folder / system
        job = Job(system, given[:2], str(work), cores(), _SPARK_EPOCHS + 1 if system == SPARK and case.fills else None)
        try:
            told, peak_mb = answered("benchmarks.state_jobs", job, job.system)
            written = round(told["bytes"] / 1000 / len(told["epochs"]))
            extra: dict[str, float | None] = {"epoch ms": None, "KB/epoch": written, "restart s": None}
            if system == OURS and len(given) > 2:
                again, _ = answered("benchmarks.state_jobs", Job(system, given[2:], str(work), cores()), job.system)
                extra["restart s"] = again["first_s"]
            equal = _equal(work)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        counted = told["epochs"][1:]
        seconds = sum(one["seconds"] for one in counted)
        rows = case.rows * len(counted)
        extra["epoch ms"] = round(1000 * seconds / len(counted))
        print(f"{seconds:.2f} s in {len(counted)} epochs")
        made.append(Result(system, case.name, round(rows / seconds), round(seconds, 3), peak_mb, equal, extra))
    shutil.rmtree(folder, ignore_errors=True)
    return made


def _equal(work: Path) -> bool:
    """Say whether each key was told of every row that asks for it, in order, and at last its count and sum."""
    right = "SELECT key, count(*) AS n, sum(amount) AS total, count(*) FILTER (told) AS rows "
    right += f"FROM read_parquet('{work}/input/*.parquet') GROUP BY key HAVING rows > 0"
    last = "SELECT key, max(n) AS n, max(total) AS total, count(DISTINCT n) AS rows "
    last += f"FROM read_parquet('{work}/output/**/*.parquet') GROUP BY key HAVING count(*) = rows"
    with duckdb.connect() as db:
        wrong = db.execute(f"SELECT count(*) FROM (({right}) EXCEPT ({last}))").fetchone()
    return wrong is not None and wrong[0] == 0
