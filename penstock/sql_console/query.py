"""Runs a query: plans it over its tables, and yields the answer line by line."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from penstock.connectors.formats.json.writer import json_documents
from penstock.connectors.topics.connection import Connection
from penstock.errors import BadExpression, ExpressionFailed, PenstockError, PipelineError
from penstock.native.engine import unsliced
from penstock.native.steps import quote
from penstock.plan.graph import upstream
from penstock.plan.operators.node import Node
from penstock.plan.sql_expressions.expression import scalar
from penstock.query.parsing import NODE, text_of
from penstock.query.select import build_bounded
from penstock.schema import quoted
from penstock.sql_console.code import job_code, job_plan
from penstock.sql_console.lowering import Lowering
from penstock.sql_console.sandbox import connect
from penstock.sql_console.statement import Statement, read_statement
from penstock.sql_console.tables import Table, Wanted, rows_table, topic_table
from penstock.stream import Stream

CHUNK_ROWS = 100
MOST_ANSWERED = 16 * 1024**2
_HIDDEN = "__order_"


@dataclass(frozen=True)
class Planned:
    """The nodes of a query; `order` is over their columns, of which the first `shown` are the result."""

    stream: Stream
    order: tuple[tuple[str, bool, bool], ...]
    shown: int


def answer(request: Mapping[str, Any], connection: Connection) -> Iterator[str]:
    """Yield the lines of an answer: the columns, chunks of rows, and the end."""
    began = time.monotonic()
    statement = read_statement(str(request["sql"]))
    tables = read_tables(statement, request.get("sources") or {}, connection)
    planned = plan(statement, tables)
    lowering = Lowering({_source(table.stream.node): f"t{number}" for number, table in enumerate(tables)})
    limit = int(request.get("limit") or 200)
    sql = _whole(planned, statement, lowering, limit)
    fields = planned.stream.schema.fields[: planned.shown]
    yield json.dumps(
        {
            "columns": [{"name": each.name, "type": each.type} for each in fields],
            "explain": job_plan(statement, tables, planned.stream),
            "python": job_code(statement, tables),
            "warnings": _warnings(lowering, tables),
        }
    )
    counts = {"rows": 0, "truncated": False}
    yield from _rows(sql, tables, limit, counts, lowering)
    cut = counts["truncated"] or any(table.truncated for table in tables)
    scanned = sum(table.scanned for table in tables)
    ms = round(1000 * (time.monotonic() - began))
    yield json.dumps({"done": True, "rows": counts["rows"], "scanned": scanned, "truncated": bool(cut), "ms": ms})


def read_tables(statement: Statement, sources: Mapping[str, Any], connection: Connection) -> list[Table]:
    """Read what a query reads; a table that is not described is the topic of its name."""
    wanted = Wanted(statement.columns, statement.times)
    found = []
    for name in statement.tables:
        spec = sources.get(name) or {}
        found.append(
            rows_table(name, spec, wanted) if "rows" in spec else topic_table(name, spec, connection, wanted),
        )
    return found


def plan(statement: Statement, tables: Sequence[Table]) -> Planned:
    """Return the nodes of a query over tables that have an end."""
    streams = {table.name: table.timed for table in tables}
    result = build_bounded(statement.tree.copy(), streams)
    shown, hidden = len(result.schema.names), _hidden(statement, result)
    if hidden:
        tree = statement.tree.copy()
        for name, one in hidden.items():
            tree.append("expressions", exp.alias_(one.this.copy(), name))
        result = build_bounded(tree, streams)
    orders = []
    names = iter(hidden)
    for one in statement.order:
        sql = next(names) if one in hidden.values() else _order_column(one, result)
        descending = bool(one.args.get("desc"))
        # In Spark nulls are smaller than anything.
        first = one.args.get("nulls_first")
        orders.append((sql, descending, not descending if first is None else bool(first)))
    return Planned(result, tuple(orders), shown)


def _hidden(statement: Statement, result: Stream) -> dict[str, exp.Ordered]:
    """Return what a query is ordered by and does not show, with names for it."""
    found: dict[str, exp.Ordered] = {}
    for one in statement.order:
        try:
            _order_column(one, result)
        except PipelineError:
            is_simple = isinstance(statement.tree, exp.Select) and not statement.tree.args.get("distinct")
            if not is_simple or isinstance(one.this, exp.Literal):
                raise
            found[f"{_HIDDEN}{len(found)}"] = one
    return found


def _order_column(one: exp.Ordered, result: Stream) -> str:
    """Return what a query is ordered by as Spark SQL over its result."""
    names = result.schema.names
    if isinstance(one.this, exp.Literal) and not one.this.is_string:
        if not one.this.name.isdigit() or not 1 <= int(one.this.name) <= len(names):
            message = f"ORDER BY {one.this.name}: SELECT has {len(names)} columns"
            raise BadExpression(message, node=NODE, hint=f"use a number from 1 to {len(names)}, or a column's name")
        return quoted(names[int(one.this.name) - 1])
    text = text_of(one.this)
    scalar(text, result.schema, node=f"{NODE} / ORDER BY")
    return text


def _whole(planned: Planned, statement: Statement, lowering: Lowering, limit: int) -> str:
    """Return the query for DuckDB: the shown columns, ordered, and one row more than is answered."""
    schema = planned.stream.schema
    orders = [
        f"{lowering.expression(sql, schema)} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
        for sql, descending, first in planned.order
    ]
    listed = ", ".join(map(quote, schema.names[: planned.shown]))
    by = f" ORDER BY {', '.join(orders)}" if orders else ""
    most = limit + 1 if statement.limit is None else min(limit + 1, statement.limit)
    offset = f" OFFSET {statement.offset}" if statement.offset else ""
    return f"SELECT {listed} FROM {lowering.below(planned.stream.node)}{by} LIMIT {most}{offset}"


def _rows(sql: str, tables: Sequence[Table], limit: int, counts: dict[str, Any], lowering: Lowering) -> Iterator[str]:
    """Yield chunks of rows; `counts` gets how many there are, and whether there are more."""
    size = 0
    for batch in _batches(sql, tables, lowering):
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            left = limit - counts["rows"]
            if left == 0 or size > MOST_ANSWERED:
                counts["truncated"] = True
                return
            chunk = batch.slice(start, min(CHUNK_ROWS, left))
            counts["truncated"] = chunk.num_rows < min(CHUNK_ROWS, batch.num_rows - start)
            documents = json_documents(chunk).to_pylist()
            size += sum(map(len, documents))
            counts["rows"] += len(documents)
            yield f'{{"rows":[{",".join(documents)}]}}'


def _batches(sql: str, tables: Sequence[Table], lowering: Lowering) -> Iterator[pa.RecordBatch]:
    import duckdb

    database = connect()
    for number, table in enumerate(tables):
        database.register(f"t{number}", unsliced(table.rows))
    try:
        yield from database.sql(sql).to_arrow_table().to_batches()
    except duckdb.OutOfMemoryException:
        message = "the query needs more memory than the console gives it"
        raise ExpressionFailed(message, node=NODE, hint="read fewer rows, or group by fewer values") from None
    except (duckdb.CatalogException, duckdb.BinderException, duckdb.ParserException) as error:
        raise _untranslated(error, lowering) from None
    except duckdb.Error as error:
        message = f"the query failed on a row: {_reason(error)}"
        raise ExpressionFailed(message, node=NODE, hint=_TRY) from None


_TRY = "use the try_ form of what failed, such as try_divide, try_cast or try_add: it gives null"


def _untranslated(error: Exception, lowering: Lowering) -> PenstockError:
    texts = ", ".join(f'"{text}"' for text in lowering.expressions.approximate) or "a part of the query"
    message = f"{texts} needs Spark, and the console runs without it"
    return BadExpression(message, node=NODE, hint=f"run the query as a job; DuckDB says: {_reason(error)}")


def _reason(error: Exception) -> str:
    first = re.sub(r"^[\w ]+ Error: ", "", str(error).splitlines()[0])
    return re.split(r"\.? Use TRY|!? when casting from source", first)[0].rstrip("!. ")


def _warnings(lowering: Lowering, tables: Sequence[Table]) -> list[str]:
    found = [
        f'"{text}" is computed by DuckDB; in rare cases Spark gives another result'
        for text in lowering.expressions.approximate
    ]
    found += [
        f"{table.rejected} of {table.scanned} records of '{table.name}' do not fit its schema and are left out"
        for table in tables
        if table.rejected
    ]
    return found


def _source(node: Node) -> Node:
    return next(one for one in upstream(node) if not one.inputs)
