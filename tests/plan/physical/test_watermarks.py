"""`explain` says of each event time what its watermark follows, and what may be left out."""

from __future__ import annotations

from typing import Any

import penstock as ps

SCHEMA = "k string, ts timestamp not null"


def explained(stream: ps.Stream, pace: Any = "throughput") -> str:
    counts = stream.key_by("k").window(ps.tumbling("10s"), emit="updates").aggregate(n="count(*)")
    text = ps.Pipeline("p", counts.to(ps.topic("out", key="k")), pace=pace).explain()
    return next(line for line in text.splitlines() if line.startswith("watermark of "))


def test_a_topic_has_a_watermark_for_each_partition() -> None:
    rows = ps.read_topic("rows", schema=SCHEMA)
    per_partition = "watermark of rows.ts: per partition the largest time, less 5s; the smallest counts, "
    held = per_partition + "a partition that falls silent holds it back (no idle_after)"
    assert explained(rows.event_time("ts", "5s")) == held
    left_out = per_partition + "a partition that falls silent is left out after 30s"
    assert explained(rows.event_time("ts", "5s", idle_after="30s")) == left_out


def test_files_and_what_has_no_partition_have_one_watermark() -> None:
    files = ps.read_files("in", schema=SCHEMA, format="json").named("files")
    assert explained(files.event_time("ts", "5s")) == "watermark of files.ts: the largest time of all rows, less 5s"
    both = files.union(ps.read_topic("rows", schema=SCHEMA))
    assert "per partition" in explained(both.event_time("ts", "5s"))
    batches = ps.read_topic("rows", schema=SCHEMA).map_batches(lambda rows: rows, SCHEMA)
    assert "the largest time of all rows" in explained(batches.event_time("ts", "5s"))


def test_in_real_time_the_watermark_is_sparks_own() -> None:
    rows = ps.read_topic("rows", schema=SCHEMA).event_time("ts", "5s")
    assert explained(rows, "realtime").endswith(
        "Spark's own, the largest time of all partitions together, less 5s (pace)"
    )
