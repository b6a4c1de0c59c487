"""Aggregates over groups and windows, as one query of DuckDB."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.native.steps import TIME, quote
from penstock.native.translate import partial_call
from penstock.plan.operators.bounded import BoundedAggregate
from penstock.plan.operators.grouped import Aggregate
from penstock.plan.operators.partial_aggregates import PREFIX
from penstock.plan.operators.two_phase_aggregates import two_phases
from penstock.schema import Field, Schema
from penstock.sql_console.expressions import Expressions, needs_spark
from penstock.windows import Window

_START, _END, _SESSION, _US, _LAST = (f"__penstock_{name}" for name in ("start", "end", "session", "us", "last"))
# Whole windows are added to every time, so that dividing rounds down before 1970 too; it is 73,000 years.
_LONG_AGO_US = 2**61


@dataclass
class _Results:
    """The columns of the inner query, and of the outer one over it."""

    inner: list[str] = field(default_factory=list)
    outer: list[str] = field(default_factory=list)


def aggregated(node: Aggregate, rows: str, expressions: Expressions) -> str:
    """Return a SELECT with one row for each group."""
    results = _Results()
    for number, (name, what) in enumerate(node.aggregates):
        if not isinstance(what, str):
            raise needs_spark(name)
        _add(results, node, number, expressions)
    keys = [quote(name) for name in node.keys]
    source, groups, bounds = (rows, [], []) if node.window is None else _windowed(node.window, keys, rows)
    inner = ", ".join([*keys, *bounds, *results.inner])
    group = f" GROUP BY {', '.join([*keys, *groups])}" if keys or groups else ""
    # A session is grouped by its number, which is not shown.
    return f"SELECT {', '.join([*keys, *_shown(node), *results.outer])} FROM (SELECT {inner} FROM {source}{group})"


def _add(results: _Results, node: Aggregate, number: int, expressions: Expressions) -> None:
    """Add a result: by the partials of the native lane and what is made of them, or by DuckDB's own aggregate."""
    name, what = node.aggregates[number]
    kind = node.schema.types[name]
    # One at a time: one that has no partials must not keep the others from theirs.
    split = two_phases(BoundedAggregate(input=node.input, keys=node.keys, aggregates=((name, what),)))
    if isinstance(split, str):
        results.inner.append(f"{expressions.transpiled(str(what), kind)} AS {quote(name)}")
        results.outer.append(quote(name))
        return
    partials = {split.name(n): partial for n, partial in enumerate(split.partials)}
    own = {merge: f"{PREFIX}{number}_{n}" for n, (merge, _) in enumerate(split.merges)}
    fields = [node.input.schema.field(key) for key in node.keys]
    for merge, text in split.merges:
        # Of one group there is one partial, so that the merge of them is the first that it names.
        partial = partials[re.findall(rf"{PREFIX}\d+", text)[0]]
        results.inner.append(f"{partial_call(partial, node.input.schema).format()} AS {own[merge]}")
        fields.append(Field(own[merge], partial.type))
    final = re.sub(rf"{PREFIX}m\d+", lambda found: own[found[0]], dict(split.finals)[name])
    made = expressions.sql(final, Schema(tuple(fields)), kind)
    results.outer.append(f"{made} AS {quote(name)}")


def _windowed(window: Window, keys: list[str], rows: str) -> tuple[str, list[str], list[str]]:
    """Return the rows with their windows, what more they are grouped by, and the bounds of each group."""
    if window.kind == "session":
        bounds = [f"min({_US}) AS {_START}", f"max({_US}) + {window.size_us} AS {_END}"]
        return _sessions(window, keys, rows), [_SESSION], bounds
    bounds = [_START, f"{_START} + {window.size_us} AS {_END}"]
    return _spans(window, rows), [_START], bounds


def _spans(window: Window, rows: str) -> str:
    slide = window.slide_us
    shift = _LONG_AGO_US // slide * slide - window.offset_us
    last = f"((epoch_us({TIME}) + {shift}) // {slide}) * {slide} - {shift}"
    if window.kind == "tumbling":
        return f"(SELECT *, {last} AS {_START} FROM {rows})"
    count = -(-window.size_us // slide)
    each = f"SELECT *, {last} - unnest(range({count})) * {slide} AS {_START} FROM {rows}"
    return f"(SELECT * FROM ({each}) WHERE {_START} + {window.size_us} > epoch_us({TIME}))"


def _sessions(window: Window, keys: list[str], rows: str) -> str:
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    over = f"OVER ({by}ORDER BY {_US})"
    timed = f"SELECT *, epoch_us({TIME}) AS {_US} FROM {rows}"
    last = f"SELECT *, lag({_US}) {over} AS {_LAST} FROM ({timed})"
    # Rows exactly a gap apart are in one session.
    apart = f"CASE WHEN {_US} - {_LAST} <= {window.size_us} THEN 0 ELSE 1 END"
    return f"(SELECT *, sum({apart}) {over} AS {_SESSION} FROM ({last}))"


def _shown(node: Aggregate) -> list[str]:
    if node.window is None:
        return []
    bounds = [f"make_timestamptz({_START}) AS window_start", f"make_timestamptz({_END}) AS window_end"]
    # The time of a result is the last instant of its window.
    return [*bounds, *([f"make_timestamptz({_END} - 1) AS {TIME}"] if node.event_time else [])]
