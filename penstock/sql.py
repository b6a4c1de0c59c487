"""SQL over streams: a query becomes the same nodes that the fluent calls make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.errors import BadExpression, BadValue, MissingEventTime, choices
from penstock.plan.expressions import aggregate_calls
from penstock.schema import quoted
from penstock.stream import Stream
from penstock.windows import Window, session, sliding, tumbling

_REFUSED = {
    "joins": "JOIN",
    "distinct": "SELECT DISTINCT",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "windows": "WINDOW",
    "laterals": "LATERAL VIEW",
    "with_": "WITH",
}
_WINDOW_COLUMNS = {"start": "window_start", "end": "window_end"}


def sql(query: str, /, **inputs: Stream) -> Stream:
    """Query streams with Spark SQL; each table name is a keyword.

    >>> import penstock as ps
    >>> trades = ps.datagen("trades", rows=10)
    >>> sql("SELECT symbol, price * size AS value FROM trades WHERE size > 0", trades=trades).schema
    Schema('symbol string, value double')

    A group by `window(ts, '60 seconds')` or `session_window(ts, '10 minutes')` makes windows; `window.start` and
    `window.end` are their bounds. Several sources go together by UNION ALL.
    """
    for name, stream in inputs.items():
        if not isinstance(stream, Stream):
            message = f"{name} is {stream!r}, not a stream"
            raise BadValue(message, node="sql", hint="pass streams by their table name: trades=stream")
    try:
        tree = sqlglot.parse_one(query, dialect="spark")
    except SqlglotError as error:
        message = f"this is not Spark SQL: {str(error).splitlines()[0]}"
        raise BadExpression(message, node="sql", hint="write one SELECT ... FROM name") from error
    return _query(tree, inputs)


def _query(tree: exp.Expr, inputs: dict[str, Stream]) -> Stream:
    if isinstance(tree, exp.Subquery):
        return _query(tree.this, inputs)
    if isinstance(tree, exp.Union) and not tree.args.get("distinct"):
        return _query(tree.left, inputs).union(_query(tree.right, inputs))
    if not isinstance(tree, exp.Select):
        message = f"{tree.key.upper()} cannot be streamed"
        raise BadExpression(message, node="sql", hint="write SELECT ... FROM name, or put two together by UNION ALL")
    return _select(tree, inputs)


def _select(tree: exp.Select, inputs: dict[str, Stream]) -> Stream:
    for part, words in _REFUSED.items():
        if tree.args.get(part):
            message = f"{words} is not available in sql() so far"
            raise BadExpression(message, node="sql", hint="SELECT, FROM, WHERE, GROUP BY, HAVING and UNION ALL are")
    stream = _from(tree, inputs)
    _unqualify(tree)
    if where := tree.args.get("where"):
        stream = stream.filter(where.this.sql("spark"))
    if tree.args.get("group") or aggregate_calls(tree):
        return _grouped(tree, stream)
    return stream.select(*_columns(tree, stream))


def _from(tree: exp.Select, inputs: dict[str, Stream]) -> Stream:
    source = tree.args.get("from_") or tree.args.get("from")
    table = source.this if source else None
    if isinstance(table, exp.Subquery):
        return _query(table.this, inputs)
    if not isinstance(table, exp.Table):
        message = "the query reads from nothing"
        raise BadExpression(message, node="sql", hint=choices("tables", inputs))
    if table.name not in inputs:
        message = f"unknown table '{table.name}'"
        raise BadExpression(message, node="sql", hint=choices("tables", inputs, table.name))
    return inputs[table.name]


def _unqualify(tree: exp.Select) -> None:
    """Take the table's name off columns: there is one table."""
    source = tree.args.get("from_") or tree.args.get("from")
    name = source.this.alias_or_name if source else ""
    for column in list(tree.find_all(exp.Column)):
        if name and column.table == name:
            column.set("table", None)


def _columns(tree: exp.Select, stream: Stream) -> list[Any]:
    named: list[Any] = []
    for item in tree.expressions:
        if isinstance(item, exp.Star):
            named.append({name: quoted(name) for name in stream.schema.names})
        else:
            named.append({_name(item): _bare(item).sql("spark")})
    return named


