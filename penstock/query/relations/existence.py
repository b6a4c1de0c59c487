"""EXISTS: a semi join, an anti join, or a column where OR or CASE stands around it."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.relations import Aggregate, Distinct, Filter, Join, Relation
from penstock.plan.relations.joins import How, Pairs
from penstock.query.relations.context import Context, extended, projected
from penstock.query.relations.correlation import GROUPED, correlated, refuse_residual, subquery
from penstock.query.relations.scope import Scope
from penstock.query.relations.trees import aggregates_in, columns_of, condition_text, final_column, refuse
from penstock.schema import quoted


def existing(outer: Relation, query: exp.Expr, scope: Scope, context: Context, *, negated: bool) -> Relation:
    """Return the rows for which EXISTS holds, or does not."""
    how: How = "anti" if negated else "semi"
    select, context = subquery(query, context)
    if _is_always(select):
        return Filter(outer, "1 = 0") if negated else outer
    outer, inner, on, residual = _matches(outer, select, scope, context)
    return Join(outer, inner, on, how, condition_text(residual))


def existence(outer: Relation, query: exp.Expr, scope: Scope, context: Context) -> tuple[Relation, exp.Expr]:
    """Return EXISTS as a column: of a left join with the different keys."""
    select, context = subquery(query, context)
    if _is_always(select):
        return outer, exp.true()
    outer, inner, on, residual = _matches(outer, select, scope, context)
    if residual:
        refuse_residual(residual, "EXISTS inside of OR or CASE")
    return marked(outer, inner, on, context)


def marked(outer: Relation, inner: Relation, on: Pairs, context: Context) -> tuple[Relation, exp.Expr]:
    """Return the outer rows with a column that is not null where the inner rows have their keys."""
    mark = context.internal("mark")
    if not on:
        counted: Relation = Aggregate(inner, (), ((context.internal("rows"), "count(*)"),))
        counted = projected(counted, [(mark, f"{counted.schema.names[0]} > 0")])
        return Join(outer, counted, (), "inner"), final_column(mark)
    keys = Distinct(projected(inner, [(name, quoted(name)) for name in dict.fromkeys(right for _, right in on)]))
    found = Join(outer, extended(keys, [(mark, "TRUE")]), on, "left")
    return found, exp.Not(this=exp.Is(this=final_column(mark), expression=exp.Null()))


def _matches(
    outer: Relation, select: exp.Expr, scope: Scope, context: Context
) -> tuple[Relation, Relation, Pairs, list[exp.Expr]]:
    """Return both sides of EXISTS, the keys of their join, and the conditions that are no keys."""
    if not isinstance(select, exp.Select):
        inner = context.query(select)
        return outer, projected(inner, [(context.internal("key"), quoted(inner.schema.names[0]))]), (), []
    rows = context.rows(select, scope)
    outer, rows, on, residual = correlated(outer, rows, context)
    keys = tuple(dict.fromkeys(right for _, right in on))
    if select.args.get("limit") and select.args["limit"].expression.name == "0":
        refuse("LIMIT 0 is not available", "leave the subquery out")
    if any(select.args.get(part) for part in ("having", "offset", "qualify")):
        refuse_residual(residual, "EXISTS with HAVING, OFFSET or QUALIFY")
        if on and select.args.get("having") and not select.args.get("group"):
            refuse(
                "HAVING without GROUP BY in a correlated EXISTS", "compare with a subquery: (SELECT count(*) ...) > 0"
            )
        inner = context.select(select, rows, keys)
    else:
        inner = rows.relation
    needed = {*keys, *(name for one in residual for name in columns_of(one))}
    names = [name for name in inner.schema.names if name in needed]
    columns = [(name, quoted(name)) for name in names] or [(context.internal("key"), quoted(inner.schema.names[0]))]
    return outer, projected(inner, columns), on, residual


def _is_always(select: exp.Expr) -> bool:
    """Whether there is a row whatever the input: an aggregate of all rows."""
    plain = isinstance(select, exp.Select) and not any(select.args.get(part) for part in GROUPED)
    return plain and any(aggregates_in(item) for item in select.expressions)
