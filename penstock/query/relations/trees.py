"""Trees of SQL without what is inside of their subqueries, and the conjuncts of conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NoReturn

from sqlglot import exp

from penstock.errors import BadExpression
from penstock.plan.sql_expressions.functions import is_aggregate
from penstock.query.parsing import text_of

NODE = "sql_view"
# Metadata of a column that has its final name already.
FINAL = "penstock_final"


def refuse(message: str, hint: str) -> NoReturn:
    """Raise the error of a clause that a view cannot have."""
    raise BadExpression(message, node=NODE, hint=hint)


def own_parts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a tree, outermost first; a subquery as one node."""
    yield tree
    if not isinstance(tree, exp.Query):
        for part in tree.iter_expressions():
            yield from own_parts(part)


def columns_of(tree: exp.Expr) -> set[str]:
    """Return the names of the columns of a tree, whose columns are final."""
    return {part.parts[0].name for part in own_parts(tree) if isinstance(part, exp.Column)}


def queries_in(tree: exp.Expr) -> list[exp.Expr]:
    """Return the subqueries of an expression."""
    return [part for part in own_parts(tree) if isinstance(part, exp.Query)]


def final_column(name: str) -> exp.Column:
    """Return a column of the relation by its own name."""
    column = exp.column(exp.to_identifier(name))
    column.meta[FINAL] = True
    return column


def aggregates_in(tree: exp.Expr) -> list[exp.Expr]:
    """Return the aggregates of a tree, outermost first, each with its FILTER and WITHIN GROUP; not those of OVER."""
    found = []
    for part in own_parts(tree):
        if isinstance(part, exp.Anonymous) and is_aggregate(part.name):
            whole = _whole(part)
            if not isinstance(whole.parent, exp.Window):
                found.append(whole)
    return found


def _whole(call: exp.Expr) -> exp.Expr:
    while isinstance(call.parent, exp.Filter | exp.WithinGroup) and call.parent.this is call:
        call = call.parent
    return call


def plain_bounds(tree: exp.Expr) -> exp.Expr:
    """Return a query in which BETWEEN has literals and columns only; other bounds are compared by >= and <=.

    That is what BETWEEN means, and such comparisons can be evaluated whatever the bounds are.
    """
    whole = exp.Paren(this=tree.copy())
    for part in list(whole.find_all(exp.Between)):
        bounds = [part.args["low"], part.args["high"]]
        if part.args.get("symmetric") or all(isinstance(one, exp.Literal | exp.Column | exp.Cast) for one in bounds):
            continue
        low = exp.GTE(this=part.this.copy(), expression=bounds[0].copy())
        high = exp.LTE(this=part.this.copy(), expression=bounds[1].copy())
        part.replace(exp.Paren(this=exp.And(this=low, expression=high)))
    found: exp.Expr = whole.this
    return found


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that a condition is made of by AND; those that all sides of an OR have are taken out of it.

    >>> from sqlglot import parse_one
    >>> [part.sql() for part in conjuncts(parse_one("x > 1 AND ((a = b AND c) OR (a = b AND d))"))]
    ['x > 1', 'a = b', 'c OR d']
    """
    bare = tree.unnest()
    if isinstance(bare, exp.And):
        return conjuncts(bare.left) + conjuncts(bare.right)
    return _factored(bare) if isinstance(bare, exp.Or) else [bare]


def all_of(trees: Sequence[exp.Expr]) -> exp.Expr:
    """Return the conjunction of one or more conditions, in their order."""
    return reduce(lambda left, right: exp.And(this=left, expression=right), [_wrapped(one) for one in trees])


def condition_text(trees: Sequence[exp.Expr]) -> str | None:
    """Return the conjunction as SQL; None of none."""
    return text_of(all_of(trees)) if trees else None


def _factored(tree: exp.Or) -> list[exp.Expr]:
    sides = [conjuncts(side) for side in _disjuncts(tree)]
    texts = [[text_of(one) for one in side] for side in sides]
    common = [one for one, text in zip(sides[0], texts[0], strict=True) if all(text in other for other in texts)]
    if not common:
        return [tree]
    shared = {text_of(one) for one in common}
    rests = [
        [one for one, text in zip(side, names, strict=True) if text not in shared]
        for side, names in zip(sides, texts, strict=True)
    ]
    if not all(rests):
        return common
    anyone = reduce(lambda a, b: exp.Or(this=a, expression=b), [_wrapped(all_of(rest)) for rest in rests])
    return [*common, anyone]


def _disjuncts(tree: exp.Expr) -> list[exp.Expr]:
    bare = tree.unnest()
    return _disjuncts(bare.left) + _disjuncts(bare.right) if isinstance(bare, exp.Or) else [bare]


def _wrapped(tree: exp.Expr) -> exp.Expr:
    one = tree.copy()
    return exp.Paren(this=one) if isinstance(one, exp.Or | exp.And | exp.Not) else one
