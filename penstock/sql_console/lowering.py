"""From the nodes of a query to one query of DuckDB over tables of rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch

from penstock.native.steps import TIME, quote, usable
from penstock.plan.operators.deduplication import Distinct
from penstock.plan.operators.explode import Explode
from penstock.plan.operators.grouped import Aggregate
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Columns, Drop, EventTime, Filter, Read, Rename, Select, Union, WithColumns
from penstock.plan.sql_expressions.expression import scalar
from penstock.plan.sql_expressions.types import read
from penstock.schema import Schema, quoted
from penstock.sql_console.aggregates import aggregated
from penstock.sql_console.expressions import Expressions, needs_spark
from penstock.windows import ALL_TIMES


class Lowering:
    """Lowers nodes; `tables` has the name of the table that each source is read from."""

    def __init__(self, tables: Mapping[Node, str]) -> None:
        self.tables = tables
        self.expressions = Expressions()

    def sql(self, node: Node) -> str:
        """Return a SELECT of the rows of a node; where they have an event time, it is one more column."""
        return lowered(node, self)

    def below(self, node: Node) -> str:
        """Return the rows of a node, as a part of FROM."""
        return f"({self.sql(node)})"

    def expression(self, text: str, schema: Schema) -> str:
        """Return an expression over columns of a node."""
        return self.expressions.sql(text, schema, scalar(text, schema, node="sql").type)

    def columns(self, listed: Columns, schema: Schema) -> str:
        """Return a list of expressions with their names."""
        return ", ".join(f"{self.expression(sql, schema)} AS {quote(name)}" for name, sql in listed)


@singledispatch
def lowered(node: Node, to: Lowering) -> str:
    """Return a node as SQL."""
    raise needs_spark(f"{node.kind} {node.detail}".strip())


@lowered.register
def _read(node: Read, to: Lowering) -> str:
    return f"SELECT {', '.join(map(quote, node.schema.names))} FROM {to.tables[node]}"


@lowered.register
def _event_time(node: EventTime, to: Lowering) -> str:
    time = quote(node.column)
    return f"SELECT *, {time} AS {TIME} FROM {to.below(node.input)} WHERE {usable(time, ALL_TIMES)}"


@lowered.register
def _filter(node: Filter, to: Lowering) -> str:
    return f"SELECT * FROM {to.below(node.input)} WHERE {to.expression(node.condition, node.input.schema)}"


@lowered.register
def _select(node: Select, to: Lowering) -> str:
    return f"SELECT {to.columns(node.columns, node.input.schema)}{_time(node)} FROM {to.below(node.input)}"


@lowered.register
def _with_columns(node: WithColumns, to: Lowering) -> str:
    new = dict(node.columns)
    listed = tuple((name, new.get(name, quoted(name))) for name in node.schema.names)
    return f"SELECT {to.columns(listed, node.input.schema)}{_time(node)} FROM {to.below(node.input)}"


@lowered.register
def _rename(node: Rename, to: Lowering) -> str:
    old = dict(node.names)
    listed = ", ".join(f"{quote(old.get(name, name))} AS {quote(name)}" for name in node.schema.names)
    return f"SELECT {listed}{_time(node)} FROM {to.below(node.input)}"


@lowered.register
def _drop(node: Drop, to: Lowering) -> str:
    return f"SELECT {', '.join(map(quote, node.schema.names))}{_time(node)} FROM {to.below(node.input)}"


@lowered.register
def _union(node: Union, to: Lowering) -> str:
    listed = ", ".join(map(quote, node.schema.names)) + _time(node)
    return " UNION ALL ".join(f"SELECT {listed} FROM {to.below(one)}" for one in node.streams)


@lowered.register
def _distinct(node: Distinct, to: Lowering) -> str:
    return f"SELECT DISTINCT {', '.join(map(quote, node.schema.names))} FROM {to.below(node.input)}"


@lowered.register
def _explode(node: Explode, to: Lowering) -> str:
    kind = read(scalar(node.argument, node.input.schema, node="sql").type)
    entries = to.expression(node.argument, node.input.schema)
    entries = f"map_entries({entries})" if kind.name == "map" else entries
    is_empty = f"coalesce(len({entries}), 0) = 0"
    if node.outer:
        entries = f"CASE WHEN {is_empty} THEN [NULL] ELSE {entries} END"
    inner = f"SELECT *, {entries} AS __penstock_list, {is_empty} AS __penstock_empty FROM {to.below(node.input)}"
    each = f"SELECT *, unnest(__penstock_list) AS __penstock_one, {_POSITION} AS __penstock_pos FROM ({inner})"
    listed = ", ".join(f"{sql} AS {quote(name)}" for name, sql in zip(node.names, _parts(node, kind.name), strict=True))
    own = ", ".join(map(quote, node.input.schema.names)) + _time(node)
    return f"SELECT {own}, {listed} FROM ({each})"


_POSITION = "unnest(CAST(range(len(__penstock_list)) AS INTEGER[]))"


def _parts(node: Explode, kind: str) -> list[str]:
    """Return what each column of a generator is."""
    one = "__penstock_one"
    if node.function == "inline":
        element = read(scalar(node.argument, node.input.schema, node="sql").type).parts[0]
        return [f"{one}.{quote(name)}" for name in element.fields]
    values = [f"{one}.key", f"{one}.value"] if kind == "map" else [one]
    return (
        ["CASE WHEN NOT __penstock_empty THEN __penstock_pos END", *values] if node.function == "posexplode" else values
    )


@lowered.register
def _aggregate(node: Aggregate, to: Lowering) -> str:
    return aggregated(node, to.below(node.input), to.expressions)


def _time(node: Node) -> str:
    return f", {TIME}" if node.event_time else ""
