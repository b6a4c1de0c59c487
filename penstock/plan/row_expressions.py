"""The SQL that each node evaluates on every row that comes in, and which of it can fail on a row."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from penstock.plan.distinct import distinct_call
from penstock.plan.evaluation import text_of
from penstock.plan.explode import Explode
from penstock.plan.expressions import is_aggregate
from penstock.plan.fallible import can_fail
from penstock.plan.graph import Graph
from penstock.plan.node import Node
from penstock.plan.nodes import Filter, Select, WithColumns, Write
from penstock.plan.splitting import choice_of
from penstock.plan.stateful import Aggregate, Top
from penstock.plan.syntax import parse_verbatim


def row_expressions(node: Node) -> tuple[str, ...]:
    """Return the expressions of a node over its input rows; of an aggregate what stands inside its calls."""
    match node:
        case Filter():
            return (node.condition,)
        case Explode():
            return (node.argument,)
        case Select() | WithColumns():
            return tuple(sql for _, sql in node.columns)
        case Aggregate():
            return tuple(dict.fromkeys(_aggregate_inputs(node)))
        case Top():
            return (node.by,)
        case Write():
            return tuple(sql for sql in (node.sink.row_key, node.sink.row_removed) if sql is not None)
    return ()


def fallible(node: Node) -> tuple[str, ...]:
    """Return the expressions of a node that can fail on a row."""
    if not node.inputs:
        return ()
    schema = node.inputs[0].schema
    return tuple(sql for sql in row_expressions(node) if can_fail(sql, schema))


def rejects_here(node: Node, graph: Graph) -> bool:
    """Say whether a row that fails at this node is rejected by it; of the branches of one split only the first does.

    The others leave the row out, as a row of another branch: so it is rejected and counted once.
    """
    chosen = choice_of(node)
    if chosen is None:
        return True
    same = (one for one in graph.nodes if one.inputs == node.inputs and choice_of(one) == chosen)
    return next(same) == node


def _aggregate_inputs(node: Aggregate) -> Iterator[str]:
    for _, what in node.aggregates:
        if not isinstance(what, str):
            yield from what.inputs
            continue
        tree = exp.Paren(this=parse_verbatim(what, node="aggregate"))
        for call in tree.find_all(exp.Anonymous):
            if is_aggregate(call.name):
                yield from _call_inputs(call)


def _call_inputs(call: exp.Anonymous) -> Iterator[str]:
    """Yield the condition of a call, and its arguments where the condition holds."""
    clause = distinct_call(call)
    given = list(clause.expressions if clause else call.expressions)
    above = call.parent
    if isinstance(above, exp.WithinGroup):
        given += [one.this for one in above.expression.expressions]
        above = above.parent
    condition = text_of(above.expression.this) if isinstance(above, exp.Filter) else None
    if condition is not None:
        yield condition
    for one in given:
        if not isinstance(one, exp.Star | exp.Literal | exp.Column):
            yield text_of(one) if condition is None else f"CASE WHEN {condition} THEN {text_of(one)} END"
