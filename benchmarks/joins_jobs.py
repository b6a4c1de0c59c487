"""The job of the joins bench, in a process of its own: `python -m benchmarks.joins_jobs CONFIG`.

It joins orders with their shipments by Penstock and by hand in PySpark, by turns, in one session and so with the same
settings, and prints the seconds of each.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import end_with_parent

ORDERS = "order_id bigint, customer string, amount double, ts timestamp"
SHIPMENTS = "order_id bigint, carrier string, ts timestamp"
SYSTEMS = ("penstock", "spark")


@dataclass(frozen=True)
class Job:
    """What to run; `epoch_rows` is what a file of each input has."""

    input: str
    work: str
    epoch_rows: int
    cores: int
    within_s: int
    runs: int = 3


def joins(job: Job) -> None:
    """Join once to warm up, then by each in turn; the order changes from round to round."""
    seconds: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    outputs = dict.fromkeys(SYSTEMS, "")
    for number in range(job.runs + 1):
        for system in SYSTEMS if number % 2 else SYSTEMS[::-1]:
            outputs[system] = f"{job.work}/{system}-{uuid.uuid4().hex[:8]}"
            started = time.perf_counter()
            {"penstock": penstock, "spark": by_hand}[system](job, outputs[system])
            if number:
                seconds[system].append(time.perf_counter() - started)
    print("\n" + json.dumps({"seconds": seconds, "outputs": outputs}), flush=True)


def penstock(job: Job, output: str) -> None:
    """Join by Penstock."""
    import penstock as ps

    orders = ps.read_files(f"{job.input}/orders", format="parquet", schema=ORDERS).event_time("ts", "5s")
    shipments = ps.read_files(f"{job.input}/shipments", format="parquet", schema=SHIPMENTS).event_time("ts", "5s")
    both = orders.join(shipments, on="order_id", within=("0s", f"{job.within_s}s"))
    pipeline = ps.Pipeline("joins", both.to(ps.files(output)))
    pipeline.run(until="drained", checkpoint=f"{output}-checkpoint", settings=_settings(job))


def by_hand(job: Job, output: str) -> None:
    """Join as Spark's guide has it."""
    from pyspark.sql import functions as F

    from penstock.spark.session.spark_session import query_settings, session

    spark = session(_settings(job))
    chosen = query_settings(_settings(job), branches=False)
    for key, value in chosen.items():
        spark.conf.set(key, value)

    def read(name: str, schema: str) -> Any:
        reader = spark.readStream.format("parquet").schema(schema).option("maxFilesPerTrigger", 1)
        return reader.load(f"{job.input}/{name}").withWatermark("ts", "5 seconds").alias(name)

    near = f"shipments.ts >= orders.ts AND shipments.ts <= orders.ts + interval {job.within_s} seconds"
    both = read("orders", ORDERS).join(
        read("shipments", SHIPMENTS), F.expr(f"orders.order_id = shipments.order_id AND {near}")
    )
    chosen_columns = ("orders.*", "shipments.carrier", "shipments.ts AS ts_right")
    written = both.selectExpr(*chosen_columns).writeStream.format("parquet").trigger(availableNow=True)
    written.option("checkpointLocation", f"{output}-checkpoint").start(output).awaitTermination()


def _settings(job: Job) -> Any:
    import penstock as ps

    return ps.Settings(epoch_rows=job.epoch_rows, parallelism=job.cores)


if __name__ == "__main__":
    end_with_parent()
    given = Job(**json.loads(sys.argv[1]))
    Path(given.work).mkdir(parents=True, exist_ok=True)
    joins(given)
