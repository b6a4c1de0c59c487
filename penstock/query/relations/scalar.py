"""Subqueries as values: joins with one row, or with one row for each key of a correlated one."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.relations import Aggregate, Join, Relation
from penstock.plan.relations.joins import Pairs
from penstock.query.parsing import body_of, call_of, text_of
from penstock.query.relations.context import Context, projected
from penstock.query.relations.correlation import GROUPED, correlated, refuse_residual, subquery
from penstock.query.relations.scope import Rows, Scope
from penstock.query.relations.trees import aggregates_in, columns_of, final_column, queries_in, refuse
from penstock.schema import quoted

_ZERO = ("count", "count_if", "regr_count", "approx_count_distinct")


def value_of(outer: Relation, query: exp.Expr, scope: Scope, context: Context) -> tuple[Relation, exp.Expr]:
    """Return a subquery of one column and one row as an expression over further columns."""
    select, context = subquery(query, context)
    if not isinstance(select, exp.Select):
        return _joined_value(outer, context.query(select), (), query, context)
    rows = context.rows(select, scope)
    outer, rows, on, residual = correlated(outer, rows, context)
    refuse_residual(residual, "a subquery of one value")
    plain = not any(select.args.get(part) for part in (*GROUPED, "distinct"))
    if plain and len(select.expressions) == 1 and aggregates_in(select.expressions[0]):
        return _aggregated_value(outer, select, rows, on, context)
    if on and not select.args.get("group") and any(aggregates_in(item) for item in select.expressions):
        hint = "leave DISTINCT, HAVING and LIMIT out: an aggregate is one row, also of no rows"
        refuse(f"a correlated aggregate with further clauses: {text_of(query)}", hint)
    keys = tuple(dict.fromkeys(right for _, right in on))
    return _joined_value(outer, context.select(select, rows, keys), on, query, context)


def _joined_value(
    outer: Relation, inner: Relation, on: Pairs, query: exp.Expr, context: Context
) -> tuple[Relation, exp.Expr]:
    keys = {right for _, right in on}
    items = [name for name in inner.schema.names if name not in keys]
    if len(items) != 1:
        refuse(f"a subquery as a value has {len(items)} columns: {text_of(query)}", "select one column")
    unique = inner.keys_unique
    if unique is None or not {*unique} <= keys:
        hint = "aggregate it, such as max(...), or choose one row: ORDER BY ... LIMIT 1"
        refuse(f"a subquery as a value could have several rows: {text_of(query)}", hint)
    name = context.internal("value")
    inner = projected(inner, [*((key, quoted(key)) for key in sorted(keys)), (name, quoted(items[0]))])
    return Join(outer, inner, on, "left"), final_column(name)


def _aggregated_value(
    outer: Relation, select: exp.Select, rows: Rows, on: Pairs, context: Context
) -> tuple[Relation, exp.Expr]:
    """Return an aggregate for each key; where a key has no rows, a count is 0 and all else is null."""
    item = select.expressions[0]
    whole = exp.Paren(this=rows.scope.resolved(body_of(item)))
    relation, keys = rows.relation, tuple(dict.fromkeys(right for _, right in on))
    calls: dict[str, str] = {}
    for call in aggregates_in(whole):
        if not columns_of(call) <= {*relation.schema.names} or queries_in(call):
            refuse(f"{text_of(call)} uses a column of the query around", "aggregate columns of the subquery only")
        name = calls.setdefault(text_of(call), context.internal("value"))
        call.replace(_or_zero(call, name))
    inner = Aggregate(relation, keys, tuple((name, sql) for sql, name in calls.items()))
    left = {*outer.schema.names}
    if not columns_of(whole) <= left | {*calls.values()}:
        wrong = min(columns_of(whole) - left - {*calls.values()})
        refuse(f"'{wrong}' in {text_of(item)} is neither an aggregate nor a column around", "aggregate it")
    return Join(outer, inner, on, "left" if on else "inner"), whole


def _or_zero(call: exp.Expr, name: str) -> exp.Expr:
    inner = call
    while isinstance(inner, exp.Filter | exp.WithinGroup):
        inner = inner.this
    if call_of(inner) not in _ZERO:
        return final_column(name)
    return exp.Anonymous(this="coalesce", expressions=[final_column(name), exp.Literal.number(0)])