@dataclass
class _Group:
    """The parts of a GROUP BY: keys by name, and perhaps a window."""

    keys: dict[str, str] = field(default_factory=dict)
    window: Window | None = None


def _grouped(tree: exp.Select, stream: Stream) -> Stream:
    group = _group(tree, stream)
    aggregates: dict[str, str] = {}
    final: dict[str, str] = {}
    for item in tree.expressions:
        body, name = _bare(item), _name(item)
        if aggregate_calls(body):
            aggregates[name] = body.sql("spark")
            final[name] = quoted(name)
        else:
            final[name] = _key(body, group)
    having = tree.args.get("having")
    condition = _having(having.this, aggregates, group) if having else None
    plain = [name for name, key in group.keys.items() if name == key]
    keyed: Any = stream.key_by(*plain, **_computed(group)) if group.keys else stream
    result: Stream = (keyed.window(group.window) if group.window else keyed).aggregate(aggregates)
    result = result.filter(condition) if condition else result
    return result if list(final) == list(result.schema.names) else result.select(final)


def _computed(group: _Group) -> dict[str, str]:
    return {name: sql for name, sql in group.keys.items() if name != sql}


def _group(tree: exp.Select, stream: Stream) -> _Group:
    group = _Group()
    names = {_bare(item).sql("spark"): _name(item) for item in tree.expressions if isinstance(item, exp.Alias)}
    parts = tree.args["group"].expressions if tree.args.get("group") else []
    for part in parts:
        if _is_window(part):
            group.window = _window(part, stream)
        else:
            text = part.sql("spark")
            group.keys[text if isinstance(part, exp.Column) else names.get(text, text)] = text
    return group


def _is_window(part: exp.Expr) -> bool:
    return isinstance(part, exp.Func) and _function(part) in ("window", "session_window")


def _function(part: exp.Expr) -> str:
    return (part.name if isinstance(part, exp.Anonymous) else part.sql_name()).lower()  # type: ignore[attr-defined]


def _window(part: exp.Expr, stream: Stream) -> Window:
    if not stream.node.event_time:
        message = f"{part.sql('spark')} needs an event time"
        raise MissingEventTime(message, node="sql", hint='call .event_time("ts", max_delay="5s") on the stream first')
    given = part.expressions if isinstance(part, exp.Anonymous) else list(part.iter_expressions())
    spans = [_span(one) for one in given[1:]]
    if _function(part) == "session_window":
        return session(*spans)
    if len(spans) == 1:
        return tumbling(spans[0])
    return sliding(spans[0], spans[1], offset=spans[2] if len(spans) > 2 else "0s")


def _span(tree: exp.Expr) -> str:
    """Turn Spark's '60 seconds' into Penstock's "60s"."""
    units = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d"}
    words = tree.name.lower().split()
    if len(words) == 2 and words[1].rstrip("s") in units:
        return f"{words[0]}{units[words[1].rstrip('s')]}"
    return tree.name


def _key(body: exp.Expr, group: _Group) -> str:
    """Return the result column of an item that is not an aggregate."""
    if isinstance(body, exp.Column) and body.table in ("window", "session_window"):
        return _WINDOW_COLUMNS[body.name]
    text = body.sql("spark")
    for name, key in group.keys.items():
        if text in (key, name):
            return quoted(name)
    message = f"{text} is neither an aggregate nor in GROUP BY"
    known = [*group.keys, *(["window.start", "window.end"] if group.window else [])]
    raise BadExpression(message, node="sql", hint=choices("group by", known))


def _having(tree: exp.Expr, aggregates: dict[str, str], group: _Group) -> str:
    """Give aggregates that only HAVING uses a column of their own."""
    tree = tree.copy()
    for call in aggregate_calls(tree):
        text = call.sql("spark")
        name = next((n for n, sql in aggregates.items() if sql == text), f"having_{len(aggregates)}")
        aggregates[name] = text
        call.replace(exp.column(name))
    return tree.sql("spark")


def _bare(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias) else item


def _name(item: exp.Expr) -> str:
    if isinstance(item, exp.Column) and item.table in ("window", "session_window"):
        return _WINDOW_COLUMNS.get(item.name, item.name)
    return item.alias_or_name or item.sql("spark")
