"""The job of the joins bench, in a process of its own: `python -m benchmarks.joins_jobs CONFIG`.

It joins orders with their shipments by Penstock and by hand in PySpark, by turns, in one session and so with the same
settings, and prints the seconds of each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.by_turns import Job, run_by_turns
from benchmarks.child import end_with_parent

ORDERS = "order_id bigint, customer string, amount double, ts timestamp"
SHIPMENTS = "order_id bigint, carrier string, ts timestamp"


def penstock(job: Job, output: str) -> None:
    """Join by Penstock."""
    import penstock as ps

    orders = ps.read_files(f"{job.input}/orders", format="parquet", schema=ORDERS).event_time("ts", "5s")
    shipments = ps.read_files(f"{job.input}/shipments", format="parquet", schema=SHIPMENTS).event_time("ts", "5s")
    both = orders.join(shipments, on="order_id", within=("0s", f"{job.within_s}s"))
    pipeline = ps.Pipeline("joins", both.to(ps.files(output)))
    pipeline.run(until="drained", checkpoint=f"{output}-checkpoint", settings=job.settings)


def by_hand(job: Job, output: str) -> None:
    """Join as Spark's guide has it."""
    from pyspark.sql import functions as F

    spark = job.session()

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


if __name__ == "__main__":
    end_with_parent()
    given = Job(**json.loads(sys.argv[1]))
    Path(given.work).mkdir(parents=True, exist_ok=True)
    run_by_turns(given, penstock, by_hand)
