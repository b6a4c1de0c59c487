"""Subqueries in expressions: EXISTS and IN as semi and anti joins, values as joins with groups; none runs per row.

A correlated subquery is decorrelated: its conditions `own column = column around` become the keys of the join, and its
groups are made for each of these keys. What cannot be done so is refused.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from penstock.plan.relations import Relation
from penstock.query.parsing import text_of
from penstock.query.relations.context import Context
from penstock.query.relations.existence import existence, existing
from penstock.query.relations.joining import filtered
from penstock.query.relations.membership import contained, containment
from penstock.query.relations.scalar import value_of
from penstock.query.relations.scope import Rows, Scope
from penstock.query.relations.trees import own_parts, queries_in, refuse


def settled(rows: Rows, context: Context) -> Rows:
    """Apply the conditions of WHERE that have subqueries."""
    relation = rows.relation
    for one in rows.with_queries:
        relation = holding(relation, one, rows.scope, context)
    return replace(rows, relation=relation, with_queries=())


def holding(relation: Relation, condition: exp.Expr, scope: Scope, context: Context) -> Relation:
    """Return the rows for which a condition with subqueries holds."""
    bare = condition.unnest()
    negated = isinstance(bare, exp.Not)
    inner = _as_in(bare.this.unnest() if negated else bare)
    if isinstance(inner, exp.Exists):
        return existing(relation, inner.this, scope, context, negated=negated)
    if isinstance(inner, exp.In) and inner.args.get("query"):
        found = contained(relation, inner, scope, context, negated=negated)
        if found is not None:
            return found
    relation, tree = attached(relation, bare, scope, context)
    return filtered(relation, [tree])


def _as_in(tree: exp.Expr) -> exp.Expr:
    """Return `x = ANY (query)` as IN; other quantifiers are refused."""
    quantified = [part for part in own_parts(tree) if isinstance(part, exp.Any | exp.All) and queries_in(part)]
    if not quantified:
        return tree
    if isinstance(tree, exp.EQ) and isinstance(tree.right, exp.Any):
        return exp.In(this=tree.left.copy(), query=tree.right.this.copy())
    refuse(f"{text_of(tree)} is not available", "use IN, NOT IN, or compare with a subquery of min() or max()")


def attached(relation: Relation, tree: exp.Expr, scope: Scope, context: Context) -> tuple[Relation, exp.Expr]:
    """Return the relation with columns for the subqueries of an expression, and the expression over them."""
    whole = exp.Paren(this=tree.copy())
    for part in list(own_parts(whole)):
        if part.parent is None and part is not whole:
            continue
        if isinstance(part, exp.Exists):
            relation, found = existence(relation, part.this, scope, context)
        elif isinstance(part, exp.In) and part.args.get("query"):
            relation, found = containment(relation, part, scope, context)
        elif isinstance(part, exp.Any | exp.All) and queries_in(part):
            refuse(f"{text_of(part.parent or part)} is not available", "use IN, NOT IN, or min() and max()")
        elif isinstance(part, exp.Query) and not isinstance(part.parent, exp.Exists | exp.In):
            relation, found = value_of(relation, part, scope, context)
        else:
            continue
        part.replace(found)
    found_tree: exp.Expr = whole.this
    return relation, found_tree
