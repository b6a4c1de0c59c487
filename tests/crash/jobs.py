"""The pipelines that are killed; run by `penstock run tests/crash/jobs.py:job --set ...`."""

from __future__ import annotations

from typing import Any

import penstock as ps

SCHEMA = "id bigint, symbol string not null, price double, size bigint, ts timestamp"


class Volume(ps.Aggregator):
    """The sum of sizes, in Python."""

    state = result = "bigint"

    def start(self) -> int:
        return 0

    def add(self, acc: int, size: int) -> int:
        return acc + size

    def merge(self, a: int, b: int) -> int:
        return a + b

    def finish(self, acc: int) -> int:
        return acc


def job(run: str, folder: str, source: str, sink: str, pipeline: str) -> ps.Pipeline:
    """Build a cell's pipeline; what it touches outside the folder is named after the run."""

    def to(output: str) -> ps.Sink:
        match sink:
            case "topic":
                return ps.topic(f"{run}-{output}")
            case "postgresql":
                return ps.table(f"{run}_{output}", connection="database")
        return ps.files(f"{folder}/{output}", format="parquet")

    rows = _read(source, run, folder).filter("size > 0")
    made = rows.select("id", "symbol", "ts", notional="price * size")
    if pipeline != "stateless":
        windows = rows.event_time("ts", "20s").key_by("symbol").window(ps.tumbling("10s"), late_to=to("late"))
        volume: Any = Volume("size") if pipeline == "aggregated" else "sum(size)"
        sums = {} if pipeline == "aggregated" else {"trades": "count(*)", "notional": "sum(price * size)"}
        made = windows.aggregate(volume=volume, **sums)
    return ps.Pipeline("crashed", made.to(to("out")), rejected_to=to("rejected"))


def _read(source: str, run: str, folder: str) -> ps.Stream:
    if source == "topic":
        return ps.read_topic(f"{run}-input", schema=SCHEMA)
    return ps.read_files(f"{folder}/input", format="json", schema=SCHEMA)
