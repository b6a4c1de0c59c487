"""Views on Spark: Nexmark's queries beside DuckDB, which computes everything again; and epochs of few changes."""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.data import CACHE
from benchmarks.process import answered
from benchmarks.results import OURS, Bar, Result
from benchmarks.views_jobs import Job
from benchmarks.views_queries import QUERIES, Nexmark
from penstock.settings import cores

# From this epoch on a view must be faster than computing everything again.
FROM_EPOCH = 10
FLAT = 2.0
CHANGES = 1_000
NOTE = """
qN-R: Nexmark's query over R events in each of {epochs} epochs, from Parquet files to files of changes; seconds are
those of the epochs from the tenth on, as Spark says. duckdb: the whole query again over tables in memory, without
reading and writing; it takes longer in every epoch, and "wins from" is the epoch from which a view is faster than that.
spark: by hand in PySpark, where it can stream the query. changes-N: epochs of {changes:,} changed bids on N.
equal: applied in order, all changes give what DuckDB computes from all rows.
"""


@dataclass(frozen=True)
class Sizes:
    """Events in each epoch, and how many epochs; which queries; and how many rows the few changes are made on.

    `spark_rows` are the events in each epoch where Spark takes part: with more it takes minutes for an epoch.
    """

    rows: tuple[int, ...] = (200_000, 1_000_000)
    epochs: int = 12
    spark_rows: int = 20_000
    queries: tuple[str, ...] = tuple(QUERIES)
    changed_of: tuple[int, ...] = (10_000, 1_000_000)
    changes: int = CHANGES
    folder: str = str(CACHE)


def measured(sizes: Sizes) -> Iterator[Result]:
    """Measure the queries, and epochs of few changes on few and on many rows."""
    cache = Path(sizes.folder)
    for rows in sizes.rows:
        data = _data(cache, sizes.epochs, rows)
        for name in sizes.queries:
            yield from _query(name, data, "duckdb")
    for name in sizes.queries:
        if QUERIES[name].spark:
            yield from _query(name, _data(cache, sizes.epochs, sizes.spark_rows), "duckdb", "spark")
    for size in sizes.changed_of:
        yield _updates(size, sizes.changes, cache.absolute() / f"view-changes-{size}")


def _data(cache: Path, epochs: int, rows: int) -> Nexmark:
    data = Nexmark(cache.absolute() / f"nexmark-{epochs}-{rows}", epochs, rows)
    data.prepare()
    return data


def _query(name: str, data: Nexmark, *peers: str) -> Iterator[Result]:
    ours = 0.0
    for system in (OURS, *peers):
        work = data.folder.with_name(f"{data.folder.name}-{name}-{system}")
        shutil.rmtree(work, ignore_errors=True)
        case = f"{name}-{data.rows}"
        print(f"{case}, {system} ...", end=" ", flush=True)
        told, peak_mb = answered("benchmarks.views_jobs", _job(system, name, data, work), system)
        late = told["seconds"][FROM_EPOCH - 1 :]
        seconds = sum(late)
        equal = system != OURS or _equal(name, data, work)
        print(f"{1000 * statistics.median(late):.0f} ms an epoch")
        extra = {"epoch ms": round(1000 * statistics.median(late)), "first ms": round(1000 * told["seconds"][0])}
        if system == OURS:
            ours = statistics.median(late)
        elif system == "duckdb":
            extra["wins from"] = _first_win(ours, told["seconds"])
        yield Result(system, case, round(data.rows * len(late) / seconds), round(seconds, 3), peak_mb, equal, extra)
        shutil.rmtree(work, ignore_errors=True)


