"""Filters records of a topic by a condition over the record and the fields of its value."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from penstock.connectors.formats.parsers import parser
from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.offsets import Range
from penstock.errors import BadExpression, ExpressionFailed
from penstock.native.engine import unsliced
from penstock.plan.sql_expressions.expression import predicate
from penstock.plan.sql_expressions.parsing import parse_verbatim
from penstock.schema import Field, Schema
from penstock.sql_console.expressions import Expressions
from penstock.sql_console.inference import infer_schema
from penstock.sql_console.sandbox import connect
from penstock.sql_console.topics import read_range

NODE = "where"
OWN = Schema("key string, value string, partition int, offset bigint, timestamp timestamp, headers map<string,string>")
MOST_SCANNED = 100_000
# The partitions are read in turns, a slice of each at a time.
_SLICE = 2_000


def answer(request: Mapping[str, Any], connection: Connection) -> Iterator[str]:
    """Yield the records for which the condition holds, then how many were read and whether that was all."""
    condition = Condition(str(request["where"]))
    limit, newest = int(request["limit"]), bool(request.get("newest"))
    ranges = [Range(*each) for each in request["ranges"]]
    found: list[dict[str, Any]] = []
    scanned, complete = 0, True
    for batch in _slices(connection, str(request["topic"]), ranges):
        scanned += batch.num_rows
        found += condition.kept(_narrowed(batch, request))
        if (len(found) >= limit and not newest) or scanned >= MOST_SCANNED:
            complete = False
            break
    found += condition.rest()
    yield json.dumps({"messages": found})
    yield json.dumps({"done": True, "scanned": scanned, "complete": complete})


class Condition:
    """A condition over records; the types of fields are those of the values that were read so far."""

    def __init__(self, text: str) -> None:
        self._text = text
        tree = parse_verbatim(text, node=NODE)
        names = {column.parts[0].name for column in tree.find_all(exp.Column)}
        self._fields = names - {*OWN.names}
        self._known: dict[str, Field] = {}
        self._seen: dict[str, Field] = {}
        self._waiting: list[pa.RecordBatch] = []
        self._database = connect()

    def kept(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Return those for which it holds. Records wait until every field of the condition was seen."""
        self._waiting.append(batch)
        if missing := self._fields - {*self._known}:
            schema = infer_schema(batch.column("value").to_pylist())
            self._seen |= {each.name: each for each in schema or ()}
            self._known |= {name: self._seen[name] for name in missing if name in self._seen}
        return self._evaluated() if self._fields <= {*self._known} else []

    def rest(self) -> list[dict[str, Any]]:
        """Return those of the records that still wait; a field that no value has is an error."""
        return self._evaluated()

    def _evaluated(self) -> list[dict[str, Any]]:
        schema = self._schema()
        # All fields that were seen, for the error if it names another.
        own = (each for each in self._seen.values() if each.name not in schema)
        predicate(self._text, Schema((*schema.fields, *own)), node=NODE)
        if not self._waiting:
            return []
        records = pa.Table.from_batches(self._waiting)
        self._waiting = []
        sql = Expressions().sql(self._text, schema, "boolean")
        numbers = pa.array(range(records.num_rows), pa.int64())
        rows = self._rows(records).append_column("__penstock_row", numbers)
        return list(map(_message, records.take(self._run(sql, rows)).to_pylist()))

    def _run(self, sql: str, rows: pa.Table) -> pa.Array:
        import duckdb

        self._database.register("records", unsliced(rows))
        try:
            kept = self._database.sql(f"SELECT __penstock_row FROM records WHERE {sql} ORDER BY 1").to_arrow_table()
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            message = f'"{self._text}" needs Spark, and messages are filtered without it'
            raise BadExpression(message, node=NODE, hint=str(error).splitlines()[0]) from None
        except duckdb.Error as error:
            message = f"the condition failed on a record: {str(error).splitlines()[0]}"
            raise ExpressionFailed(message, node=NODE, hint="use a try_ form, such as try_cast or try_divide") from None
        finally:
            self._database.unregister("records")
        return kept.column(0).combine_chunks()

    def _schema(self) -> Schema:
        return Schema((*OWN.fields, *self._known.values()))

    def _rows(self, records: pa.Table) -> pa.Table:
        """Return records as the condition sees them: texts, and the fields that it names."""
        own = {
            "key": pa.array(map(_text, records.column("key").to_pylist()), pa.string()),
            "value": pa.array(map(_text, records.column("value").to_pylist()), pa.string()),
            "partition": records.column("partition"),
            "offset": records.column("offset"),
            "timestamp": records.column("timestamp"),
            "headers": pa.array(map(_headers, records.column("headers").to_pylist()), OWN.arrow.field("headers").type),
        }
        table = pa.table(own, schema=OWN.nullable().arrow)
        for name, column in self._decoded(records.column("value").to_pylist()).items():
            table = table.append_column(name, column)
        return table

    def _decoded(self, payloads: Sequence[bytes | None]) -> dict[str, pa.Array]:
        """Return the fields of values; a value that does not fit has nulls."""
        if not self._known:
            return {}
        schema = Schema(tuple(self._known.values()))
        lines = [payload.replace(b"\n", b"\t") if payload else b"null" for payload in payloads]
        batch, bad = parser("json", schema).each(lines)
        good = iter(range(batch.num_rows))
        places = pa.array([None if number in bad else next(good) for number in range(len(lines))], pa.int64())
        return {each.name: batch.column(each.name).take(places) for each in schema}


def _slices(connection: Connection, topic: str, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    left = list(ranges)
    while left:
        after = []
        for one in left:
            end = min(one.last, one.first + _SLICE)
            yield from read_range(connection, topic, one._replace(last=end))
            if end < one.last:
                after.append(one._replace(first=end))
        left = after


def _narrowed(batch: pa.RecordBatch, request: Mapping[str, Any]) -> pa.RecordBatch:
    """Return the records with the key and the text that are asked for."""
    key, contains = request.get("key"), request.get("contains")
    if key is None and contains is None:
        return batch
    rows = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    kept = [
        (key is None or own == key.encode()) and (contains is None or contains.encode() in (value or b""))
        for own, value in rows
    ]
    return batch.filter(pa.array(kept, pa.bool_()))


def _message(record: Mapping[str, Any]) -> dict[str, Any]:
    at = record["timestamp"]
    return {
        "partition": record["partition"],
        "offset": record["offset"],
        "ms": None if at is None else round(at.timestamp() * 1000),
        "key": _encoded(record["key"]),
        "value": _encoded(record["value"]),
        "headers": [[each["key"], _encoded(each["value"])] for each in record["headers"] or ()],
    }


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _headers(pairs: Sequence[Mapping[str, Any]] | None) -> list[tuple[str, str | None]]:
    return list({each["key"]: _text(each["value"]) for each in pairs or ()}.items())
