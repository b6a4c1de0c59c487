"""IN and NOT IN: semi and anti joins; or, where nulls decide or OR stands around them, a column."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.plan.relations import Aggregate, Join, Relation
from penstock.plan.relations.joins import Pairs
from penstock.query.parsing import body_of, text_of
from penstock.query.relations.context import Context, extended, projected
from penstock.query.relations.correlation import correlated, is_grouped, refuse_residual, subquery
from penstock.query.relations.existence import marked
from penstock.query.relations.keys import equality, with_keys
from penstock.query.relations.scope import Rows, Scope
from penstock.query.relations.trees import aggregates_in, condition_text, final_column, queries_in, refuse
from penstock.schema import quoted


def contained(outer: Relation, tree: exp.In, scope: Scope, context: Context, *, negated: bool) -> Relation | None:
    """Return the rows that IN holds for; None if nulls decide, so that its value is needed."""
    outer, inner, on, residual, nullable = _members(outer, tree, scope, context)
    if not negated:
        return Join(outer, inner, on, "semi", condition_text(residual))
    return None if nullable else Join(outer, inner, on, "anti", condition_text(residual))


def containment(outer: Relation, tree: exp.In, scope: Scope, context: Context) -> tuple[Relation, exp.Expr]:
    """Return IN as a column: true, false, or null where only a null stands in the way of false."""
    before = outer
    outer, inner, on, residual, nullable = _members(before, tree, scope, context)
    if residual:
        refuse_residual(residual, "NOT IN, or IN inside of OR or CASE")
    outer, mark = marked(outer, inner, on, context)
    if not nullable:
        return outer, exp.Paren(this=mark)
    if isinstance(tree.this.unnest(), exp.Tuple):
        hint = "use NOT EXISTS, or columns that are NOT NULL"
        refuse(f"NOT IN of several columns that can be null: {text_of(tree.this)}", hint)
    theirs, value = on[-1][1], tree.this
    keys = tuple(right for _, right in on[:-1])
    rows, known = context.internal("rows"), context.internal("known")
    counts: Relation = Aggregate(inner, keys, ((rows, "count(*)"), (known, f"count({theirs})")))
    renamed = {key: context.internal("key") for key in keys}
    some, null = context.internal("some"), context.internal("has_null")
    columns = [
        *((new, quoted(old)) for old, new in renamed.items()),
        (some, f"{rows} > 0"),
        (null, f"{rows} > {known}"),
    ]
    flags = projected(counts, columns)
    outer = Join(outer, flags, tuple((left, renamed[right]) for left, right in on[:-1]), "left" if keys else "inner")
    none = exp.Not(this=exp.Anonymous(this="coalesce", expressions=[final_column(some), exp.false()]))
    unknown = exp.Or(
        this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()), expression=final_column(null)
    )
    return outer, exp.Case(
        ifs=[
            exp.If(this=mark, true=exp.true()),
            exp.If(this=none, true=exp.false()),
            exp.If(this=unknown, true=exp.Cast(this=exp.Null(), to=exp.DataType.build("boolean"))),
        ],
        default=exp.false(),
    )


def _members(
    outer: Relation, tree: exp.In, scope: Scope, context: Context
) -> tuple[Relation, Relation, Pairs, list[exp.Expr], bool]:
    """Return both sides of IN, the keys of their join (the compared values last), the rest of the conditions."""
    select, context = subquery(tree.args["query"], context)
    around: Pairs = ()
    residual: list[exp.Expr] = []
    if not isinstance(select, exp.Select):
        inner = context.query(select)
        items = [*inner.schema.names]
    else:
        rows = context.rows(select, scope)
        outer, rows, around, residual = correlated(outer, rows, context)
        inner, items = _items_of(select, rows, around, residual, tree, context)
    values = tree.this.unnest().expressions if isinstance(tree.this.unnest(), exp.Tuple) else [tree.this]
    if len(values) != len(items):
        refuse(f"{text_of(tree.this)} IN a subquery of {len(items)} columns", f"select {len(values)} of them")
    named = {item: context.internal("member") for item in items}
    columns = [(named.get(name, name), quoted(name)) for name in inner.schema.names]
    inner = projected(inner, columns)
    equalities = [
        equality(exp.EQ(this=value.copy(), expression=final_column(named[item])), outer.schema, inner.schema)
        for value, item in zip(values, items, strict=True)
    ]
    if any(one is None for one in equalities):
        types = ", ".join(inner.schema.types[named[item]] for item in items)
        refuse(f"{text_of(tree.this)} cannot be compared with the {types} of the subquery", "cast one of them")
    outer, inner, on = with_keys(outer, inner, [one for one in equalities if one is not None], context)
    nullable = any(outer.schema.field(a).nullable or inner.schema.field(b).nullable for a, b in on)
    return outer, inner, (*around, *on), residual, nullable


def _items_of(
    select: exp.Select, rows: Rows, around: Pairs, residual: Sequence[exp.Expr], tree: exp.In, context: Context
) -> tuple[Relation, list[str]]:
    """Return the rows of a subquery of IN with the keys around, and the names of its own columns."""
    plain = not is_grouped(select) and not any(item.is_star or queries_in(item) for item in select.expressions)
    if plain:
        bodies = [rows.scope.resolved(body_of(item)) for item in select.expressions]
        made = {context.internal("item"): text_of(body) for body in bodies}
        return extended(rows.relation, [*made.items()]), [*made]
    refuse_residual(residual, "IN with groups or LIMIT")
    if around and not select.args.get("group") and any(aggregates_in(item) for item in select.expressions):
        refuse("a correlated IN of an aggregate", f"compare with it: {text_of(tree.this)} = (SELECT ...)")
    keys = tuple(dict.fromkeys(right for _, right in around))
    inner = context.select(select, rows, keys)
    return inner, [name for name in inner.schema.names if name not in keys]
