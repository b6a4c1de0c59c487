"""The tables of a query: bounded rows of topics, or rows that the job manager gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.payloads import Payloads, row_schema
from penstock.contracts import Rejected
from penstock.errors import BadSchema
from penstock.plan.sql_expressions.types import read
from penstock.query.parsing import NODE
from penstock.schema import Field, Schema
from penstock.sources import from_items, read_topic
from penstock.sql_console.inference import SAMPLED, infer_schema
from penstock.sql_console.topics import Records, read_records
from penstock.stream import Stream

MOST_ROWS = 100_000
_INCLUDED = ("key", "headers", "partition", "offset", "timestamp")
_OF_RECORDS = {"value", *(f"_{name}" for name in _INCLUDED)}
_TIMES = ("bigint", "double", "string")
_DELAY = "10s"


@dataclass
class Table:
    """Rows by a name: `stream` is what reads them in a job, `code` how a pipeline is written that does."""

    name: str
    stream: Stream
    rows: pa.Table
    code: str
    scanned: int = 0
    rejected: int = 0
    truncated: bool = False
    time: str | None = None

    @property
    def timed(self) -> Stream:
        """The stream with its event time, if a window is over it."""
        return self.stream.event_time(self.time, max_delay=_DELAY) if self.time else self.stream

    @property
    def timed_code(self) -> str:
        """The code of it."""
        return f'{self.code}.event_time({self.time!r}, max_delay="{_DELAY}")' if self.time else self.code


@dataclass(frozen=True)
class Wanted:
    """What a query says about a table: the columns it names, and those that windows are over."""

    columns: set[str] = field(default_factory=set)
    times: set[str] = field(default_factory=set)


def topic_table(name: str, spec: Mapping[str, Any], connection: Connection, wanted: Wanted) -> Table:
    """Read rows of a topic, with its schema or one that is inferred from its newest records."""
    topic, limit = str(spec.get("topic") or name), min(int(spec.get("limit") or 10_000), MOST_ROWS)
    records = read_records(connection, topic, newest=spec.get("from", "end") == "end", limit=limit)
    own, format = _schema(spec, records, wanted)
    named = set(own.names) if own else {"value"}
    include = [each for each in _INCLUDED if f"_{each}" in wanted.columns and f"_{each}" not in named]
    schema = row_schema(topic, own, format, include)
    rows, rejected = _decoded(topic, records, schema, format, include)
    stream = read_topic(topic, schema=own, format=format, include=include)  # type: ignore[arg-type]
    found = Table(name, stream, rows, _code(topic, own, format, include))
    found.scanned, found.rejected, found.truncated = records.count, rejected, records.truncated
    found.time = _time(schema, wanted)
    return found


def rows_table(name: str, spec: Mapping[str, Any], wanted: Wanted) -> Table:
    """Return rows that the job manager has read, such as the state of a job."""
    given = [json.dumps(row).encode() for row in spec["rows"]]
    own = infer_schema(given)
    if own is None:
        message = f"'{name}' has no rows"
        raise BadSchema(message, hint="wait until the job has stored some, or query the topic that it writes")
    records = Records([pa.record_batch({"value": pa.array(given, pa.binary())})])
    payloads = Payloads(name, own, "json", ())
    batches = [each for one in records.batches for each in payloads.rows(_numbered(one)) if _is_batch(each)]
    rows = pa.Table.from_batches(batches, own.nullable().arrow)
    code = f"ps.from_items([...], {own.ddl!r})"
    return Table(name, from_items([], own), rows, code, scanned=len(given), time=_time(own, wanted))


def _schema(spec: Mapping[str, Any], records: Records, wanted: Wanted) -> tuple[Schema | None, str]:
    """Return the schema of the payloads and their format."""
    if spec.get("schema"):
        return Schema(str(spec["schema"])), "json"
    if not records.count and wanted.columns - _OF_RECORDS:
        message = "the topic has no records, so that its columns are not known"
        raise BadSchema(message, node=NODE, hint='give its schema: "symbol string, price double"')
    found = infer_schema(_sample(records))
    if found is not None:
        return _with_times(found, wanted), "json"
    is_text = all(_is_text(payload) for payload in _sample(records) if payload is not None)
    return Schema("value string" if is_text else "value binary"), "raw"


def _sample(records: Records) -> list[bytes | None]:
    """Return payloads of all partitions, as each batch has its share."""
    each = -(-SAMPLED // max(1, len(records.batches)))
    found: list[bytes | None] = []
    for batch in records.batches:
        step = max(1, batch.num_rows // each)
        found += batch.column("value").take(pa.array(range(0, batch.num_rows, step), pa.int64())).to_pylist()
    return found


def _with_times(schema: Schema, wanted: Wanted) -> Schema:
    """Return a schema in which numbers and texts that windows are over are times, as the parser reads them."""
    found = ((each, each.name in wanted.times and each.type in _TIMES) for each in schema)
    return Schema(tuple(Field(each.name, "timestamp" if is_time else each.type) for each, is_time in found))


def _decoded(topic: str, records: Records, schema: Schema, format: str, include: list[str]) -> tuple[pa.Table, int]:
    payloads = Payloads(topic, schema, format, include)
    batches: list[pa.RecordBatch] = []
    rejected = 0
    for batch in records.batches:
        for found in payloads.rows(batch):
            if isinstance(found, Rejected):
                rejected += 1
            else:
                batches.append(found)
    return pa.Table.from_batches(batches, schema.nullable().arrow), rejected


def _time(schema: Schema, wanted: Wanted) -> str | None:
    found = [each.name for each in schema if each.name in wanted.times and read(each.type).name == "timestamp"]
    return found[0] if found else None


def _code(topic: str, schema: Schema | None, format: str, include: list[str]) -> str:
    parts = [repr(topic)]
    if schema is not None and (format != "raw" or schema.ddl != "value binary"):
        parts.append(f"schema={schema.ddl!r}")
    parts += [f"format={format!r}"] if format != "json" else []
    parts += [f"include={include!r}"] if include else []
    return f"ps.read_topic({', '.join(parts)})"


def _numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return payloads with the columns that name a rejected one."""
    count = batch.num_rows
    zeros = pa.array([0] * count, pa.int64())
    return batch.append_column("partition", zeros).append_column("offset", pa.array(range(count), pa.int64()))


def _is_batch(found: object) -> bool:
    return isinstance(found, pa.RecordBatch)


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
