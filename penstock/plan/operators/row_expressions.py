"""The SQL that each node evaluates on every row that comes in, and which of it can fail on a row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch

from sqlglot import exp

from penstock.plan.graph import Graph
from penstock.plan.operators.grouped import Aggregate
from penstock.plan.operators.node import Node
from penstock.plan.operators.split import choice_of
from penstock.plan.sql_expressions.distinct import distinct_call
from penstock.plan.sql_expressions.evaluation_order import text_of
from penstock.plan.sql_expressions.expression import is_aggregate
from penstock.plan.sql_expressions.parsing import parse_verbatim
from penstock.plan.translation.fallibility import can_fail


@singledispatch
def row_expressions(node: Node) -> tuple[str, ...]:
    """Return the expressions of a node over its input rows; of an aggregate the arguments of its calls."""
    return node.row_sql


@row_expressions.register
def _of_aggregate(node: Aggregate) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_aggregate_inputs(node)))


def fallible_expressions(node: Node) -> tuple[str, ...]:
    """Return the expressions of a node that can fail on a row."""
    if not node.inputs:
        return ()
    schema = node.inputs[0].schema
    return tuple(sql for sql in row_expressions(node) if can_fail(sql, schema))


def rejects_here(node: Node, graph: Graph) -> bool:
    """Return whether a row that fails at this node is rejected by it; of the branches of one split only the first does.

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
    parent = call.parent
    if isinstance(parent, exp.WithinGroup):
        given += [one.this for one in parent.expression.expressions]
        parent = parent.parent
    condition = text_of(parent.expression.this) if isinstance(parent, exp.Filter) else None
    if condition is not None:
        yield condition
    for one in given:
        if not isinstance(one, exp.Star | exp.Literal | exp.Column):
            yield text_of(one) if condition is None else f"CASE WHEN {condition} THEN {text_of(one)} END"
