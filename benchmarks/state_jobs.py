"""The jobs of the state bench, each in a process of its own: `python -m benchmarks.state_jobs CONFIG`.

The same function in both: a running count and sum of each key, told for every row that asks for it. One file is one
epoch. What is to be read comes in stages, each a run of its own on one checkpoint; how long the epochs of the last took
is what Spark itself says of them, and is printed at the end, with the bytes that it wrote to the checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import penstock as ps
from benchmarks.child import end_with_parent

SCHEMA = "key bigint, amount double, told boolean"
OUTPUT = "key bigint, n bigint, total double"


@dataclass(frozen=True)
class Job:
    """What to run: `system` is "penstock" or "spark"; `stages` are folders, each with files of so many rows.

    Of the last stage, so many files are read at most.
    """

    system: str
    stages: list[tuple[str, int]]
    work: str
    cores: int
    most: int | None = None

    def begin(self, stage: str) -> str:
        """Put the files of a stage where they are read, in their order; return where that is."""
        folder = Path(self.work) / "input"
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(Path(stage).iterdir())
        for number, file in enumerate(files[: self.most] if stage == self.stages[-1][0] else files):
            there = folder / f"{Path(stage).name}-{file.name}"
            os.link(file, there)
            os.utime(there, (time.time() - 1000 + number,) * 2)
        return str(folder)


class Running(ps.Process):
    """The function as Penstock has it."""

    output = OUTPUT
    n = ps.state.value(int)
    total = ps.state.value(float)

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[dict[str, Any]]:
        """Count and add."""
        n = self.n.get(0) + 1
        total = self.total.get(0.0) + row["amount"]
        self.n.set(n)
        self.total.set(total)
        if row["told"]:
            yield {"key": row["key"], "n": n, "total": total}


def penstock(job: Job) -> dict[str, Any]:
    """Run it as a process function, with the state store that Spark's own needs."""
    from penstock.spark.session.spark_session import session

    session(ps.Settings(parallelism=job.cores, state="rocksdb"))
    for stage, epoch_rows in job.stages:
        rows = ps.read_files(job.begin(stage), format="parquet", schema=SCHEMA)
        pipeline = ps.Pipeline("state", rows.key_by("key").process(Running()).to(ps.files(f"{job.work}/output")))
        settings = ps.Settings(epoch_rows=epoch_rows, parallelism=job.cores, state="rocksdb")
        started = time.time()
        run = pipeline.start(until="drained", checkpoint=f"{job.work}/checkpoint", settings=settings)
        run.wait()
        first_s = _first_end(run.queries[0]) - started
    return _told(run.queries[0], job, started) | {"first_s": round(first_s, 2)}


def spark(job: Job) -> dict[str, Any]:
    """Run it as Spark's guide has it: transformWithStateInPandas, a value state of two columns."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{job.cores}]").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "4g")
    builder = builder.config("spark.sql.shuffle.partitions", job.cores)
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    made = builder.config("spark.sql.streaming.stateStore.providerClass", store).getOrCreate()
    for stage, _ in job.stages:
        folder = job.begin(stage)
        files = made.readStream.format("parquet").schema(SCHEMA).option("maxFilesPerTrigger", 1).load(folder)
        summed = files.groupBy("key").transformWithStateInPandas(_processor(), OUTPUT, "Append", "None")
        written = summed.writeStream.format("parquet").option("checkpointLocation", f"{job.work}/checkpoint")
        started = time.time()
        query = written.outputMode("append").trigger(availableNow=True).start(f"{job.work}/output")
        query.awaitTermination()
    return _told(query, job, started)


def _processor() -> Any:
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class Processor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.held = handle.getValueState("held", "n bigint, total double")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:
            n, total = self.held.get() or (0, 0.0)
            for frame in rows:
                told = []
                for amount, wanted in zip(frame["amount"], frame["told"], strict=True):
                    n, total = n + 1, total + amount
                    if wanted:
                        told.append((key[0], n, total))
                if told:
                    yield pd.DataFrame(told, columns=["key", "n", "total"])
            self.held.update((n, total))

        def close(self) -> None:
            pass

    return Processor()


def _told(query: Any, job: Job, since: float) -> dict[str, Any]:
    """Return what Spark says of each epoch that had rows, and the bytes of the files that a stage wrote."""
    told = [json.loads(one.json) for one in query.recentProgress]
    files = (path for path in Path(job.work, "checkpoint").rglob("*") if path.is_file())
    stats = (path.stat() for path in files)
    return {
        "epochs": [
            # Rows that the scan packs count as one for Spark.
            {"seconds": one["durationMs"]["triggerExecution"] / 1000}
            for one in told
            if one["numInputRows"]
        ],
        "bytes": sum(stat.st_size for stat in stats if stat.st_mtime >= since),
    }


def _first_end(query: Any) -> float:
    """Return when the first epoch with rows ended, as Spark says."""
    first = next(one for one in (json.loads(each.json) for each in query.recentProgress) if one["numInputRows"])
    began = pd.Timestamp(first["timestamp"]).timestamp()
    return float(began + first["durationMs"]["triggerExecution"] / 1000)


if __name__ == "__main__":
    end_with_parent()
    given = Job(**json.loads(sys.argv[1]))
    ran = {"penstock": penstock, "spark": spark}[given.system](given)
    print("\n" + json.dumps(ran), flush=True)
