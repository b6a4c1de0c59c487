"""Subqueries in expressions: EXISTS and IN as semi and anti joins, values as joins with groups; none runs per row.

A correlated subquery is decorrelated: its conditions `own column = column around` become the keys of the join, and its
groups are made for each of these keys. What cannot be done so is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.plan.relations import Aggregate, Distinct, Filter, Join, Relation
from penstock.plan.relations.joins import How, Pairs
from penstock.query.parsing import body_of, call_of, text_of
from penstock.query.relations.context import Context, extended, projected
from penstock.query.relations.from_clause import rows_of
from penstock.query.relations.joining import filtered
from penstock.query.relations.keys import equality, with_keys
from penstock.query.relations.ranks import ranked_item
from penstock.query.relations.scope import Rows, Scope
from penstock.query.relations.trees import (
    aggregates_in,
    columns_of,
    condition_text,
    final_column,
    own_parts,
    queries_in,
    refuse,
)
from penstock.query.relations.with_clause import with_tables
from penstock.schema import quoted

_ZERO = ("count", "count_if", "regr_count", "approx_count_distinct")
_GROUPED = ("group", "having", "limit", "offset", "qualify")


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
        return _existing(relation, inner.this, scope, context, negated=negated)
    if isinstance(inner, exp.In) and inner.args.get("query"):
        found = _contained(relation, inner, scope, context, negated=negated)
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
            relation, found = _existence(relation, part.this, scope, context)
        elif isinstance(part, exp.In) and part.args.get("query"):
            relation, found = _containment(relation, part, scope, context)
        elif isinstance(part, exp.Any | exp.All) and queries_in(part):
            refuse(f"{text_of(part.parent or part)} is not available", "use IN, NOT IN, or min() and max()")
        elif isinstance(part, exp.Query) and not isinstance(part.parent, exp.Exists | exp.In):
            relation, found = _value(relation, part, scope, context)
        else:
            continue
        part.replace(found)
    found_tree: exp.Expr = whole.this
    return relation, found_tree


# EXISTS


def _existing(outer: Relation, query: exp.Expr, scope: Scope, context: Context, *, negated: bool) -> Relation:
    how: How = "anti" if negated else "semi"
    select, context = _select(query, context)
    if _is_always(select):
        return Filter(outer, "1 = 0") if negated else outer
    outer, inner, on, residual = _matches(outer, select, scope, context)
    return Join(outer, inner, on, how, condition_text(residual))


def _existence(outer: Relation, query: exp.Expr, scope: Scope, context: Context) -> tuple[Relation, exp.Expr]:
    """Return EXISTS as a column: of a left join with the different keys."""
    select, context = _select(query, context)
    if _is_always(select):
        return outer, exp.true()
    outer, inner, on, residual = _matches(outer, select, scope, context)
    if residual:
        _refuse_residual(residual, "EXISTS inside of OR or CASE")
    return _marked(outer, inner, on, context)


def _marked(outer: Relation, inner: Relation, on: Pairs, context: Context) -> tuple[Relation, exp.Expr]:
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
    rows = settled(rows_of(select, context, scope), context)
    outer, rows, on, residual = _correlated(outer, rows, context)
    keys = tuple(dict.fromkeys(right for _, right in on))
    if select.args.get("having") or select.args.get("offset"):
        _refuse_residual(residual, "EXISTS with HAVING or OFFSET")
        if on and not select.args.get("group"):
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
    plain = isinstance(select, exp.Select) and not any(select.args.get(part) for part in _GROUPED)
    return plain and any(aggregates_in(item) for item in select.expressions)


# IN


def _contained(outer: Relation, tree: exp.In, scope: Scope, context: Context, *, negated: bool) -> Relation | None:
    """Return the rows that IN holds for; None if nulls decide, so that its value is needed."""
    outer, inner, on, residual, nullable = _members(outer, tree, scope, context)
    if not negated:
        return Join(outer, inner, on, "semi", condition_text(residual))
    return None if nullable else Join(outer, inner, on, "anti", condition_text(residual))


def _containment(outer: Relation, tree: exp.In, scope: Scope, context: Context) -> tuple[Relation, exp.Expr]:
    """Return IN as a column: true, false, or null where only a null stands in the way of false."""
    before = outer
    outer, inner, on, residual, nullable = _members(before, tree, scope, context)
    if residual:
        _refuse_residual(residual, "NOT IN, or IN inside of OR or CASE")
    outer, mark = _marked(outer, inner, on, context)
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
    select, context = _select(tree.args["query"], context)
    around: Pairs = ()
    residual: list[exp.Expr] = []
    if not isinstance(select, exp.Select):
        inner = context.query(select)
        items = [*inner.schema.names]
    else:
        rows = settled(rows_of(select, context, scope), context)
        outer, rows, around, residual = _correlated(outer, rows, context)
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
    plain = not _is_grouped(select) and not any(item.is_star or queries_in(item) for item in select.expressions)
    if plain:
        bodies = [rows.scope.resolved(body_of(item)) for item in select.expressions]
        made = {context.internal("item"): text_of(body) for body in bodies}
        return extended(rows.relation, [*made.items()]), [*made]
    _refuse_residual(residual, "IN with groups or LIMIT")
    if around and not select.args.get("group") and any(aggregates_in(item) for item in select.expressions):
        refuse("a correlated IN of an aggregate", f"compare with it: {text_of(tree.this)} = (SELECT ...)")
    keys = tuple(dict.fromkeys(right for _, right in around))
    inner = context.select(select, rows, keys)
    return inner, [name for name in inner.schema.names if name not in keys]


def _is_grouped(select: exp.Select) -> bool:
    parts = any(select.args.get(part) for part in (*_GROUPED, "order"))
    return parts or ranked_item(select) is not None or any(aggregates_in(item) for item in select.expressions)


# Values


def _value(outer: Relation, query: exp.Expr, scope: Scope, context: Context) -> tuple[Relation, exp.Expr]:
    """Return a subquery of one column and one row as an expression over further columns."""
    select, context = _select(query, context)
    if not isinstance(select, exp.Select):
        return _joined_value(outer, context.query(select), (), query, context)
    rows = settled(rows_of(select, context, scope), context)
    outer, rows, on, residual = _correlated(outer, rows, context)
    _refuse_residual(residual, "a subquery of one value")
    plain = not any(select.args.get(part) for part in (*_GROUPED, "distinct"))
    if plain and len(select.expressions) == 1 and aggregates_in(select.expressions[0]):
        return _aggregated_value(outer, select, rows, on, context)
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


# Correlation


def _correlated(outer: Relation, rows: Rows, context: Context) -> tuple[Relation, Rows, Pairs, list[exp.Expr]]:
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


def _refuse_residual(residual: Sequence[exp.Expr], where: str) -> None:
    if residual:
        hint = "compare by = with an expression of the query around, or write the subquery as a join"
        refuse(f"{where}: the condition {text_of(residual[0])} is not an equality of both queries", hint)


def _select(query: exp.Expr, context: Context) -> tuple[exp.Expr, Context]:
    """Return a subquery without its parentheses, and the tables that it can read."""
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    return query, with_tables(query, context)
