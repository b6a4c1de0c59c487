"""The job of the dedup bench, in a process of its own: `python -m benchmarks.dedup_jobs CONFIG`.

It drops duplicates by Penstock and by hand in PySpark, by turns, in one session and so with the same settings, and
prints the seconds of each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.by_turns import Job, run_by_turns
from benchmarks.child import end_with_parent

SCHEMA = "id string, amount double, ts timestamp"


def penstock(job: Job, output: str) -> None:
    """Drop duplicates by Penstock."""
    import penstock as ps

    within = f"{job.within_s}s"
    events = ps.read_files(job.input, format="parquet", schema=SCHEMA).event_time("ts", within)
    pipeline = ps.Pipeline("dedup", events.deduplicate("id", within=within).to(ps.files(output)))
    pipeline.run(until="drained", checkpoint=f"{output}-checkpoint", settings=job.settings)


def by_hand(job: Job, output: str) -> None:
    """Drop them as Spark's guide has it."""
    spark = job.session()
    reader = spark.readStream.format("parquet").schema(SCHEMA).option("maxFilesPerTrigger", 1).load(job.input)
    once = reader.withWatermark("ts", f"{job.within_s} seconds").dropDuplicatesWithinWatermark(["id"])
    written = once.writeStream.format("parquet").trigger(availableNow=True)
    written.option("checkpointLocation", f"{output}-checkpoint").start(output).awaitTermination()


if __name__ == "__main__":
    end_with_parent()
    given = Job(**json.loads(sys.argv[1]))
    Path(given.work).mkdir(parents=True, exist_ok=True)
    run_by_turns(given, penstock, by_hand)
