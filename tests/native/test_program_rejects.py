"""A program that rejects: where each row of a chunk went, judged row by row in Python."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.native import program, translate
from penstock.native.program import Run
from penstock.native.steps import TICK, TIME
from penstock.plan.physical.lanes import split_lanes
from penstock.schema import Schema

SCHEMA = Schema("id bigint, s string, v bigint, w bigint, ts timestamp")
Row = dict[str, Any]


def moment(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def rows(seed: int, count: int = 60) -> list[Row]:
    chance = Random(seed)
    return [
        {
            "id": number,
            "s": chance.choice(["1", "2", "x", None]),
            "v": chance.choice([0, 1, 5, 2**63 - 1, None]),
            "w": chance.choice([0, 1, 2, None]),
            "ts": chance.choice([None, moment(number), moment(number)]),
        }
        for number in range(count)
    ]


def ran(stream: ps.Stream, given: list[Row], *, watermark_us: int = 0) -> tuple[Run, list[Row]]:
    graph = ps.Pipeline("p", stream.to(ps.collect()), rejected_to=_bad()).graph
    (prefix,) = split_lanes(graph).prefixes.values()
    assert prefix.last != prefix.read
    run = translate.program(prefix, graph.names, rejects=True).start(watermark_us)
    batch = pa.RecordBatch.from_pylist(given, schema=SCHEMA.arrow)
    return run, [row for piece in run.batches(iter([batch])) for row in piece.to_pylist()]


def _bad() -> ps.Sink:
    made = ps.collect()
    made.name = "bad"
    return made


def rejected(run: Run) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for kind, node, table in run.side_rows(0):
        if kind == "rejected":
            found[node] = sorted(json.loads(row)["id"] for row in table.column("row").to_pylist())
            assert run.counts[node]["rejected"] == table.num_rows
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("watermark_us", [0, 20])
def test_each_row_is_used_filtered_late_or_rejected_where_it_first_fails(
    seed: int, watermark_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "CHUNK_ROWS", 7)
    stream = (
        ps.from_items([], SCHEMA.ddl)
        .named("rows")
        .filter("v / w > 0 OR v IS NULL")
        .named("kept")
        .event_time("ts", "1s")
        .named("timed")
        .with_columns(n="cast(s as int)")
        .named("parsed")
        .window(ps.tumbling("1ms"))
        .aggregate(n="count(*)", t="sum(v + 1)", f="sum(v div n) FILTER (WHERE n > 0)")
        .named("summed")
    )
    given = rows(seed)
    run, out = ran(stream, given, watermark_us=watermark_us)
    bad: dict[str, list[int]] = {}
    used = 0
    for row in given:
        v, w = row["v"], row["w"]
        if v is not None and w == 0:
            bad.setdefault("kept", []).append(row["id"])
        elif v is not None and not (w and v / w > 0):
            continue
        elif row["ts"] is None:
            bad.setdefault("timed", []).append(row["id"])
        elif row["s"] == "x":
            bad.setdefault("parsed", []).append(row["id"])
        elif row["ts"] < moment(watermark_us // 1000 * 1000):
            continue
        elif v == 2**63 - 1:
            bad.setdefault("summed", []).append(row["id"])
        else:
            used += 1
    assert rejected(run) == bad
    assert sum(row["__penstock_p0"] or 0 for row in out if not row[TICK]) == used
    gone = sum(sum(counts.values()) for counts in run.counts.values())
    assert gone + used == len(given)
    entered = [row["ts"] for row in given if row["ts"] and row["id"] not in bad.get("kept", ())]
    newest = [at for row in given for at in [row["ts"]] if at in entered and _holds(row)]
    assert max(row[TIME] for row in out) == max(newest)


def _holds(row: Row) -> bool:
    return row["v"] is None or bool(row["w"] and row["v"] / row["w"] > 0)


def test_an_expression_in_no_later_column_is_evaluated_all_the_same() -> None:
    stream = ps.from_items([], SCHEMA.ddl).named("rows").with_columns(n="v div w").named("divided")
    run, out = ran(stream.filter("v > 0").select("id"), [{"id": 1, "v": 1, "w": 0}, {"id": 2, "v": 0, "w": 0}])
    assert (rejected(run), out) == ({"divided": [1, 2]}, [])


def test_where_nothing_can_fail_the_program_is_the_same() -> None:
    stream = ps.from_items([], SCHEMA.ddl).named("rows").filter("v > 0").select("id", x="try_divide(v, w)")
    graph = ps.Pipeline("p", stream.to(ps.collect())).graph
    (prefix,) = split_lanes(graph).prefixes.values()
    plain, rejects = (translate.program(prefix, graph.names, rejects=one) for one in (False, True))
    assert plain == rejects


def test_an_argument_is_not_evaluated_where_its_filter_clause_does_not_hold() -> None:
    summed = ps.from_items([], SCHEMA.ddl).named("rows").key_by("s").aggregate(n="sum(v div w) FILTER (WHERE w > 0)")
    graph = ps.Pipeline("p", summed.to(ps.collect())).graph
    (prefix,) = split_lanes(graph).prefixes.values()
    given = [{"s": "a", "v": 4, "w": 2}, {"s": "a", "v": 4, "w": 0}]
    batch = pa.RecordBatch.from_pylist(given, schema=SCHEMA.arrow)
    (out,) = translate.program(prefix, graph.names).start(0).batches(iter([batch]))
    assert out.column("__penstock_p0").to_pylist() == [2]
