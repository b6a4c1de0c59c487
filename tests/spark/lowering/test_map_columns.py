"""Promise: maps and times go through a job as docs/reference/values.md says, in both lanes, in any partitioning."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.settings import Settings
from tests.conftest import at_parallelism

SCHEMA = """id bigint, ts timestamp, tags map<string,bigint>, times map<string,timestamp>,
    money map<int,decimal(30,10)>, deep array<map<string,struct<b:binary,x:double>>>"""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COUNTS = [1767268800, 1767268800000, 1767268800000000, 1767268800000000000, "2026-01-01T12:00:00.000000999Z"]


def line(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "ts": COUNTS[number % len(COUNTS)],
        "tags": {"a": number, "b": None} if number % 3 else None,
        "times": {"seen": COUNTS[(number + 1) % len(COUNTS)]},
        "money": {"1": "12345678901234567890.0123456789"},
        "deep": [{"k": {"b": "AGE=", "x": "NaN"}}, None, {}],
    }


@pytest.mark.parametrize(("lane", "parallelism"), [("auto", 3), ("spark", 1)])
def test_maps_and_times_come_out_as_they_came_in(
    tmp_path: Path, settings: Settings, spark: SparkSession, lane: str, parallelism: int
) -> None:
    (tmp_path / "in").mkdir()
    bad = ['{"id": 99, "tags": {"a": 1, "a": 2}}', '{"id": 98, "ts": 20260101}']
    for part in range(3):
        lines = [json.dumps(line(number)) for number in range(part * 7, part * 7 + 7)] + bad[part : part + 1]
        (tmp_path / "in" / f"{part}.json").write_text("\n".join(lines) + "\n")
    rows = ps.read_files(str(tmp_path / "in"), schema=SCHEMA, format="json").named("rows")
    known = rows.filter("id % 2 = 0").with_columns(a="tags['a']", ahead="times['seen'] - INTERVAL 1 HOUR")
    rejected = ps.collect()
    out = tmp_path / "out"
    pipeline = ps.Pipeline("maps", known.to(ps.files(str(out), format="json")), rejected_to=rejected)
    chosen = replace(at_parallelism(settings, parallelism), lane=lane, epoch_rows=8)
    report = pipeline.run(until="ended", checkpoint=str(tmp_path / "c"), settings=chosen)
    assert report.counts["rows"].rejected == 2
    reasons = sorted(row["reason"] for row in rejected.rows)
    assert reasons[0].startswith("column tags: duplicate map key")
    assert reasons[1].startswith("column ts: 20260101 cannot be read as timestamp: a number that is a time has")
    expected = [
        (number, NOON, number if number % 3 else None, NOON.replace(hour=11), "AGE=") for number in range(0, 21, 2)
    ]
    columns = "{id: 'BIGINT', ts: 'TIMESTAMPTZ', a: 'BIGINT', ahead: 'TIMESTAMPTZ', tags: 'MAP(VARCHAR, BIGINT)',"
    columns += " money: 'MAP(INTEGER, DECIMAL(30,10))', deep: 'MAP(VARCHAR, STRUCT(b VARCHAR, x DOUBLE))[]'}"
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        read = f"read_json('{out}/*.json', format='newline_delimited', columns={columns})"
        found = duck.execute(f"SELECT id, ts, a, ahead, deep[1]['k'].b, tags['a'], money[1] FROM {read} ORDER BY id")
        there = [(*row[:3], row[3], row[4]) for row in found.fetchall()]
        assert [tuple(t.astimezone(UTC) if isinstance(t, datetime) else t for t in row) for row in there] == expected
        money = duck.execute(f"SELECT DISTINCT money[1]::VARCHAR FROM {read}").fetchall()
    assert money == [("12345678901234567890.0123456789",)]
    again = spark.read.schema("id bigint, tags map<string,bigint>, money map<string,decimal(30,10)>").json(str(out))
    by_spark = {row["id"]: (row["tags"], str(row["money"]["1"])) for row in again.collect()}
    assert by_spark[2] == ({"a": 2, "b": None}, "12345678901234567890.0123456789")
    assert by_spark[0][0] is None
    sink = ps.collect()
    second = ps.Pipeline("again", ps.read_files(str(out), schema=SCHEMA, format="json").to(sink))
    second.run(until="ended", checkpoint=str(tmp_path / "c2"), settings=chosen)
    found_again = sorted(sink.rows, key=lambda row: row["id"])
    assert [row["id"] for row in found_again] == list(range(0, 21, 2))
    assert dict(found_again[1]["times"]) == {"seen": NOON}
    assert dict(dict(found_again[1]["deep"][0])["k"])["b"] == b"\x00a"
