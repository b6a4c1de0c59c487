"""What one task's run of a program keeps, whatever the number of chunks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import penstock as ps
from penstock.native import program, translate
from penstock.native.program import Program
from penstock.native.steps import TICK, TIME, Step
from penstock.plan.physical.lanes import split_lanes
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
    aside = {(kind, node): table for kind, node, table in run.side_rows(0)}

    timed = [v for v in range(1, 31) if v % 5]
    assert out == [v for v in timed if v >= 20]
    assert aside["late", "aggregate"].column("v").to_pylist() == [v for v in timed if v < 20]
    assert aside["rejected", "event_time"].num_rows == 6
    assert run.counts["aggregate"]["late"] == aside["late", "aggregate"].num_rows
    assert run.counts["event_time"]["rejected"] == 6


def shapes() -> dict[str, ps.Stream]:
    """Chains with a filter before the event time, after it, on both sides, and a time that is computed."""
    rows = ps.from_items([], "v bigint, ts timestamp").named("rows")
    low, high = "v % 3 <> 0", "v < 25"
    return {
        "before": rows.filter(low).event_time("ts", "1s"),
        "after": rows.event_time("ts", "1s").filter(high),
        "both": rows.filter(low).event_time("ts", "1s").filter(high).named("second"),
        "none": rows.rename(at="ts").event_time("at", "1s"),
        "computed": rows.with_columns(t="ts + INTERVAL 0 SECONDS").event_time("t", "1s").filter(high),
    }


@pytest.mark.parametrize("shape", shapes())
@pytest.mark.parametrize("watermark_us", [0, 17])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("lane", ["rows", "partials"])
def test_every_row_is_counted_once_and_the_newest_time_of_all_is_shown(
    shape: str, watermark_us: int, nulls: bool, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "CHUNK_ROWS", 7)
    window = shapes()[shape].key_by("v").window(ps.tumbling("1ms"))
    made = window.aggregate(n="count(*)") if lane == "partials" else window.aggregate(n="collect_list(v)")
    graph = ps.Pipeline("p", made.to(ps.collect())).graph
    (prefix,) = split_lanes(graph).prefixes.values()
    assert (prefix.partial is not None) == (lane == "partials")
    run = program.Run(translate.program(prefix, graph.names), watermark_us or None)
    rows = [{"v": v, "ts": None if nulls and v % 5 == 0 else moment(v)} for v in (*range(16, 30), *range(16))]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    out = [row for piece in run.batches(iter([batch])) for row in piece.to_pylist()]

    kept = rows
    for node in prefix.chain:
        before = kept
        if node.kind == "filter":
            kept = [r for r in kept if (r["v"] % 3 != 0 if "%" in node.detail else r["v"] < 25)]
            assert run.counts.get(graph.name(node), {}).get("filtered", 0) == len(before) - len(kept)
        elif node.kind == "event_time":
            kept = [r for r in kept if r["ts"] is not None]
            assert run.counts.get(graph.name(node), {}).get("rejected", 0) == len(before) - len(kept)
            newest = max(r["ts"] for r in kept)
    late = [r for r in kept if r["ts"] < moment(watermark_us)]
    assert run.counts.get("aggregate", {}).get("late", 0) == len(late)
    assert sorted(row["v"] for row in out if not row[TICK]) == sorted(r["v"] for r in kept if r not in late)
    assert max(row[TIME] for row in out) == newest


def moment(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def test_slices_of_nested_rows_are_read_as_they_are() -> None:
    """DuckDB refuses structs inside of structs that are a slice of others."""
    given = [{"s": {"b": {"c": n}} if n % 4 else None, "m": {"k": n}, "l": [{"x": n}], "v": n} for n in range(10)]
    schema = ps.Schema("s struct<b:struct<c:int>>, m map<string,int>, l array<struct<x:int>>, v int")
    rows = pa.Table.from_pylist(given, schema=schema.arrow)
    keep = Step("filter", "filter", "SELECT * FROM {input} WHERE v > 4", "v > 4")
    made = Program(chain=(keep,), output=schema, final="SELECT * FROM {input}")
    found = [row for batch in made.start(0).batches(iter(rows.slice(3, 4).to_batches())) for row in batch.to_pylist()]
    assert [(row["s"], row["l"], row["v"]) for row in found] == [({"b": {"c": n}}, [{"x": n}], n) for n in (5, 6)]
