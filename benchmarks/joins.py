"""An interval join of two streams, by Penstock and by hand in PySpark."""

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

CASE = "interval"
LEAST = 0.95
EPOCHS = 12
_INPUTS = ("orders", "shipments")
WITHIN_S = 60
NOTE = """
interval: {rows:,} orders with their shipments (four of five within two seconds, the others booked before them), both
from Parquet in {epochs} epochs, inner join on the order within {within} s, result to Parquet; in one process and
session, so with the same settings, by turns, best of {runs} after one that does not count, from the start of the query
to its end. Rows per second are those of both inputs. equal: the result is what DuckDB gives in batch.
"""
_START = 1_767_225_600_000_000
_ORDERS = """
    SELECT i AS order_id, 'customer' || (hash(i) % 5000) AS customer, (hash(i + 7) % 100000) / 100.0 AS amount,
        {start} + i * 200 + (hash(i + 1) % 2000000)::BIGINT AS ts
    FROM range({first}, {last}) t(i)
"""
_SHIPMENTS = """
    SELECT i AS order_id, 'carrier' || (hash(i + 3) % 20) AS carrier,
        {start} + i * 200 + (hash(i + 1) % 2000000)::BIGINT
            + CASE WHEN hash(i + 5) % 5 < 4 THEN (hash(i + 2) % 2000000)::BIGINT ELSE -500000 END AS ts
    FROM range({first}, {last}) t(i)
"""


@dataclass(frozen=True)
class Orders:
    """Orders and shipments in as many files as there are epochs; none is late."""

    rows: int
    cache: Path = CACHE

    @property
    def folder(self) -> Path:
        """Where they are kept."""
        return self.cache.absolute() / f"orders-shipments-{self.rows}"

    def prepare(self) -> None:
        """Make the files unless they are there."""
        if self.folder.is_dir():
            return
        partial = self.folder.with_name(f"{self.folder.name}.partial-{os.getpid()}")
        with duckdb.connect() as db:
            for name, query in zip(_INPUTS, (_ORDERS, _SHIPMENTS), strict=True):
                (partial / name).mkdir(parents=True, exist_ok=True)
                for number in range(EPOCHS):
                    first, last = (self.rows * n // EPOCHS for n in (number, number + 1))
                    path = partial / name / f"part-{number:05}.parquet"
                    rows = query.format(start=_START, first=first, last=last)
                    table = db.sql(rows).to_arrow_table()
                    times = table.column("ts").cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
                    parquet.write_table(table.drop_columns(["ts"]).append_column("ts", times), path)
                    os.utime(path, (1_800_000_000 + number,) * 2)
        partial.rename(self.folder)


def run(json: Path | str | None = None, rows: int = 600_000, *, runs: int = 3, cache: Path = CACHE) -> int:
    """Measure both; return 1 if a result is not that of batch SQL."""
    orders = Orders(rows, cache)
    orders.prepare()
    print("interval join ...", end=" ", flush=True)
    found = _measured(orders, runs)
    settings = {"rows": rows, "epochs": EPOCHS, "within": WITHIN_S, "runs": runs}
    made = results.document("joins", settings, found) | {"ratios": ratios(found)}
    target = Path(json) if json else cache / "joins.json"
    results.save(made, target)
    chart.draw(made, target.with_suffix(".png"))
    results.show(made, NOTE.format(**settings), bars(found))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found) else 1


def ratios(found: Sequence[Result]) -> dict[str, float]:
    """Return the speed of Penstock over that of PySpark by hand.

    >>> ratios([Result("penstock", "interval", 99, 1, 1, True), Result("spark", "interval", 100, 1, 1, True)])
    {'penstock/spark:interval': 0.99}
    """
    speeds = {row.system: row.rows_per_s for row in found}
    return {f"{OURS}/spark:{CASE}": round(speeds[OURS] / speeds["spark"], 3)} if len(speeds) == 2 else {}


def bars(found: Sequence[Result]) -> Iterator[Bar]:
    """Say whether the bar was reached."""
    for pair, ratio in ratios(found).items():
        yield Bar(f"{pair} {ratio:.2f}, bar {LEAST:.2f}", ratio >= LEAST)


def _measured(orders: Orders, runs: int) -> list[Result]:
    work = orders.folder.with_name(f"{orders.folder.name}-work-{os.getpid()}")
    try:
        job = Job(str(orders.folder), str(work), orders.rows // EPOCHS, cores(), WITHIN_S, runs)
        answer, peak_mb = answered("benchmarks.joins_jobs", job, "joins")
        equal = {system: _equal(orders, answer["outputs"][system]) for system in SYSTEMS}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    best = {system: min(answer["seconds"][system]) for system in SYSTEMS}
    print(", ".join(f"{system} {best[system]:.2f} s" for system in SYSTEMS))
    rows = _count(orders)
    return [
        Result(system, CASE, round(rows / best[system]), round(best[system], 3), peak_mb, equal[system])
        for system in SYSTEMS
    ]


def _count(orders: Orders) -> int:
    with duckdb.connect() as db:
        counts = [db.execute(f"SELECT count(*) FROM '{orders.folder}/{name}/*.parquet'").fetchone() for name in _INPUTS]
    return sum(one[0] for one in counts if one)


def _equal(orders: Orders, output: str) -> bool:
    """Say whether an output has the rows of the batch join, each as often."""
    batch = f"""
        SELECT o.order_id, o.customer, o.amount, epoch_us(o.ts) AS ts, s.carrier, epoch_us(s.ts) AS ts_right
        FROM '{orders.folder}/orders/*.parquet' o
        JOIN '{orders.folder}/shipments/*.parquet' s
            ON o.order_id = s.order_id AND epoch_us(s.ts) - epoch_us(o.ts) BETWEEN 0 AND {WITHIN_S * 1_000_000}
    """
    names = "order_id, customer, amount, epoch_us(ts) AS ts, carrier, epoch_us(ts_right) AS ts_right"
    mine = f"SELECT {names} FROM '{output}/*.parquet'"
    with duckdb.connect() as db:
        other = f"(({batch}) EXCEPT ALL ({mine})) UNION ALL (({mine}) EXCEPT ALL ({batch}))"
        found = db.execute(f"SELECT count(*) FROM ({other})").fetchone()
        there = db.execute(f"SELECT count(*) FROM ({mine})").fetchone()
    return found == (0,) and bool(there and there[0])
