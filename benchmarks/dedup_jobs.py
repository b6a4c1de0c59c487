"""The job of the dedup bench, in a process of its own: `python -m benchmarks.dedup_jobs CONFIG`.

It drops duplicates by Penstock and by hand in PySpark, by turns, in one session and so with the same settings, and
prints the seconds of each.
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

SCHEMA = "id string, amount double, ts timestamp"
SYSTEMS = ("penstock", "spark")


@dataclass(frozen=True)
class Job:
    """What to run; `epoch_rows` is what a file of the input has."""

    input: str
    work: str
    epoch_rows: int
    cores: int
    within_s: int
    runs: int = 3


def dedup(job: Job) -> None:
    """Run once to warm up, then by each in turn; the order changes from round to round."""
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
    """Drop duplicates by Penstock."""
    import penstock as ps

    within = f"{job.within_s}s"
    events = ps.read_files(job.input, format="parquet", schema=SCHEMA).event_time("ts", within)
    pipeline = ps.Pipeline("dedup", events.deduplicate("id", within=within).to(ps.files(output)))
    pipeline.run(until="drained", checkpoint=f"{output}-checkpoint", settings=_settings(job))


def by_hand(job: Job, output: str) -> None:
    """Drop them as Spark's guide has it."""
    from penstock.spark.session.spark_session import query_settings, session

    spark = session(_settings(job))
    for key, value in query_settings(_settings(job), branches=False).items():
        spark.conf.set(key, value)
    reader = spark.readStream.format("parquet").schema(SCHEMA).option("maxFilesPerTrigger", 1).load(job.input)
    once = reader.withWatermark("ts", f"{job.within_s} seconds").dropDuplicatesWithinWatermark(["id"])
    written = once.writeStream.format("parquet").trigger(availableNow=True)
    written.option("checkpointLocation", f"{output}-checkpoint").start(output).awaitTermination()


def _settings(job: Job) -> Any:
    import penstock as ps

    return ps.Settings(epoch_rows=job.epoch_rows, parallelism=job.cores)


if __name__ == "__main__":
    end_with_parent()
    given = Job(**json.loads(sys.argv[1]))
    Path(given.work).mkdir(parents=True, exist_ok=True)
    dedup(given)
