"""A small job, for the control bench: as a pipeline of Penstock, and as it is written for `spark-submit`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process import environment
from penstock.control.client.client import Client
from penstock.errors import PenstockError
from penstock.settings import cores

SCHEMA = "symbol string, size bigint, ts timestamp"
ROWS = 1_000
FIRST_EPOCH_SECONDS = 120
READY_SECONDS = 180
POLL_SECONDS = 0.1
_PENSTOCK = f'''
import penstock as ps


def volumes(source: str, target: str) -> ps.Pipeline:
    rows = ps.read_files(source, format="json", schema="{SCHEMA}").event_time("ts", "5s")
    sums = rows.key_by("symbol").window(ps.tumbling("60s")).aggregate(volume="sum(size)")
    return ps.Pipeline("volumes", sums.to(ps.files(target)))
'''
_SPARK = f'''
import sys, time
from pyspark.sql import SparkSession, functions as F

source, target, checkpoint, cores = sys.argv[1:]
spark = SparkSession.builder.master(f"local[{{cores}}]").config("spark.sql.shuffle.partitions", cores).getOrCreate()
rows = spark.readStream.schema("{SCHEMA}").json(source).withWatermark("ts", "5 seconds")
sums = rows.groupBy("symbol", F.window("ts", "60 seconds")).agg(F.sum("size").alias("volume"))
query = sums.writeStream.format("parquet").option("path", target).option("checkpointLocation", checkpoint).start()
while not query.recentProgress:
    time.sleep(0.01)
print("first epoch", query.recentProgress[0]["numInputRows"], time.time(), flush=True)
query.stop()
'''


@dataclass(frozen=True)
class SmallJob:
    """The files of the job: its sources in two languages, and a folder of input that stays as it is."""

    folder: Path

    def write(self) -> None:
        """Write them."""
        (self.folder / "input").mkdir(parents=True, exist_ok=True)
        (self.folder / "volumes.py").write_text(_PENSTOCK)
        (self.folder / "submitted.py").write_text(_SPARK)
        rows = ({"symbol": f"S{n % 50}", "size": n, "ts": f"2026-01-01T00:{n % 60:02d}:00Z"} for n in range(ROWS))
        (self.folder / "input" / "part.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def submit(self, client: Client, name: str, pool: str | None = None) -> str:
        """Submit it to a job manager; return the id of the job."""
        arguments = {"source": str(self.folder / "input"), "target": str(self.folder / f"{name}-output")}
        return client.submit(self.folder / "volumes.py", name, pool=pool, arguments=arguments).id

    def seconds_to_first_epoch(self, client: Client, epochs: FirstEpochs, name: str) -> tuple[float, int]:
        """Submit it; return the seconds until its first epoch was committed, and the rows of that epoch."""
        started = time.monotonic()
        job = self.submit(client, name)
        at, rows = epochs.wait_for(job)
        client.cancel(job)
        return at - started, rows

    def seconds_of_spark_submit(self, name: str) -> tuple[float, int]:
        """Run it by `spark-submit`; return the seconds until its first epoch was committed, and its rows."""
        places = [str(self.folder / part) for part in ("input", f"{name}-output", f"{name}-checkpoint")]
        command = [str(Path(sys.executable).parent / "spark-submit"), str(self.folder / "submitted.py")]
        started = time.time()
        done = subprocess.run(
            [*command, *places, str(cores())],
            capture_output=True,
            text=True,
            check=False,
            env=environment() | {"PYSPARK_PYTHON": sys.executable},
        )
        last = [line for line in done.stdout.splitlines() if line.startswith("first epoch")]
        if not last:
            raise SystemExit(f"spark-submit: {done.stderr[-2000:]}")
        _, _, rows, at = last[0].split()
        return float(at) - started, int(rows)


class FirstEpochs:
    """Listens to the events of a job manager, and notes when each job's first epoch was reported."""

    def __init__(self, client: Client) -> None:
        self._first: dict[str, tuple[float, int]] = {}
        self._changed = threading.Condition()
        subscribed = threading.Event()
        threading.Thread(target=self._follow, args=[client, subscribed], daemon=True).start()
        subscribed.wait(FIRST_EPOCH_SECONDS)

    def wait_for(self, job: str) -> tuple[float, int]:
        """Return when the first epoch of a job was reported, and how many rows it has read."""
        with self._changed:
            if not self._changed.wait_for(lambda: job in self._first, FIRST_EPOCH_SECONDS):
                raise SystemExit(f"job {job} has committed no epoch within {FIRST_EPOCH_SECONDS} s")
            return self._first[job]

    def _follow(self, client: Client, subscribed: threading.Event) -> None:
        with contextlib.suppress(PenstockError):  # the job manager ends first
            for event in client.events():
                subscribed.set()
                if event.kind == "epoch" and event.job is not None:
                    self._note(event.job, int((event.model_extra or {}).get("rows_in") or 0))

    def _note(self, job: str, rows: int) -> None:
        with self._changed:
            self._first.setdefault(job, (time.monotonic(), rows))
            self._changed.notify_all()


def wait_for_epochs(client: Client, jobs: list[str]) -> bool:
    """Wait until every job has committed an epoch and runs; return whether each has read all of its input."""
    deadline = time.monotonic() + READY_SECONDS
    waiting = list(jobs)
    while waiting and time.monotonic() < deadline:
        waiting = [job for job in waiting if client.job(job).state != "RUNNING" or not client.epochs(job, limit=1)]
        time.sleep(POLL_SECONDS)
    return not waiting and all(sum(one.rows_in for one in client.epochs(job)) == ROWS for job in jobs)
