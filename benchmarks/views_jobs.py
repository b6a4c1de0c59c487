"""The jobs of the views bench on Spark, each in a process of its own: `python -m benchmarks.views_jobs CONFIG`.

Each epoch gets one file of each input. What an epoch took is what Spark says of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import end_with_parent
from benchmarks.views_queries import AUCTIONS, BIDS, QUERIES

SCHEMAS = {"auctions": AUCTIONS, "bids": BIDS}
UPDATES = "bid bigint, auction bigint, price bigint"


@dataclass(frozen=True)
class Job:
    """What to run: `system` is "penstock", "spark", "duckdb" or "updates"; `query` is one of Nexmark's."""

    system: str
    query: str
    input: str
    work: str
    cores: int
    epochs: int


def penstock(job: Job) -> dict[str, Any]:
    """Maintain the view, and write its changes to files."""
    import penstock as ps

    query = QUERIES[job.query]
    folders = {name: _folder(job, name) for name in SCHEMAS}
    views = {n: ps.read_files(str(f), format="parquet", schema=SCHEMAS[n]).named(n).view() for n, f in folders.items()}
    view = query.view(views["auctions"], views["bids"])
    pipeline = ps.Pipeline("views", view.changes().to(ps.files(f"{job.work}/output")))
    return _run(pipeline, job, query.inputs)


def updates(job: Job) -> dict[str, Any]:
    """Maintain the best bid of each auction while bids change."""
    import penstock as ps

    rows = ps.read_files(str(_folder(job, "updates")), format="parquet", schema=UPDATES).named("updates")
    best = rows.view("bid").group_by("auction").aggregate(best="max(price)", n="count(*)")
    return _run(ps.Pipeline("views", best.changes().to(ps.files(f"{job.work}/output"))), job, ("updates",))


def _run(pipeline: Any, job: Job, inputs: tuple[str, ...]) -> dict[str, Any]:
    import penstock as ps

    settings = ps.Settings(parallelism=job.cores, epoch_rows=100_000_000)
    run = pipeline.start(checkpoint=f"{job.work}/checkpoint", settings=settings)
    seconds = []
    for number in range(job.epochs):
        seen = len(_progress(run.queries[0]))
        for name in inputs:
            _put(job, name, number)
        run.process_available()
        seconds.append(sum(_progress(run.queries[0])[seen:]))
    run.stop()
    run.wait()
    return {"seconds": seconds}


def spark(job: Job) -> dict[str, Any]:
    """Run query 20 as Spark's guide has it: an inner join of two streams without a bound in time."""
    from pyspark.sql import functions as F

    import penstock as ps
    from penstock.spark.session.spark_session import session

    made = session(ps.Settings(parallelism=job.cores))
    # As by hand: Spark's 200 partitions would have 800 state stores.
    made.conf.set("spark.sql.shuffle.partitions", job.cores)

    def read(name: str) -> Any:
        reader = made.readStream.format("parquet").schema(SCHEMAS[name])
        return reader.load(str(_folder(job, name)))

    auctions, bids = read("auctions").filter("category = 10"), read("bids")
    joined = bids.join(auctions, F.expr("auction = id"))
    query = None
    seconds = []
    for number in range(job.epochs):
        for name in ("auctions", "bids"):
            _put(job, name, number)
        if query is None:
            writer = joined.writeStream.format("parquet").option("checkpointLocation", f"{job.work}/checkpoint")
            query = writer.start(f"{job.work}/output")
        seen = len(_progress(query))
        query.processAllAvailable()
        seconds.append(sum(_progress(query)[seen:]))
    assert query is not None
    query.stop()
    return {"seconds": seconds}


def duckdb(job: Job) -> dict[str, Any]:
    """Compute everything again after each epoch, over tables in memory."""
    import duckdb as engine

    query, seconds = QUERIES[job.query], []
    with engine.connect() as db:
        db.execute(f"SET TimeZone = 'UTC'; SET threads = {job.cores}")
        for number in range(job.epochs):
            for name in query.inputs:
                made = f"INSERT INTO {name}" if number else f"CREATE TABLE {name} AS"
                db.execute(f"{made} SELECT * FROM '{job.input}/{name}/{number:04}.parquet'")
            started = time.perf_counter()
            db.sql(query.sql).to_arrow_table()
            seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


def _progress(query: Any) -> list[float]:
    """Return the seconds of every epoch that had rows."""
    told = (json.loads(one.json) for one in query.recentProgress)
    return [one["durationMs"]["triggerExecution"] / 1000 for one in told if one["numInputRows"]]


def _folder(job: Job, name: str) -> Path:
    folder = Path(job.work) / "input" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _put(job: Job, name: str, number: int) -> None:
    os.link(f"{job.input}/{name}/{number:04}.parquet", _folder(job, name) / f"{number:04}.parquet")


if __name__ == "__main__":
    end_with_parent()
    given = Job(**json.loads(sys.argv[1]))
    ran = {"penstock": penstock, "spark": spark, "duckdb": duckdb, "updates": updates}[given.system](given)
    print("\n" + json.dumps(ran), flush=True)
