"""SELECT: from its rows to its result, clause by clause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.plan.relations import Distinct, Relation
from penstock.query.parsing import WINDOW_CALLS, body_of, call_of, name_of, text_of
from penstock.query.relations.context import Context, Rank, projected
from penstock.query.relations.grouping import Grouped, grouped, refuse_sets
from penstock.query.relations.items import Item, group_keys, items_of, named
from penstock.query.relations.joining import filtered
from penstock.query.relations.ordering import Sorted, limited, sorted_by
from penstock.query.relations.ranks import DONE, is_rank, own_rank, ranked, refuse_windows
from penstock.query.relations.scope import Rows
from penstock.query.relations.subqueries import attached, holding, settled
from penstock.query.relations.trees import aggregates_in, conjuncts, final_column, queries_in, refuse
from penstock.query.relations.windows import assigned, window_call, with_bounds
from penstock.query.windows import window_by
from penstock.schema import quoted

_REFUSED = {
    "sort": ("SORT BY", "a view has no order; ORDER BY ... LIMIT n takes the first rows"),
    "cluster": ("CLUSTER BY", "leave it out"),
    "distribute": ("DISTRIBUTE BY", "leave it out"),
    "windows": ("WINDOW", "write the window into OVER (...)"),
    "pivots": ("PIVOT", "aggregate with FILTER (WHERE ...), one column each"),
    "sample": ("TABLESAMPLE", "a view is a function of all rows"),
    "match": ("MATCH_RECOGNIZE", "write a process function on the stream"),
    "into": ("INTO", "end the view with .to(sink)"),
    "connect": ("CONNECT BY", "a view cannot read its own result"),
    "prewhere": ("PREWHERE", "use WHERE"),
}


def refuse_clauses(tree: exp.Expr) -> None:
    """Refuse clauses that a view cannot have."""
    for part, (words, hint) in _REFUSED.items():
        if tree.args.get(part):
            refuse(f"{words} is not available in sql_view()", hint)


def select_of(select: exp.Select, rows: Rows, context: Context, extra: tuple[str, ...], rank: Rank | None) -> Relation:
    """Return what a SELECT makes of its rows; for each group of the columns `extra`, which the result has too."""
    refuse_clauses(select)
    rows = settled(rows, context)
    select, rows = _windowed(select, rows, context)
    items = items_of(named(select), rows.scope)
    order = sorted_by(select, items, rows.scope)
    relation, items, order = _grouped(select, rows, items, order, extra, context)
    relation, items = _ranked(select, relation, items, extra, rank, context)
    relation, items, order = _with_subqueries(relation, items, order, rows, context)
    return _result(select, relation, items, order, extra, context)


def _windowed(select: exp.Select, rows: Rows, context: Context) -> tuple[exp.Select, Rows]:
    """Give the rows the window of GROUP BY, and let the clauses name its bounds."""
    group = select.args.get("group")
    aliases = {name_of(item): body_of(item) for item in select.expressions}
    windows = {name: body for name, body in aliases.items() if window_call([body]) is not None}
    parts = [windows.get(part.name, part) if isinstance(part, exp.Column) else part for part in _parts(group)]
    call = window_call(parts)
    if call is None:
        for item in select.expressions:
            if call := window_call([item]):
                refuse(f"GROUP BY is missing: {text_of(call)} is the window of a group", f"GROUP BY {text_of(call)}")
        return select, rows
    window = window_by(call)
    others = [part for part in parts if window_call([part]) is None and not _names_window(part)]
    relation, keys = rows.relation, []
    if window.kind == "session":
        items = items_of([pair for pair in named(select) if not _has_window(pair[1])], rows.scope)
        for key in group_keys(others, items, rows.scope):
            if not isinstance(key, exp.Column):
                refuse(f"session_window beside GROUP BY {text_of(key)}", "compute that column in a subquery of FROM")
            keys.append(key.name)
    time = rows.scope.resolved(call.expressions[0])
    relation, start, end = assigned(relation, time, window, context, keys)
    names = {*WINDOW_CALLS, *(name for name, body in aliases.items() if call_of(body) in WINDOW_CALLS)}
    copy = select.copy()
    for part in [*copy.expressions, *(copy.args[key] for key in ("having", "order") if copy.args.get(key))]:
        _replace_inside(part, lambda tree: with_bounds(tree, names, window, start, end), copy)
    keyed = [*others, final_column(start), final_column(end)]
    copy.set("group", exp.Group(expressions=[part.copy() for part in keyed]))
    return copy, replace(rows, relation=relation)


def _replace_inside(part: exp.Expr, change: object, select: exp.Select) -> None:
    assert callable(change)
    if part.arg_key == "expressions" and part.parent is select:
        body, name = body_of(part), name_of(part)
        part.replace(exp.alias_(change(body), exp.to_identifier(name, quoted=True)) if not body.is_star else part)
        return
    for child in list(part.iter_expressions()):
        target = child.this if isinstance(child, exp.Ordered) else child
        target.replace(change(target))


def _has_window(tree: exp.Expr) -> bool:
    return window_call([tree]) is not None or _names_window(tree)


def _names_window(tree: exp.Expr) -> bool:
    return any(column.parts[0].name in WINDOW_CALLS for column in tree.find_all(exp.Column))


def _parts(group: exp.Expr | None) -> list[exp.Expr]:
    return list(group.expressions) if group is not None else []


def _grouped(
    select: exp.Select,
    rows: Rows,
    items: list[Item],
    order: list[Sorted],
    extra: tuple[str, ...],
    context: Context,
) -> tuple[Relation, list[Item], list[Sorted]]:
    """Return the groups, and items and order over them; the rows as they are without a group."""
    refuse_sets(select)
    group, having = select.args.get("group"), select.args.get("having")
    trees = [*(item.body for item in items), *(one.body for one in order)]
    if group is None and having is None and not any(map(aggregates_in, trees)):
        return rows.relation, items, order
    aliases = {item.name: item.body for item in items}
    conditions = [rows.scope.resolved(one, aliases) for one in conjuncts(having.this)] if having else []
    if group is not None and group.args.get("all"):
        keys = [item.body for item in items if not aggregates_in(item.body) and item.body.find(exp.Column)]
    else:
        keys = group_keys(_parts(group), items, rows.scope)
    groups = grouped(rows.relation, keys, [*trees, *conditions], extra, context)
    relation = _having(groups, conditions, rows, context)
    over = [Item(item.name, groups.over(item.body)) for item in items]
    return relation, over, [one._replace(body=groups.over(one.body)) for one in order]


def _having(groups: Grouped, conditions: Sequence[exp.Expr], rows: Rows, context: Context) -> Relation:
    relation = groups.relation
    found = [groups.over(one) for one in conditions]
    relation = filtered(relation, [one for one in found if not queries_in(one)])
    for one in found:
        if queries_in(one):
            relation = holding(relation, one, rows.scope, context)
    return relation


def _ranked(
    select: exp.Select,
    relation: Relation,
    items: list[Item],
    extra: tuple[str, ...],
    rank: Rank | None,
    context: Context,
) -> tuple[Relation, list[Item]]:
    """Return the first rows by the rank among the items; without it where the query around does not show it."""
    own = own_rank(select)
    place = next((number for number, item in enumerate(items) if is_rank(item.body)), None)
    for number, item in enumerate(items):
        if number != place:
            refuse_windows(item.body)
    if place is None:
        return relation, items
    relation, column = ranked(relation, items[place].body.unnest(), own or rank, extra, context)
    if column is None:
        return relation, [*items[:place], *items[place + 1 :]]
    shown = [*items[:place], Item(items[place].name, final_column(column)), *items[place + 1 :]]
    if own is not None:
        aliases = {item.name: item.body for item in shown}
        rest = [one for one in conjuncts(select.args["qualify"].this) if not one.meta.get(DONE)]
        replaced = [_with_aliases(one, aliases) for one in rest]
        relation = filtered(relation, replaced)
    return relation, shown


def _with_aliases(tree: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
    whole = exp.Paren(this=tree.copy())
    for column in list(whole.find_all(exp.Column)):
        if column.name not in aliases:
            refuse(f"QUALIFY: unknown column '{column.name}'", "use the names of the items of SELECT")
        column.replace(exp.Paren(this=aliases[column.name].copy()))
    found: exp.Expr = whole.this
    return found


def _with_subqueries(
    relation: Relation, items: list[Item], order: list[Sorted], rows: Rows, context: Context
) -> tuple[Relation, list[Item], list[Sorted]]:
    """Give the subqueries of items columns."""
    made = []
    for item in items:
        relation, body = (
            attached(relation, item.body, rows.scope, context) if queries_in(item.body) else (relation, item.body)
        )
        made.append(Item(item.name, body))
    if any(queries_in(one.body) for one in order):
        refuse("a subquery in ORDER BY", "make it an item of SELECT, and order by its name")
    return relation, made, order


def _result(
    select: exp.Select,
    relation: Relation,
    items: list[Item],
    order: list[Sorted],
    extra: tuple[str, ...],
    context: Context,
) -> Relation:
    clause = select.args.get("distinct")
    if clause and clause.args.get("on"):
        refuse(
            "DISTINCT ON is not available", "use ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) AS rn, and rn = 1"
        )
    columns = [(item.name, text_of(item.body)) for item in items]
    kept = [(name, quoted(name)) for name in extra]
    hidden: list[tuple[str, str]] = []
    by = []
    for one in order if select.args.get("limit") else []:
        same = one.item or next((item.name for item in items if text_of(item.body) == text_of(one.body)), None)
        if same is None:
            hidden.append((context.internal("order"), text_of(one.body)))
        by.append((quoted(same or hidden[-1][0]), one.direction, one.nulls))
    if hidden and clause:
        refuse("ORDER BY of SELECT DISTINCT by what is not selected", "select it, or order by a selected column")
    made = projected(relation, [*columns, *kept, *hidden])
    made = Distinct(made) if clause else made
    made = limited(made, select, tuple(by), extra, context)
    return projected(made, [(name, quoted(name)) for name in (*(item.name for item in items), *extra)])
