"""Aggregates in two halves: a partial per task, and the merge of partials in Spark's state.

`sum(price * size) / sum(size)` becomes two partial sums, and `sum(p0) / sum(p1)` over them. In a window there is a
partial for every pane: the longest span that lies wholly inside or outside each window.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from sqlglot import exp

from penstock.plan.expressions import is_aggregate, scalar
from penstock.plan.merges import PREFIX, Call, Columns, Partial, Stays, merge, rule
from penstock.plan.portable import why_not
from penstock.plan.stateful import Aggregate
from penstock.plan.syntax import parse_verbatim
from penstock.plan.types import Type, read
from penstock.schema import Schema, quoted
from penstock.windows import Window

MOST_PANES = 1000


@dataclass(frozen=True)
class Halves:
    """An aggregation in two halves: `finals` are result columns over partial columns, `folded` those made by Python."""

    partials: tuple[Partial, ...]
    finals: tuple[tuple[str, str], ...]
    folded: tuple[str, ...] = ()
    pane_us: int | None = None

    def name(self, number: int) -> str:
        """The name of a partial column."""
        return f"{PREFIX}{number}"

    def fold_name(self, result: str) -> str:
        """The name of the column with an aggregator's partial accumulators."""
        return f"{PREFIX}f{self.folded.index(result)}"


def halves(node: Aggregate) -> Halves | str:
    """Split an aggregation, or say why it cannot be."""
    columns = Columns()
    schema = node.input.schema
    try:
        pane_us = _pane(node.window) if node.window else None
        for key in node.keys:
            _portable(quoted(key), schema)
        _check_python(node)
        sql = ((name, what) for name, what in node.aggregates if isinstance(what, str))
        finals = tuple((name, _final(what, schema, columns)) for name, what in sql)
    except Stays as stays:
        return str(stays)
    return Halves(tuple(columns.partials), finals, tuple(node.python), pane_us)


def _pane(window: Window) -> int:
    """Return the length of a pane; the first begins at the window's offset."""
    if window.kind == "session":
        message = "sessions are joined row by row"
        raise Stays(message)
    pane = gcd(window.size_us, window.slide_us)
    if window.size_us // pane > MOST_PANES:
        message = f"{window} is made of {window.size_us // pane} panes, too short to gain by"
        raise Stays(message)
    return pane


def _check_python(node: Aggregate) -> None:
    for name, aggregator in node.python.items():
        if node.window is None:
            message = f"{name} is Python: without a window its accumulator is Spark's state"
            raise Stays(message)
        for sql in aggregator.inputs:
            _portable(sql, node.input.schema)


def _final(what: str, schema: Schema, columns: Columns) -> str:
    """Return a result as Spark SQL over partial columns."""
    tree = exp.Paren(this=parse_verbatim(what, node="aggregate"))
    for call in [one for one in tree.find_all(exp.Anonymous) if is_aggregate(one.name)]:
        outer = call.parent if isinstance(call.parent, exp.Filter) else call
        merged = merge(_call(call, schema), columns)
        outer.replace(parse_verbatim(f"({merged})", node="aggregate"))
    return _text(tree.this)


def _call(call: exp.Anonymous, schema: Schema) -> Call:
    """Take a call apart, if all of it may run natively."""
    name, above = call.name.lower(), call.parent
    rule(name)
    condition = _text(above.expression.this) if isinstance(above, exp.Filter) else None
    if condition:
        _portable(condition, schema)
    given = [one for one in call.expressions if name != "count" or not isinstance(one, exp.Star | exp.Literal)]
    arguments = tuple(map(_text, given))
    return Call(name, arguments, tuple(_portable(one, schema) for one in arguments), condition)


def _portable(sql: str, schema: Schema) -> Type:
    """Return the type of an expression that may run natively."""
    reason = why_not(sql, schema)
    if reason:
        raise Stays(reason)
    return read(scalar(sql, schema, node="aggregate").type)


def _text(tree: exp.Expr) -> str:
    return tree.sql("spark", normalize_functions=False)
