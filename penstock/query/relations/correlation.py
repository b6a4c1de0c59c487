"""Correlated subqueries: which of their conditions are the keys of a join with the query around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.plan.relations import Relation
from penstock.plan.relations.joins import Pairs
from penstock.query.parsing import text_of
from penstock.query.relations.context import Context, extended
from penstock.query.relations.keys import equality, with_keys
from penstock.query.relations.ranks import ranked_item
from penstock.query.relations.scope import Rows
from penstock.query.relations.trees import aggregates_in, columns_of, refuse
from penstock.query.relations.with_clause import with_tables
from penstock.schema import quoted

GROUPED = ("group", "having", "limit", "offset", "qualify")


def correlated(outer: Relation, rows: Rows, context: Context) -> tuple[Relation, Rows, Pairs, list[exp.Expr]]:
    """Return both sides with columns for the keys of their join, these keys, and the conditions that are none."""
    known = {*outer.schema.names, *rows.relation.schema.names}
    for one in rows.correlated:
        if missing := columns_of(one) - known:
            hint = "a subquery can use columns of the query right around it, before GROUP BY takes them away"
            refuse(f"'{min(missing)}' in {text_of(one)} is out of reach", hint)
    found = [(one, equality(one, outer.schema, rows.relation.schema)) for one in rows.correlated]
    equalities = [equal for _, equal in found if equal is not None]
    residual = [one for one, equal in found if equal is None]
    outer, relation, on = with_keys(outer, rows.relation, equalities, context)
    # The result of the subquery may have columns of the same names.
    copies = {right: context.internal("key") for _, right in on if right.casefold() in context.reserved}
    relation = extended(relation, [(new, quoted(old)) for old, new in copies.items()])
    on = tuple((left, copies.get(right, right)) for left, right in on)
    return outer, replace(rows, relation=relation, correlated=()), on, residual


def refuse_residual(residual: Sequence[exp.Expr], where: str) -> None:
    """Refuse conditions that are no equalities, where these are needed."""
    if residual:
        hint = "compare by = with an expression of the query around, or write the subquery as a join"
        refuse(f"{where}: the condition {text_of(residual[0])} is not an equality of both queries", hint)


def subquery(query: exp.Expr, context: Context) -> tuple[exp.Expr, Context]:
    """Return a subquery without its parentheses, and the tables that it can read."""
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    return query, with_tables(query, context)


def is_grouped(select: exp.Select) -> bool:
    """Whether the rows of a SELECT depend on several rows at once."""
    parts = any(select.args.get(part) for part in (*GROUPED, "order"))
    return parts or ranked_item(select) is not None or any(aggregates_in(item) for item in select.expressions)
