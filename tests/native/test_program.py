"""What one task's run of a program keeps, whatever the number of chunks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.native import program
from penstock.native.program import TICK, TIME, Program, Step
from penstock.schema import Schema

SCHEMA = pa.schema([("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def a_program() -> Program:
    keep = f"SELECT *, ts AS {TIME} FROM {{input}} WHERE ts IS NOT NULL"
    return Program(
        chain=(Step("event_time", "event_time", keep, "ts"),),
        output=Schema({"v": "bigint", TIME: "timestamp", TICK: "boolean"}),
        final=f"SELECT v, {TIME}, FALSE AS {TICK} FROM {{input}} WHERE {{on_time}}",
        time_column="ts",
        late_node="aggregate",
    )


def test_late_and_rejected_rows_of_every_chunk_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "CHUNK_ROWS", 3)
    times = [None if v % 5 == 0 else v for v in range(1, 31)]
    rows = pa.record_batch([pa.array(range(1, 31)), pa.array(times, pa.timestamp("us", "UTC"))], schema=SCHEMA)
    run = a_program().start(watermark_us=20)

    found = [row for batch in run.batches(rows.slice(at, 1) for at in range(30)) for row in batch.to_pylist()]
    out = [row["v"] for row in found if not row[TICK]]
    aside = {(kind, node): table for kind, node, table in run.aside(0)}

    timed = [v for v in range(1, 31) if v % 5]
    assert out == [v for v in timed if v >= 20]
    assert aside["late", "aggregate"].column("v").to_pylist() == [v for v in timed if v < 20]
    assert aside["rejected", "event_time"].num_rows == 6
    assert run.counts["aggregate"]["late"] == aside["late", "aggregate"].num_rows
    assert run.counts["event_time"]["rejected"] == 6
