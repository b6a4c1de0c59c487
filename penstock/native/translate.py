"""From a plan's prefix to DuckDB SQL."""

from __future__ import annotations

from penstock.native.program import TICK, TIME, Program, Step, quote
from penstock.plan.expressions import parse
from penstock.plan.lanes import Prefix
from penstock.plan.node import Node
from penstock.plan.nodes import Columns, Drop, EventTime, Filter, Rename, Select, WithColumns
from penstock.plan.stateful import Grouped
from penstock.schema import Field, Schema
from penstock.windows import Window


def program(prefix: Prefix, names: dict[Node, str], late_extra_us: int = 0) -> Program:
    """Translate a prefix; `late_extra_us` is how far Spark's watermark is behind the late node's own."""
    times = prefix.times
    output, final = _partial(prefix) if prefix.partial else _rows(prefix)
    return Program(
        chain=steps(prefix, names),
        output=output,
        final=final,
        time_column=times.column if times else None,
        late_node=names[prefix.late] if prefix.late else None,
        late_window=prefix.late.window if isinstance(prefix.late, Grouped) else None,
        late_extra_us=late_extra_us,
    )


def _rows(prefix: Prefix) -> tuple[Schema, str]:
    fields = prefix.last.schema.nullable().fields
    if prefix.times is None:
        return Schema(fields), "SELECT * FROM {input}"
    more = (Field(TIME, "timestamp"), Field(TICK, "boolean"))
    return Schema(fields + more), f"SELECT *, FALSE AS {TICK} FROM {{input}} WHERE {{on_time}}"


def _partial(prefix: Prefix) -> tuple[Schema, str]:
    node, split = prefix.partial, prefix.split
    assert node is not None
    assert node.window is not None
    assert split is not None
    keys = [Field(key, prefix.last.schema.types[key]) for key in node.keys]
    parts = [Field(split.name(i), partial.type) for i, partial in enumerate(split.partials)]
    columns = [quote(key.name) for key in keys]
    columns += [f"{partial.sql} AS {part.name}" for part, partial in zip(parts, split.partials, strict=True)]
    columns += [f"max({TIME}) AS {TIME}", f"FALSE AS {TICK}"]
    groups = [*(quote(key.name) for key in keys), window_start(node.window)]
    sql = f"SELECT {', '.join(columns)} FROM {{input}} WHERE {{on_time}} GROUP BY {', '.join(groups)}"
    return Schema((*keys, *parts, Field(TIME, "timestamp"), Field(TICK, "boolean"))), sql


def steps(prefix: Prefix, names: dict[Node, str]) -> tuple[Step, ...]:
    """Return the chain as SQL, one step per node."""
    found = []
    timed = False
    for node in prefix.chain:
        found.append(Step(names[node], node.kind, _sql(node, timed), node.detail))
        timed = timed or isinstance(node, EventTime)
    return tuple(found)


def window_start(window: Window) -> str:
    """Return the start of a tumbling window as whole microseconds, right for times before 1970 too."""
    shifted = f"(epoch_us({TIME}) - {window.offset_us})"
    return f"{shifted} - ((({shifted} % {window.size_us}) + {window.size_us}) % {window.size_us})"


def _sql(node: Node, timed: bool) -> str:
    keep_time = f", {TIME}" if timed else ""
    if isinstance(node, Filter):
        return f"SELECT * FROM {{input}} WHERE {_expression(node.condition)}"
    if isinstance(node, Select):
        return f"SELECT {_columns(node.columns)}{keep_time} FROM {{input}}"
    if isinstance(node, WithColumns):
        new = dict(node.columns)
        columns = _columns(tuple((n, new.get(n, _quoted(n))) for n in node.schema.names))
        return f"SELECT {columns}{keep_time} FROM {{input}}"
    if isinstance(node, Rename):
        old = dict(node.names)
        pairs = ", ".join(f"{quote(old.get(n, n))} AS {quote(n)}" for n in node.schema.names)
        return f"SELECT {pairs}{keep_time} FROM {{input}}"
    if isinstance(node, EventTime):
        return f"SELECT *, {quote(node.column)} AS {TIME} FROM {{input}} WHERE {quote(node.column)} IS NOT NULL"
    assert isinstance(node, Drop)
    return f"SELECT {', '.join(map(quote, node.schema.names))}{keep_time} FROM {{input}}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _columns(columns: Columns) -> str:
    return ", ".join(f"{_expression(sql)} AS {quote(name)}" for name, sql in columns)


def _expression(sql: str) -> str:
    # Braces in a text literal must survive str.format.
    return parse(sql, node="expression").sql("duckdb", identify=True).replace("{", "{{").replace("}", "}}")
