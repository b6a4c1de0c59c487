"""Aggregates in two halves: a partial per task, and the merge of partials in Spark's state.

`sum(price * size) / sum(size)` becomes two partial sums, and `sum(p0) / sum(p1)` over them. In a window there is a
partial for every pane: the longest span that lies wholly inside or outside each window.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from sqlglot import exp

from penstock.plan.distinct import distinct_call
from penstock.plan.expressions import is_aggregate, scalar
from penstock.plan.merges import PREFIX, Call, Columns, Partial, Stays, merge, rule
from penstock.plan.portable import why_not
from penstock.plan.stateful import Aggregate, Grouped
from penstock.plan.syntax import parse_verbatim
from penstock.plan.types import Type, read
from penstock.schema import Schema, quoted
from penstock.windows import Window

MOST_PANES = 1000
KindOf = Callable[[str, Schema], Type]


@dataclass(frozen=True)
class Halves:
    """An aggregation in two halves.

    `merges` are over partial columns: what the state holds, in an order of its own, so that results may be added or
    change their places. `finals` are result columns over merges, `folded` those made by Python.
    """

    partials: tuple[Partial, ...]
    merges: tuple[tuple[str, str], ...]
    finals: tuple[tuple[str, str], ...]
    folded: tuple[str, ...] = ()
    pane_us: int | None = None

    def name(self, number: int) -> str:
        """The name of a partial column."""
        return f"{PREFIX}{number}"

    @property
    def held(self) -> tuple[str, ...]:
        """What the state holds, in its order."""
        return tuple(_held(merged, self.partials) for _, merged in self.merges)

    def fold_name(self, result: str) -> str:
        """The name of the column with an aggregator's partial accumulators."""
        return f"{PREFIX}f{self.folded.index(result)}"


def halves(node: Aggregate) -> Halves | str:
    """Split an aggregation, or say why it cannot be."""
    columns = Columns()
    merges: dict[str, str] = {}
    schema = node.input.schema
    try:
        pane_us = _pane(node.window) if node.window and not node.bucketed else None
        if not node.bucketed:
            for key in node.keys:
                _portable(quoted(key), schema)
            _check_python(node)
        sql = ((name, what) for name, what in node.aggregates if isinstance(what, str))
        kind_of = _type if node.bucketed else _portable
        finals = tuple((name, _final(what, schema, columns, merges, kind_of)) for name, what in sql)
    except Stays as stays:
        return str(stays)
    partials = tuple(columns.partials)
    ordered = sorted(((name, merged) for merged, name in merges.items()), key=lambda one: _held(one[1], partials))
    return Halves(partials, tuple(ordered), finals, tuple(node.python), pane_us)


def refusal(node: Aggregate) -> str | None:
    """Say why a window that buckets of keys hold cannot have these aggregates; their state is partial results."""
    split = halves(node)
    return split if isinstance(split, str) else None


def held_columns(node: Grouped) -> list[str]:
    """Return what the state of a window in buckets holds, in the user's words."""
    split = halves(node) if isinstance(node, Aggregate) else ""
    return ["rows"] if isinstance(split, str) else [*map(str, split.partials), *split.folded]


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


def _final(what: str, schema: Schema, columns: Columns, merges: dict[str, str], kind_of: KindOf) -> str:
    """Return a result as Spark SQL over merges, which are noted with their names."""
    tree = exp.Paren(this=parse_verbatim(what, node="aggregate"))
    for call in _aggregates(tree):
        outer = call.parent if isinstance(call.parent, exp.Filter) else call
        merged = merge(_call(call, schema, kind_of), columns)
        outer.replace(parse_verbatim(f"({merged})", node="aggregate"))
    for call in _aggregates(tree):
        name = merges.setdefault(_text(call), f"{PREFIX}m{len(merges)}")
        call.replace(exp.column(name))
    return _text(tree.this)


def _aggregates(tree: exp.Expr) -> list[exp.Anonymous]:
    return [one for one in tree.find_all(exp.Anonymous) if is_aggregate(one.name)]


def _held(merged: str, partials: tuple[Partial, ...]) -> str:
    """Return the partials of a merge, spelled out; they say how they are merged."""
    return " with ".join(str(partials[int(number)]) for number in re.findall(rf"{PREFIX}(\d+)", merged))


def _call(call: exp.Anonymous, schema: Schema, kind_of: KindOf) -> Call:
    """Take a call apart, if all of it may run where it must."""
    name, above = call.name.lower(), call.parent
    rule(name)
    if distinct_call(call):
        message = f"{name}(DISTINCT ...) is a set of values, which Spark's state merges"
        raise Stays(message)
    condition = _text(above.expression.this) if isinstance(above, exp.Filter) else None
    if condition:
        kind_of(condition, schema)
    given = [one for one in call.expressions if name != "count" or not isinstance(one, exp.Star | exp.Literal)]
    arguments = tuple(map(_text, given))
    return Call(name, arguments, tuple(kind_of(one, schema) for one in arguments), condition)


def _portable(sql: str, schema: Schema) -> Type:
    """Return the type of an expression that may run natively."""
    reason = why_not(sql, schema)
    if reason:
        raise Stays(reason)
    return _type(sql, schema)


def _type(sql: str, schema: Schema) -> Type:
    """Return the type of an expression that Spark computes row by row."""
    return read(scalar(sql, schema, node="aggregate").type)


def _text(tree: exp.Expr) -> str:
    return tree.sql("spark", normalize_functions=False)
