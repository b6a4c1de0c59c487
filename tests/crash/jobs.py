"""The pipelines that are killed; run by `penstock run tests/crash/jobs.py:job --set ...`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import penstock as ps

SCHEMA = "id bigint, symbol string not null, price double, size bigint, ts timestamp, note string"
SINKS = ("topic", "files", "postgresql", "sqlite")


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


class Running(ps.Process):
    """The number and the sum of sizes of a symbol up to each row: it depends on the order of rows."""

    output = "id bigint, symbol string, note string, number bigint, total bigint"
    number = ps.state.value(int)
    total = ps.state.value(int)

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[dict[str, Any]]:
        self.number.set((self.number.get() or 0) + 1)
        self.total.set((self.total.get() or 0) + row["size"])
        known = {name: row[name] for name in ("id", "symbol", "note")}
        yield known | {"number": self.number.get(), "total": self.total.get()}


def job(
    run: str, folder: str, source: str, sink: str, pipeline: str, consumers: int = 1, outputs: str = ""
) -> ps.Pipeline:
    """Build a cell's pipeline; what it touches outside the folder is named after the run."""
    key = "symbol" if pipeline == "keyed" else None

    def to(output: str, number: int = 0, key: str | None = None) -> ps.Sink:
        keyed: dict[str, Any] = {"mode": "upsert", "key": key} if key else {}
        match SINKS[(SINKS.index(sink) + number) % len(SINKS)]:
            case "topic":
                return ps.topic(f"{run}-{output}", key=key)
            case "postgresql":
                return ps.table(f"{run}_{output}", connection="database", **keyed)
            case "sqlite":
                return ps.table(output, connection=f"sqlite:///{outputs or folder}/{output}.db", **keyed)
        return ps.files(f"{outputs or folder}/{output}", format="parquet")

    made = _computed(_read(source, run, folder).filter("size > 0"), pipeline, to("late"))
    outs = [made.to(to("out" if number == 0 else f"out{number + 1}", number, key)) for number in range(consumers)]
    return ps.Pipeline("crashed", *outs, rejected_to=to("rejected"))


def _computed(rows: ps.Stream, pipeline: str, late: ps.Sink) -> ps.Stream:
    if pipeline == "process":
        return rows.key_by("symbol").process(Running())
    if pipeline == "counted":
        windows = rows.key_by("symbol").window(ps.count_window(5))
        return windows.aggregate(volume="sum(size)", trades="count(*)")
    if pipeline == "asof":
        timed = rows.event_time("ts", "20s")
        even = timed.filter("size % 2 = 0").select("symbol", "ts", last="id")
        return timed.select("id", "symbol", "ts", "note").join_asof(even, "symbol").drop("ts_right")
    if pipeline in ("stateless", "keyed"):
        return rows.select("id", "symbol", "ts", "note", notional="price * size")
    windows = rows.event_time("ts", "20s").key_by("symbol").window(ps.tumbling("10s"), late_to=late)
    volume: Any = Volume("size") if pipeline == "aggregated" else "sum(size)"
    sums = {} if pipeline == "aggregated" else {"trades": "count(*)", "notional": "sum(price * size)"}
    return windows.aggregate(volume=volume, **sums)


def _read(source: str, run: str, folder: str) -> ps.Stream:
    if source == "topic":
        return ps.read_topic(f"{run}-input", schema=SCHEMA)
    return ps.read_files(f"{folder}/input", format="json", schema=SCHEMA)
