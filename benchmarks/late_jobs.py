"""The job of the late bench, in a process of its own: `python -m benchmarks.late_jobs CONFIG`.

It runs the windowed VWAP in turn with the late split and without it. There is no setting that turns it off, for no row
may vanish; here it is taken out of the plan, and Spark drops the same rows without a word.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from benchmarks.child import end_with_parent

SCHEMA = "symbol string, price double, size bigint, ts timestamp"
WAYS = ("split", "dropped")


@dataclass(frozen=True)
class Job:
    """What to run."""

    input: str
    work: str
    lane: str
    epoch_rows: int
    cores: int
    runs: int = 3


@contextlib.contextmanager
def without_split() -> Iterator[None]:
    """Let late rows pass to Spark, in both lanes."""
    from penstock.plan.physical import lanes

    ending = lanes._ending

    def no_late(*given: Any) -> Any:
        return replace(ending(*given), late=None)

    with (
        patch("penstock.plan.physical.lanes._ending", no_late),
        patch("penstock.spark.lowering.lower_state.divert_late_rows", lambda frame, node, context: frame),
        patch("penstock.spark.lowering.compile.splits_late_rows", lambda node: False),
    ):
        yield


def run(job: Job) -> None:
    """Run once to warm up, then each way in turn; the order changes from round to round."""
    import penstock as ps

    settings = ps.Settings(epoch_rows=job.epoch_rows, parallelism=job.cores, lane=job.lane)  # type: ignore[arg-type]
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    made: dict[str, dict[str, Any]] = {}
    for number in range(job.runs + 1):
        for way in WAYS if number % 2 else WAYS[::-1]:
            work = f"{job.work}/{uuid.uuid4().hex[:8]}"
            started = time.perf_counter()
            with without_split() if way == "dropped" else contextlib.nullcontext():
                report = _pipeline(ps, job, work).run(until="ended", checkpoint=f"{work}/checkpoint", settings=settings)
            if number:
                seconds[way].append(time.perf_counter() - started)
            counts = report.counts["vwap"]
            made[way] = {"output": f"{work}/output", "rows": counts.rows_in, "late": counts.late}
    print("\n" + json.dumps({"seconds": seconds, "made": made}), flush=True)


def _pipeline(ps: Any, job: Job, work: str) -> Any:
    rows = ps.read_files(job.input, format="parquet", schema=SCHEMA).filter("size > 0")
    windows = rows.event_time("ts", "5s").key_by("symbol").window(ps.tumbling("60s"))
    made = windows.aggregate(vwap="sum(price * size) / sum(size)", volume="sum(size)", trades="count(*)").named("vwap")
    late = made.side("late").to(ps.files(f"{work}/late"))
    return ps.Pipeline("late", made.to(ps.files(f"{work}/output")), late)


if __name__ == "__main__":
    end_with_parent()
    run(Job(**json.loads(sys.argv[1])))