def _first_win(ours: float, seconds: Sequence[float]) -> int:
    """Return the epoch from which a view is faster than computing everything again, which takes longer each time."""
    # The first half of the epochs has what starting takes.
    later = range(len(seconds) // 2, len(seconds))
    slope = statistics.median(seconds[number] / (number + 1) for number in later)
    return math.ceil(ours / slope)


def _job(system: str, name: str, data: Nexmark, work: Path) -> Job:
    return Job(system, name, str(data.folder), str(work), cores(), data.epochs)


def _equal(name: str, data: Nexmark, work: Path) -> bool:
    """Say whether the changes of all epochs, applied in order, give what DuckDB computes from all rows."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for table in ("auctions", "bids"):
            db.execute(f"CREATE VIEW {table} AS SELECT * FROM '{data.folder}/{table}/*.parquet'")
        db.execute(f"CREATE TABLE expected AS {QUERIES[name].sql}")
        names = [column[0] for column in db.execute("DESCRIBE expected").fetchall()]
        columns = ", ".join(f'"{one}"' for one in names)
        read = f"read_parquet('{work}/output/*.parquet', filename = true)"
        # The number of the epoch is in the name of each file; an epoch has one change of a key at most.
        epoch = "regexp_extract(filename, '-([0-9]{8})-', 1)"
        db.execute(f"CREATE TABLE changes AS SELECT {columns}, _change, {epoch} AS epoch FROM {read}")
        if unique := QUERIES[name].unique:
            last = f"row_number() OVER (PARTITION BY {', '.join(unique)} ORDER BY epoch DESC) AS n"
            left = f"SELECT {columns} FROM (SELECT *, {last} FROM changes) WHERE n = 1 AND _change <> 'delete'"
        else:
            summed = f"SELECT {columns}, sum(if(_change = 'delete', -1, 1))::BIGINT AS n FROM changes GROUP BY ALL"
            left = f"SELECT {columns} FROM ({summed}), range(n)"
        db.execute(f"CREATE TABLE found AS {left}")
        differing = "(FROM found EXCEPT ALL FROM expected) UNION ALL (FROM expected EXCEPT ALL FROM found)"
        wrong = db.execute(f"SELECT count(*) FROM ({differing})").fetchone()
    return wrong is not None and wrong[0] == 0


def _updates(size: int, changes: int, folder: Path) -> Result:
    """Measure epochs of few changes after one that fills the view."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "updates").mkdir(parents=True)
    epochs = 14
    with duckdb.connect() as db:
        for number in range(epochs):
            first, rows = (0, size) if number == 0 else (size + number * changes, changes)
            bid = f"(i * 7919) % {size} AS bid, (hash(i * 7919 % {size}) % {size // 10})::BIGINT AS auction"
            made = f"SELECT {bid}, (hash(i + 1) % 100000)::BIGINT AS price FROM range({first}, {first + rows}) t(i)"
            db.execute(f"COPY ({made}) TO '{folder}/updates/{number:04}.parquet'")
    print(f"{changes:,} changes on {size:,} ...", end=" ", flush=True)
    job = Job("updates", "", str(folder), str(folder / "work"), cores(), epochs)
    told, peak_mb = answered("benchmarks.views_jobs", job, OURS)
    late = told["seconds"][4:]
    print(f"{1000 * statistics.median(late):.0f} ms an epoch")
    extra = {"epoch ms": round(1000 * statistics.median(late)), "first ms": round(1000 * told["seconds"][0])}
    shutil.rmtree(folder, ignore_errors=True)
    rows = changes * len(late)
    return Result(OURS, f"changes-{size}", round(rows / sum(late)), round(sum(late), 3), peak_mb, True, extra)


def bars(found: Sequence[Result]) -> Iterator[Bar]:
    """Say which bars were reached."""
    speeds = {(one.case, one.system): one.rows_per_s for one in found}
    for (case, system), speed in speeds.items():
        if system != OURS and (case, OURS) in speeds:
            ratio = speeds[case, OURS] / speed
            yield Bar(f"{OURS}/{system}:{case} {ratio:.2f}, bar 1.00", ratio >= 1)
    times = [one.extra["epoch ms"] or 0 for one in found if one.case.startswith("changes-")]
    if len(times) > 1:
        slowest = max(times) / min(times)
        yield Bar(f"changes: the slowest epoch is {slowest:.2f} x the fastest, bar {FLAT:.2f}", slowest <= FLAT)
