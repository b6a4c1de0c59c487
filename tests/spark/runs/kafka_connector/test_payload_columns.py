"""Spark reads a payload as Penstock's own parser does: the same rows, the same ones rejected."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.connectors.topics.source import TopicSource
from penstock.contracts import Rejected
from penstock.schema import Schema
from penstock.spark.runs.kafka_connector.payload_columns import REASON, rejected, rows

TYPES = ["string", "bigint", "int", "tinyint", "double", "float", "boolean", "date", "timestamp", "timestamp_ntz"]
TYPES += ["binary"]
VALUES = [
    *("null", "1", "-1", "0", "-0.0", "1.0", "1.5", "1e3", "127", "128", "-129", "2147483648", "true", "false"),
    *("9223372036854775807", "9223372036854775808", "1e400", "0.1", "4.35", "123456789.123456789", "1E-7"),
    *('"Infinity"', '"-Infinity"', '"INF"', '"+Infinity"'),
    *('""', '"x"', '"1"', '"1.5"', '"true"', '"NaN"', '"\\u00e9"', '"\\u0000"', '"é"', "{}", "[]", '{"b": 1}', "[1]"),
    *('"2026-01-01"', '"2026-01-01T10:00:00Z"', '"2026-01-01 10:00:00"', '"2026-01-01T10:00:00.123456+02:30"'),
    *('"2026-01-01T10:00:00.1234567Z"', '"2026-13-01"', '"2026-02-29"', '"2024-02-29"', '"2026-01-01T24:00:00Z"'),
    *('"2026-01-01T10:00"', '"2026-01-01T10"', '"2026-01-01T1:00:00"', '"0000-01-01"', '"2026"', '"epoch"'),
    *(
        '"2026-01-01T10:00:00+0230"',
        '"2026-01-01T10:00:00 UTC"',
        '"2026-01-01T10:00:60Z"',
        '"2026-01-01T10:00Z"',
        '"2026-01-01 10+02"',
        '"1500-01-01T00:00:00Z"',
    ),
    *('"2026-01-01t10:00:00.123456789z"', '"1969-12-31T23:59:59.9999999"', '"2026-01-01T10:00:00.1234567890123+05"'),
    *("1767268800", "1767268800.5", "1767268800123", "1767268800123456", "1767268800123456789", "-1767268800123456789"),
    *("-1000000000.0000005", "1.7672688e9", "99999999", "100000000", "9999999999", "10000000000", "99999999999"),
    *("9999999999999999999", "10000000000000000000", '"1767268800"', "1767268800.999999999999"),
    *('"YWI="', '"YWI"', '"YW I="', '"YWI=\\n"', '"YWI=YWI="', '"/+8="', '"_-8="', '"YWJj"', '"YR=="', '"="', '"YQ=="'),
]
DOCUMENTS = [
    *(
        b"",
        b"{",
        b"{}",
        b"[]",
        b"5",
        b"null",
        b"x",
        b'{"a": 1',
        b"{'a': 1}",
        b'{"a": 1,}',
        b'/**/{"a": 1}',
        b'{"a": 01}',
    ),
    *(b'{"a": 1} x', b'{"a": 1} {"a": 2}', b'{"a": 1}, {"a": 2}', b'{"a": 1}]', b'{"a": 1}], [{"a": 2}', b'{"a": 1}}'),
    *(b'{"a": 1, "a": 2}', b'{"b": 1}', b'  {"a": 1}\n', b'{\n"a":\t1}', b'{"A": 1}', b'{"a": 1, "b": [{}]}', b"\xff"),
    *(b'{"a": 1, "b": "\xff"}', None),
]


def test_spark_reads_and_rejects_what_penstocks_parser_does(spark: SparkSession) -> None:
    for kind in TYPES:
        payloads = [f'{{"a": {value}}}'.encode() for value in VALUES]
        _compare(spark, Schema(f"a {kind}"), payloads + DOCUMENTS if kind == "bigint" else payloads)
    _compare(spark, Schema("a bigint not null"), [b"{}", b'{"a": null}', b'{"a": 1}'])


def _compare(spark: SparkSession, schema: Schema, payloads: list[bytes | None]) -> None:
    source = TopicSource("t", schema)
    records = pa.table(
        {
            "offset": pa.array(range(len(payloads)), pa.int64()),
            "value": pa.array(payloads, pa.binary()),
            "partition": pa.array([0] * len(payloads), pa.int32()),
        }
    )
    good, bad = _by_python(source, records)
    parsed = rows(spark.createDataFrame(records), source.spec())
    there = {row["position"]: row["reason"] for row in rejected(parsed, "t").collect()}
    assert {place: payloads[int(place[4:])] for place in there} == {place: payloads[int(place[4:])] for place in bad}
    found = parsed.filter(f"{REASON} IS NULL").select("a").toArrow().column("a")
    assert _shown(found) == good, schema.ddl
    named = [place for place, why in bad.items() if "cannot be read as" in why or "not null" in why]
    assert [there[place][:10] for place in named] == ["column a: "] * len(named)


def _by_python(source: TopicSource, records: pa.Table) -> tuple[list[str], dict[str, str]]:
    good: list[str] = []
    bad: dict[str, str] = {}
    for item in source.rows(records.to_batches()[0]):
        if isinstance(item, Rejected):
            bad[item.position] = item.reason
        else:
            good += _shown(item.column("a"))
    return good, bad


def _shown(column: pa.Array | pa.ChunkedArray) -> list[str]:
    shown: list[str] = column.to_pylist() if column.type == pa.binary() else column.cast(pa.string()).to_pylist()
    return shown
