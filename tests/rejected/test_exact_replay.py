"""A row that was rejected and replayed is the row that the source read, in all its values."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import penstock as ps
from penstock.connectors.files.source import FileSource
from penstock.connectors.topics.source import TopicSource
from penstock.errors import CannotReplay
from penstock.rejected.replay import replay
from penstock.rejected.rows import RejectedRow, row_json
from penstock.rejected.targets import ReturnedRow, batch, payloads_of
from penstock.schema import Schema
from penstock.settings import Settings
from penstock.spark.tasks.staging import rejected_rows
from penstock.storage.folders import folder
from tests.connectors.kafka_topics import fresh
from tests.schemas import batches


def rejected(rows: pa.RecordBatch) -> list[RejectedRow]:
    """Rows as a node's rejects are stored."""
    table = rejected_rows("check", 0, [("ValueError: no", row) for row in rows.to_pylist()])
    return [RejectedRow(**row) for row in table.to_pylist()]


def read_back(path: str, schema: Schema, format: str) -> pa.Table:
    source = FileSource(path, schema, format)
    source.open(f"{path}-log")
    end = source.latest(source.initial(), None)
    found = [item for split in source.splits(source.initial(), end, 1) for item in source.read_split(split)]
    return pa.Table.from_batches(found, schema=schema.nullable().arrow)


def values(table: pa.Table | pa.RecordBatch) -> list[str]:
    # By their text, for NaN is not equal to itself and 0.0 is equal to -0.0.
    return [repr(row) for row in table.to_pylist()]


def through_files(schema: Schema, rows: pa.RecordBatch, format: str) -> pa.Table:
    with tempfile.TemporaryDirectory() as here:
        path = f"{here}/in"
        Path(path).mkdir()
        if format == "parquet":
            pq.write_table(schema.nullable().arrow.empty_table(), f"{path}/first.parquet")
        stream = ps.read_files(path, schema=schema, format=format).named("in")
        pipeline = ps.Pipeline("p", stream.map(lambda row: row).named("check").to(ps.collect()))
        done = replay(pipeline, rejected(rows), folder(f"{here}/checkpoint"), Settings())
        assert done.rows == {"in": rows.num_rows}
        return read_back(path, schema, format)


@given(batches(maps=False))
@settings(deadline=None, max_examples=40)
def test_a_row_of_a_json_source_comes_back_as_it_was(given: tuple[Schema, pa.RecordBatch]) -> None:
    schema, rows = given
    assert values(through_files(schema, rows, "json")) == values(rows)


@pytest.mark.slow
@given(batches(maps=True))
@settings(deadline=None, max_examples=40)
def test_a_row_of_a_parquet_source_comes_back_as_it_was(given: tuple[Schema, pa.RecordBatch]) -> None:
    schema, rows = given
    assert values(through_files(schema, rows, "parquet")) == values(rows)


@given(batches(maps=True))
@settings(deadline=None, max_examples=80)
def test_the_json_of_a_rejected_row_keeps_all_its_values(given: tuple[Schema, pa.RecordBatch]) -> None:
    schema, rows = given
    back = [ReturnedRow(None, row.values, None) for row in rejected(rows)]
    assert values(batch(back, schema)) == values(rows)


def test_intervals_maps_and_bytearrays_survive_the_json_of_a_rejected_row() -> None:
    schema = Schema("i interval day to second, m map<bigint,decimal(38,18)>, b binary, a array<struct<t:timestamp>>")
    row = {
        "i": timedelta(days=-3, microseconds=7),
        "m": {1: Decimal("1.000000000000000001"), 2: None},
        "b": bytearray(b"\x00\xff"),
        "a": [{"t": datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=UTC)}],
    }
    stored = RejectedRow("n", "", row_json(row), None, None, None, 0)
    (found,) = batch([ReturnedRow(None, stored.values, None)], schema).to_pylist()
    assert found == {**row, "b": b"\x00\xff", "m": list(row["m"].items())}  # type: ignore[attr-defined]


def test_what_spark_writes_as_json_is_read_too() -> None:
    schema = Schema("d decimal(20,10), m map<int,double>, f double, t timestamp, b binary")
    text = '{"d": 1234567890.0123456789, "m": {"1": 0.5}, "f": "NaN", "t": "2026-01-01T00:00:00.123Z", "b": "YWI="}'
    stored = RejectedRow("n", "", text, None, None, None, 0)
    (found,) = batch([ReturnedRow(None, stored.values, None)], schema).to_pylist()
    assert found["d"] == Decimal("1234567890.0123456789")
    assert found["m"] == [(1, 0.5)]
    assert (found["t"], found["b"]) == (datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC), b"ab")


@pytest.mark.parametrize("value", ["1", '"no time"', "[1]", "{}"])
def test_a_row_that_no_longer_fits_the_schema_is_refused_with_the_schema(value: str) -> None:
    stored = RejectedRow("n", "", f'{{"a": [{value}]}}', None, None, None, 0)
    with pytest.raises(CannotReplay, match="does not fit 'a array<timestamp>'"):
        batch([ReturnedRow(None, stored.values, None)], Schema("a array<timestamp>"))


def test_a_record_goes_back_into_its_topic_with_its_key(event_log: str, tmp_path: Path) -> None:
    source = fresh(event_log, "keyed").create(1)
    stream = ps.read_topic(source.name, schema="b binary", include=["key"], connection=source.bootstrap).named("in")
    pipeline = ps.Pipeline("p", stream.map(lambda row: row).named("check").to(ps.collect()))
    row = pa.RecordBatch.from_pylist([{"b": b"\xff", "_key": b"k\x00"}])
    replay(pipeline, rejected(row), folder(tmp_path / "checkpoint"), Settings())
    (record,) = source.consume()
    assert (record.key(), record.value()) == (b"k\x00", b'{"b": "/w=="}')
    topic = TopicSource(source.name, Schema("b binary"), connection=source.bootstrap)
    end = topic.latest(topic.initial(), None)
    found = [item for split in topic.splits(topic.initial(), end, 1) for item in topic.read_split(split)]
    assert [batch.to_pylist() for batch in found] == [[{"b": b"\xff"}]]
    assert payloads_of([ReturnedRow(None, {"b": "/w=="}, None)], Schema("b binary"), "json") == [b'{"b": "/w=="}']
