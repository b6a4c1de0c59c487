"""Two-phase aggregates: a partial result per task, and the merge of partials in Spark's state.

`sum(price * size) / sum(size)` becomes two partial sums, and `sum(p0) / sum(p1)` over them. In a window there is a
partial for every pane: the longest span that lies wholly inside or outside each window.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from math import gcd

from sqlglot import exp

from penstock.plan.operators.grouped import Aggregate
from penstock.plan.operators.node import Node
from penstock.plan.operators.partial_aggregates import PREFIX, Call, Columns, NotTwoPhase, Partial, merge, rule
from penstock.plan.sql_expressions.distinct import distinct_call
from penstock.plan.sql_expressions.expression import is_aggregate, scalar
from penstock.plan.sql_expressions.parsing import parse_verbatim
from penstock.plan.sql_expressions.types import Type, read
from penstock.plan.translation import why_not
from penstock.schema import Schema, quoted
from penstock.windows import Window

MOST_PANES = 1000
KindOf = Callable[[str, Schema], Type]


@dataclass(frozen=True)
class TwoPhaseAggregate:
    """An aggregation as partial aggregates and their merge.

    `merges` are over partial columns: what the state holds, in an order of its own, so that results may be added or
    change their order. `finals` are result columns over merges, `folded` those made by Python.
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


def two_phase(node: Aggregate) -> TwoPhaseAggregate | str:
    """Return the two phases of an aggregation, or why it has none."""
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
    except NotTwoPhase as reason:
        return str(reason)
    partials = tuple(columns.partials)
    ordered = sorted(((name, merged) for merged, name in merges.items()), key=lambda one: _held(one[1], partials))
    return TwoPhaseAggregate(partials, tuple(ordered), finals, tuple(node.python), pane_us)


def refusal(node: Aggregate) -> str | None:
    """Return why a window in buckets of keys cannot have these aggregates: its state is partial results."""
    split = two_phase(node)
    return split if isinstance(split, str) else None


def held_columns(node: Node) -> list[str]:
    """Return the columns in the state of a window in buckets."""
    split = two_phases(node)
    return ["rows"] if isinstance(split, str) else [*map(str, split.partials), *split.folded]


@singledispatch
def two_phases(node: Node) -> TwoPhaseAggregate | str:
    """Split what a node computes into a partial result per task and a merge, or say why it cannot be."""
    return f"{node.kind} needs whole rows"


@two_phases.register
def _of_aggregate(node: Aggregate) -> TwoPhaseAggregate | str:
    return two_phase(node)


def _pane(window: Window) -> int:
    """Return the length of a pane; the first begins at the window's offset."""
    if window.kind == "session":
        message = "session windows are merged row by row"
        raise NotTwoPhase(message)
    pane = gcd(window.size_us, window.slide_us)
    if window.size_us // pane > MOST_PANES:
        message = f"{window} is made of {window.size_us // pane} panes, too many for two phases"
        raise NotTwoPhase(message)
    return pane


def _check_python(node: Aggregate) -> None:
    for name, aggregator in node.python.items():
        if node.window is None:
            message = f"{name} is Python: without a window its accumulator is Spark's state"
            raise NotTwoPhase(message)
        for sql in aggregator.inputs:
            _portable(sql, node.input.schema)


def _final(what: str, schema: Schema, columns: Columns, merges: dict[str, str], kind_of: KindOf) -> str:
    """Return a result as Spark SQL over merges, which get names."""
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
    """Return the partials of a merge as text, which implies how they are merged."""
    return " with ".join(str(partials[int(number)]) for number in re.findall(rf"{PREFIX}(\d+)", merged))


def _call(call: exp.Anonymous, schema: Schema, kind_of: KindOf) -> Call:
    """Return the parts of a call, if all of it can run where it must."""
    name, parent = call.name.lower(), call.parent
    rule(name)
    if distinct_call(call):
        message = f"{name}(DISTINCT ...) is a set of values, which Spark's state merges"
        raise NotTwoPhase(message)
    condition = _text(parent.expression.this) if isinstance(parent, exp.Filter) else None
    if condition:
        kind_of(condition, schema)
    given = [one for one in call.expressions if name != "count" or not isinstance(one, exp.Star | exp.Literal)]
    arguments = tuple(map(_text, given))
    return Call(name, arguments, tuple(kind_of(one, schema) for one in arguments), condition)


def _portable(sql: str, schema: Schema) -> Type:
    """Return the type of an expression that may run natively."""
    reason = why_not(sql, schema)
    if reason:
        raise NotTwoPhase(reason)
    return _type(sql, schema)


def _type(sql: str, schema: Schema) -> Type:
    """Return the type of an expression that Spark computes row by row."""
    return read(scalar(sql, schema, node="aggregate").type)


def _text(tree: exp.Expr) -> str:
    return tree.sql("spark", normalize_functions=False)
