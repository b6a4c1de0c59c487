"""The aggregate calls of a node in the order in which Spark's state holds them, for those who read it later."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from penstock.aggregates import Aggregator
from penstock.errors import PipelineError
from penstock.plan.distinct import without_distinct
from penstock.plan.expressions import is_aggregate, scalar
from penstock.plan.syntax import parse_verbatim
from penstock.schema import Schema


def state_calls(aggregates: Iterable[tuple[str, str | Aggregator]], schema: Schema) -> list[list[str]]:
    """Return each call once: the column it is shown in, its function, and the type of what it takes; none if unknown.

    >>> state_calls([("n", "count(DISTINCT a)"), ("s", "sum(a) / count(*)")], Schema("a int"))
    [['n', 'collect_set', 'int'], ['sum(a)', 'sum', 'int'], ['count(*)', 'count', '']]
    """
    found: dict[str, list[str]] = {}
    for name, what in aggregates:
        if not isinstance(what, str):
            return []
        tree = exp.Paren(this=parse_verbatim(without_distinct(what), node="state"))
        calls = [one for one in tree.find_all(exp.Anonymous, bfs=False) if is_aggregate(one.name)]
        for call in calls:
            text = _text(_whole(call))
            label = name if len(calls) == 1 and name not in (one[0] for one in found.values()) else text
            found.setdefault(text, [label, call.name.lower(), _type(call, schema)])
    return list(found.values())


def _whole(call: exp.Expr) -> exp.Expr:
    """Return a call with its FILTER and WITHIN GROUP."""
    while isinstance(call.parent, exp.Filter | exp.WithinGroup) and call.parent.this is call:
        call = call.parent
    return call


def _type(call: exp.Anonymous, schema: Schema) -> str:
    given = call.expressions
    if isinstance(call.parent, exp.WithinGroup):
        given = [one.this for one in call.parent.expression.expressions]
    if not given or isinstance(given[0], exp.Star):
        return ""
    try:
        return scalar(_text(given[0]), schema, node="state").type
    except PipelineError:
        return ""


def _text(tree: exp.Expr) -> str:
    return tree.sql("spark", normalize_functions=False)
