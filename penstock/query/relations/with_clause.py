"""WITH: tables of a query's own."""

from __future__ import annotations

from sqlglot import exp

from penstock.query.relations.context import Context
from penstock.query.relations.trees import refuse


def with_tables(tree: exp.Expr, context: Context) -> Context:
    """Return the tables that a query can read: its own by WITH shadow those around it."""
    clause = tree.args.get("with_") or tree.args.get("with")
    if clause is None:
        return context
    if clause.args.get("recursive"):
        refuse("WITH RECURSIVE is not available in sql_view()", "a view cannot read its own result")
    for table in clause.expressions:
        context = context.adding(table)
    return context
