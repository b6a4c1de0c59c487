"""The systems of the latency bench: `python -m benchmarks.latency_jobs CONFIG` runs one until SIGTERM.

Two cases: `stateless` is a filter and a projection, `keyed` counts and adds up per key and updates the result with
every row. Spark by hand is as its guide has it: the default trigger and settings, but for as many shuffle partitions as
cores, for with its 200 it would take seconds.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any

SCHEMA = "k string, n bigint, v double"
SPARK = "spark-defaults"


@dataclass(frozen=True)
class Job:
    """What to run: `system` is a pace of Penstock or `spark-defaults`."""

    system: str
    case: str
    bootstrap: str
    source: str
    target: str
    checkpoint: str
    cores: int


def penstock(job: Job, stopped: threading.Event) -> None:
    """Run the pipeline at a pace."""
    import penstock as ps

    rows = ps.read_topic(job.source, schema=SCHEMA, connection=job.bootstrap)
    made = rows.filter("n >= 0").select("k", "n", twice="v * 2")
    if job.case == "keyed":
        made = rows.key_by("k").aggregate(times="count(*)", total="sum(v)")
    sink = ps.topic(job.target, key="k", connection=job.bootstrap)
    pipeline = ps.Pipeline("latency", made.to(sink), pace=job.system.removeprefix("penstock-"))  # type: ignore[arg-type]
    run = pipeline.start(checkpoint=job.checkpoint, settings=ps.Settings(parallelism=job.cores))
    while not (stopped.wait(0.2) or run.wait(0)):
        pass
    run.stop()
    run.wait()


def spark(job: Job, stopped: threading.Event) -> None:
    """Run the query that a Spark user writes by hand."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from penstock.spark.session.jars import jars

    files = ",".join(map(str, jars("kafka")))
    builder = SparkSession.builder.master("local[*]").config("spark.jars", files).config("spark.log.level", "ERROR")
    session = builder.config("spark.sql.shuffle.partitions", job.cores).getOrCreate()
    log = {"kafka.bootstrap.servers": job.bootstrap}
    read = session.readStream.format("kafka").options(**log, subscribe=job.source, startingOffsets="earliest").load()
    rows = read.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS row").select("row.*")
    made, mode = rows.filter("n >= 0").selectExpr("k", "n", "v * 2 AS twice"), "append"
    if job.case == "keyed":
        made, mode = rows.groupBy("k").agg(F.count("*").alias("times"), F.sum("v").alias("total")), "update"
    written = made.selectExpr("k AS key", "to_json(struct(*)) AS value").writeStream.format("kafka").options(**log)
    query = written.option("topic", job.target).option("checkpointLocation", job.checkpoint).outputMode(mode).start()
    while query.isActive and not stopped.wait(0.2):
        pass
    query.stop()
    session.stop()


def main(config: dict[str, Any]) -> None:
    """Run one system until SIGTERM."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    job = Job(**config)
    (spark if job.system == SPARK else penstock)(job, stopped)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
