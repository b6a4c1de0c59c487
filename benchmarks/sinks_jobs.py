"""The jobs of the sinks bench, each in a process of its own: `python -m benchmarks.sinks_jobs CONFIG`.

`sink` writes the same rows with each guarantee in turn and prints the seconds of each; the others run until they are
killed or at their end: `vwap` is Penstock's windowed job, `spark` the same by hand.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import end_with_parent

SCHEMA = "symbol string, price double, size bigint, ts timestamp"
GUARANTEES = ("exactly_once", "at_least_once")


@dataclass(frozen=True)
class Job:
    """What to run: `kind` is "sink", "vwap" or "spark"; `sink` is "topic", "files" or "postgresql"."""

    kind: str
    input: str
    work: str
    epoch_rows: int
    cores: int
    window: str = "60s"
    delay: str = "5s"
    sink: str = ""
    address: str = ""
    runs: int = 3


def sinks(job: Job) -> None:
    """Write the rows once to warm up, then with each guarantee in turn; the order changes from round to round."""
    import penstock as ps

    rows = ps.read_files(job.input, format="parquet", schema=SCHEMA)
    settings = ps.Settings(epoch_rows=job.epoch_rows, parallelism=job.cores, log=job.address or None)
    seconds: dict[str, list[float]] = {guarantee: [] for guarantee in GUARANTEES}
    names = dict.fromkeys(GUARANTEES, "")
    for number in range(job.runs + 1):
        for guarantee in GUARANTEES if number % 2 else GUARANTEES[::-1]:
            names[guarantee] = f"bench{uuid.uuid4().hex[:8]}"
            pipeline = ps.Pipeline("sinks", rows.to(_sink(job, names[guarantee], guarantee)))
            started = time.perf_counter()
            pipeline.run(until="ended", checkpoint=f"{job.work}/{names[guarantee]}-checkpoint", settings=settings)
            if number:
                seconds[guarantee].append(time.perf_counter() - started)
    print("\n" + json.dumps({"seconds": seconds, "names": names}), flush=True)


def _sink(job: Job, name: str, guarantee: Any) -> Any:
    import penstock as ps

    match job.sink:
        case "topic":
            return ps.topic(name, key="symbol", guarantee=guarantee)
        case "postgresql":
            return ps.table(name, connection=job.address, guarantee=guarantee)
    return ps.files(f"{job.work}/{name}", guarantee=guarantee)


def vwap(job: Job) -> None:
    """Run the windowed job to its end; say when Spark is ready and when all is done."""
    import penstock as ps
    from penstock.spark.session.spark_session import session

    rows = ps.read_files(job.input, format="parquet", schema=SCHEMA).filter("size > 0")
    windows = rows.event_time("ts", job.delay).key_by("symbol").window(ps.tumbling(job.window))
    made = windows.aggregate(vwap="sum(price * size) / sum(size)", volume="sum(size)", trades="count(*)")
    settings = ps.Settings(epoch_rows=job.epoch_rows, parallelism=job.cores)
    session(settings)
    _say("ready")
    pipeline = ps.Pipeline("vwap", made.to(ps.files(f"{job.work}/output")))
    pipeline.run(until="ended", checkpoint=f"{job.work}/checkpoint", settings=settings)
    _say("done")


def spark(job: Job) -> None:
    """Run the same by hand, as Spark's guide has it: its defaults, but for as many shuffle partitions as cores."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[*]").config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.showConsoleProgress", "false")
    made = builder.config("spark.sql.shuffle.partitions", job.cores).getOrCreate()
    _say("ready")
    rows = made.readStream.format("parquet").schema(SCHEMA).option("maxFilesPerTrigger", 1).load(job.input)
    window, delay = (span.replace("s", " seconds") for span in (job.window, job.delay))
    groups = rows.filter("size > 0").withWatermark("ts", delay).groupBy("symbol", F.window("ts", window))
    sums = groups.agg(F.expr("sum(price * size) / sum(size) AS vwap"), F.sum("size").alias("volume"))
    written = sums.selectExpr("symbol", "window.start", "vwap", "volume").writeStream.format("parquet")
    written = written.option("checkpointLocation", f"{job.work}/checkpoint").trigger(availableNow=True)
    written.start(f"{job.work}/output").awaitTermination()
    _say("done")


def _say(what: str) -> None:
    print(json.dumps({what: time.time()}), flush=True)


if __name__ == "__main__":
    end_with_parent()
    given = Job(**json.loads(sys.argv[1]))
    Path(given.work).mkdir(parents=True, exist_ok=True)
    {"sink": sinks, "vwap": vwap, "spark": spark}[given.kind](given)
