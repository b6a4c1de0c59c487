"""Promise: the same bad rows are rejected, with the same reasons, in both lanes; a damaged file stops the job."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.formats.json.decoder import DEEPEST
from penstock.errors import SourceFailed
from penstock.settings import Settings
from penstock.testing import run_to_end

SCHEMA = "k string not null, v bigint, d double, ts timestamp"
CSV = {
    b"a,1,1.5,2026-01-01T00:00:00Z": None,
    b'"b,""c""",2,NaN,': None,
    b"a,1,1.5": "expected 4 fields, got 3",
    b"a,1,1.5,,": "expected 4 fields, got 5",
    b'a,"1\n2",1.5,': "column v: '1\\n2' cannot be read as bigint",
    b"\xff,1,1.5,": "not UTF-8: byte 0xff at 0",
    b",1,1.5,": "column k: null, but it is declared not null",
    b"a,9223372036854775808,1.5,": "column v: '9223372036854775808' cannot be read as bigint",
    b"a,1,one,": "column d: 'one' cannot be read as double",
    b"a,1,1.5,2026-02-30T00:00:00Z": "column ts: '2026-02-30T00:00:00Z' cannot be read as timestamp",
    b'a,"1': "a quote is left open: the lines up to the next one are no row of 4 fields in at most 256 KiB",
}
JSON = {
    b'{"k":"a","v":1,"d":1.5,"ts":"2026-01-01T00:00:00Z"}': None,
    b'{"k":"b","other":[{"v":"x"}]}': None,
    b'{"k":"a","v":1,"d":1e999}': "JSON parse error: Number too big to be stored in double.",
    b'{"k":"a","v":1e3}': "column v: 1000.0 cannot be read as bigint",
    b'{"k":"a","v":"1"}': 'column v: "1" cannot be read as bigint',
    b'{"k":"a","ts":"noon"}': 'column ts: "noon" cannot be read as timestamp',
    b'{"k\xff":"a"}': "not UTF-8: byte 0xff at 3",
    b'{"k":"a","k":"b"}': "column k: the key is there twice",
    b'{"k":"a","other":' + b"[" * DEEPEST + b"]" * DEEPEST + b"}": f"nested deeper than {DEEPEST} levels",
    b'{"v":1}': "column k: null, but it is declared not null",
    b"[]": "not a JSON object",
}


def rejecting(folder: Path) -> ps.Pipeline:
    (folder / "lines.csv").write_bytes(b"\n".join(CSV) + b"\n")
    (folder / "documents.jsonl").write_bytes(b"\n".join(JSON) + b"\n")
    keys = pa.array([b"a", b"\xffb", None], pa.binary()).view(pa.string())
    # In the rejected rows there are times that Python cannot have.
    times = pa.array([0, 2**63 - 1, 2**63 - 1]).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": keys, "v": [1, 2, 3], "ts": times}), folder / "groups.parquet")
    required = pa.table({"n": pa.array([1, None], pa.int64()), "ts": times[:2]})
    pq.write_table(required, folder / "required.parquet")
    streams = [
        ps.read_files(str(folder / "lines.csv"), schema=SCHEMA),
        ps.read_files(str(folder / "documents.jsonl"), schema=SCHEMA),
        ps.read_files(str(folder / "groups.parquet"), schema="k string not null, v bigint, ts timestamp"),
        ps.read_files(str(folder / "required.parquet"), schema="n bigint not null, ts timestamp").select(k="n", v="n"),
    ]
    outputs = [
        stream.with_columns(w="v + 1").select("k", "w").to(ps.collect()).named(f"rows{n}")
        for n, stream in enumerate(streams)
    ]
    bad = ps.collect()
    bad.name = "bad"
    return ps.Pipeline("p", *outputs, rejected_to=bad)


def outcome(pipeline: ps.Pipeline, settings: Settings) -> dict[str, Any]:
    found = run_to_end(pipeline, {}, settings=settings)
    return {sink: sorted(rows, key=repr) for sink, rows in found.items()} | {"counts": found.counts}


def test_the_same_bad_rows_are_rejected_with_the_same_reasons_in_both_lanes(tmp_path: Path, settings: Settings) -> None:
    pipeline = rejecting(tmp_path)
    native, spark = (outcome(pipeline, replace(settings, lane=lane)) for lane in ("auto", "spark"))
    assert native == spark
    given = {"lines": CSV, "documents": JSON}
    for source, lines in given.items():
        bad = {row["raw"]: row["reason"] for row in native["bad"] if row["source"] == source}
        assert bad == {line: why for line, why in lines.items() if why}
    reasons = [row["reason"] for row in native["bad"] if row["source"] == "groups"]
    assert reasons == ["column k: not UTF-8: byte 0xff at 0", "column k: null, but it is declared not null"]
    (required,) = (row for row in native["bad"] if row["source"] == "required")
    assert required["reason"] == "column n: null, but it is declared not null"
    assert json.loads(required["raw"]) == {"n": None, "ts": "+294247-01-10T04:00:54.775807Z"}
    assert all(row["position"] for row in native["bad"])
    for source, count in [("lines", len(CSV)), ("documents", len(JSON)), ("groups", 3), ("required", 2)]:
        counts = native["counts"][source]
        assert (counts.rows_in, counts.used + counts.rejected) == (count, count)


def test_a_damaged_file_stops_the_job_and_is_named(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(b"1\n" * 100_000)[:-20])
    pipeline = ps.Pipeline("p", ps.read_files(str(tmp_path / "in.csv.gz"), schema="v bigint").to(ps.collect()))
    with pytest.raises(SourceFailed, match=r"in\.csv\.gz cannot be read"):
        run_to_end(pipeline, {}, settings=settings)


def test_a_file_that_grew_between_runs_is_reported_though_no_epoch_runs(
    tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a\n1\n")
    pipeline = ps.Pipeline("p", ps.read_files(str(path), schema="a bigint").to(ps.collect()))
    first = pipeline.run(until="drained", checkpoint=tmp_path / "cp", settings=settings)
    assert (first.changed_inputs, caplog.messages) == ({}, [])
    path.write_text("a\n1\n2\n")
    second = pipeline.run(until="drained", checkpoint=tmp_path / "cp", settings=settings)
    [warning] = caplog.messages
    assert "in.csv changed after it was found (4 bytes, now 6); what is new in it is not read" in warning
    assert (second.epochs, second.changed_inputs) == (first.epochs, {"in": 1})
    # What was noted about the file is no damage, and it is not reported again.
    third = pipeline.run(until="drained", checkpoint=tmp_path / "cp", settings=settings)
    assert (third.changed_inputs, caplog.messages) == ({"in": 1}, [warning])
