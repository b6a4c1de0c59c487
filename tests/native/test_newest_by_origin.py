"""The newest event time of each partition, where a program reads several at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.native import translate
from penstock.native.program import Program
from penstock.native.steps import ORIGIN
from penstock.plan.physical.lanes import split_lanes

SCHEMA = ps.Schema("k string, v bigint, ts timestamp")


def program(stream: ps.Stream) -> Program:
    made = stream.event_time("ts", "5s").key_by("k").window(ps.tumbling("60s")).aggregate(n="count(*)")
    graph = ps.Pipeline("p", made.to(ps.collect())).graph
    (prefix,) = split_lanes(graph).prefixes.values()
    return translate.program(prefix, graph.names)


def batch(origin: int, *rows: tuple[int, int | None]) -> pa.RecordBatch:
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    made: list[Any] = [
        {"k": "a", "v": v, "ts": None if at is None else begin + timedelta(seconds=at)} for v, at in rows
    ]
    plain = pa.RecordBatch.from_pylist(made, schema=SCHEMA.nullable().arrow)
    return plain.append_column(ORIGIN, pa.array([origin] * len(rows), pa.int64()))


def test_it_is_that_of_all_rows_that_entered_the_event_time() -> None:
    found = program(ps.from_items([], SCHEMA).filter("v > 0"))
    assert found.keeps_origin
    run = found.start(0, ticks=False)
    # Rows that are filtered before it, and rows without a time, do not count; late ones do.
    given = [batch(7, (1, 50), (0, 900)), batch(8, (1, 20), (2, None)), batch(7, (1, 10)), batch(9, (0, 70))]
    made = pa.Table.from_batches([*run.batches(iter(given))])
    assert run.newest_by_origin == {7: 50_000_000, 8: 20_000_000}
    assert ORIGIN not in made.column_names
    assert [name for _, name, rows in run.side_rows(0) for _ in rows.to_pylist()] == ["event_time"]
    assert all(ORIGIN not in rows.column_names for _, _, rows in run.side_rows(0))


def test_a_program_that_lists_columns_before_it_reads_partitions_one_by_one() -> None:
    assert not program(ps.from_items([], SCHEMA).with_columns(v="v + 1")).keeps_origin
