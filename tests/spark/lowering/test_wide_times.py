"""Promise: a row with a time that Python cannot have is rejected by Python functions, and shown as text in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.sinks.collect import CollectSink
from penstock.connectors.sinks.console import ConsoleSink
from penstock.contracts import Epoch
from penstock.errors import FunctionFailed
from penstock.settings import Settings

Row = dict[str, Any]
SCHEMA = "id bigint, ts timestamp"
FAR = 253_402_300_800_000_000
TEXT = "+10000-01-01T00:00:00Z"
WHY = "a time before year 1 or after 9999, which Python cannot have"


def same(row: Row) -> Row:
    return row


def each(row: Row) -> Iterator[Row]:
    yield row


async def asked(row: Row) -> Row:
    return row


def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
    message = "no"
    raise ValueError(message)


def given() -> pa.Table:
    times = pa.array([0, FAR, 5], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array([1, 2, 3], pa.int64()), "ts": times})


def source(folder: Path) -> ps.Stream:
    pq.write_table(given(), folder / "in.parquet")
    return ps.read_files(str(folder / "in.parquet"), schema=SCHEMA).with_columns(key="id % 2")


def collect(name: str) -> ps.Sink:
    made = ps.collect()
    made.name = name
    return made


def test_functions_are_called_on_the_other_rows(tmp_path: Path, settings: Settings) -> None:
    rows = source(tmp_path)
    # In the order in which answers come, a row's event time goes through the function beside it.
    timed = rows.with_columns(at="timestamp_seconds(id)").event_time("at", "1s")
    nodes = {
        "map": rows.map(same),
        "flat": rows.flat_map(each, f"{SCHEMA}, key bigint"),
        "again": rows.map(same, deterministic=False),
        "async": rows.map_async(asked),
        "loose": timed.map_async(asked, ordered=False),
        "batch": rows.map_batches(failing),
    }
    sinks = {name: collect(name) for name in nodes}
    outputs = [node.named(name).select("id").to(sinks[name]) for name, node in nodes.items()]
    bad = collect("bad")
    report = ps.Pipeline("p", *outputs, rejected_to=bad).run(
        until="ended", checkpoint=tmp_path / "cp", settings=settings
    )
    for name in nodes:
        refused = {json.loads(row["row"])["id"]: row for row in bad.rows if row["node"] == name}
        assert sorted(row["id"] for row in sinks[name].rows) == ([] if name == "batch" else [1, 3]), name
        assert set(refused) == ({1, 2, 3} if name == "batch" else {2}), name
        assert json.loads(refused[2]["row"])["ts"] == TEXT
        assert refused[2]["reason"] == ("ValueError: no" if name == "batch" else WHY)
        assert report.counts[name].rejected == len(refused)


def test_without_rejected_rows_the_job_stops_and_names_function_and_row(tmp_path: Path, settings: Settings) -> None:
    pipeline = ps.Pipeline("p", source(tmp_path).map(same).to(ps.collect()))
    with pytest.raises(FunctionFailed, match=rf"same cannot be called: the row has {WHY}(.|\n)*'ts': '\+10000"):
        pipeline.run(until="ended", checkpoint=tmp_path / "cp", settings=settings)


def test_collected_and_printed_rows_have_such_a_time_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    epoch = Epoch("lineage", "sink", 1)
    sink, console = CollectSink(), ConsoleSink()
    sink.commit(epoch, [sink.prepare(epoch, 0, given().to_batches())])
    console.commit(epoch, [console.prepare(epoch, 0, given().to_batches())])
    assert [str(row["ts"]) for row in sink.rows] == [
        "1970-01-01 00:00:00+00:00",
        TEXT,
        "1970-01-01 00:00:00.000005+00:00",
    ]
    assert TEXT in capsys.readouterr().out
