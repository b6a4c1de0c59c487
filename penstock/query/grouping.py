"""GROUP BY, HAVING and aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlglot import exp

from penstock.errors import BadExpression, choices
from penstock.plan.operators.bounded import BoundedAggregate
from penstock.plan.operators.deduplication import Distinct
from penstock.plan.sql_expressions.expression import aggregate_calls, scalar
from penstock.query.parsing import NODE, WINDOW_CALLS, call_of, fresh, text_of
from penstock.query.scope import Scope
from penstock.query.windows import check_calls, common_window, is_window, names_window, window_calls, with_bounds
from penstock.schema import quoted
from penstock.stream import Stream
from penstock.windows import Window

_SETS = {"rollup": "ROLLUP", "cube": "CUBE", "grouping_sets": "GROUPING SETS", "totals": "WITH TOTALS"}


class Item(NamedTuple):
    """A result column: its name, and its expression over the stream."""

    name: str
    body: exp.Expr


@dataclass
class _Group:
    """What rows are grouped by: keys by their SQL, with the names that they have in the state and in the result."""

    window: Window | None = None
    window_names: set[str] = field(default_factory=lambda: set(WINDOW_CALLS))
    inner: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)

    def replaced(self, tree: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
        """Return a tree in which keys, outside of aggregates, are columns of these names, and windows their bounds."""
        tree = with_bounds(tree, self.window_names) if self.window else tree.copy()
        whole = exp.Paren(this=tree)
        _replace_keys(whole, names)
        found: exp.Expr = whole.this
        return found


def grouped(tree: exp.Select, items: Sequence[Item], scope: Scope, *, bounded: bool = False) -> Stream:
    """Return one row for each group; `bounded`: the input has an end, so that groups are final without a window."""
    _refuse_sets(tree)
    group = _group(_parts(tree, items, scope), items, scope)
    mixed = [item for item in items if aggregate_calls(item.body) and group.window and _is_of_window(item.body, group)]
    aggregates = {
        item.name: text_of(group.replaced(item.body, group.inner))
        for item in items
        if aggregate_calls(item.body) and item not in mixed
    }
    over_results = {item.name: _over_results(item.body.copy(), aggregates, group, items) for item in mixed}
    having = tree.args.get("having")
    condition = (
        _with_items(scope.resolved(having.this), items, {*aggregates, *group.shown.values()}, scope) if having else None
    )
    where = _over_results(condition, aggregates, group, items) if condition is not None else None
    if not group.window and not group.inner and not bounded:
        what = next(iter(aggregates.values()), "HAVING")
        message = f"GROUP BY is missing: {what} would be over the whole stream, which has no end"
        raise BadExpression(message, node=NODE, hint="GROUP BY a column, or window(ts, '1 minute')")
    check_calls([item.body for item in items] + ([condition] if condition else []), group.window, scope.stream)
    final = {item.name: over_results.get(item.name) or _shown(item, aggregates, group) for item in items}
    if not aggregates and group.window is None and group.inner:
        return _chosen(Stream(Distinct(input=_keys_of(scope.stream, group).node)), final)
    result = _aggregated(scope.stream, group, aggregates, bounded=bounded)
    return _chosen(result.filter(where) if where else result, final)


def _aggregated(stream: Stream, group: _Group, aggregates: Mapping[str, str], *, bounded: bool) -> Stream:
    counted = aggregates or {fresh("rows", {*group.inner.values(), *group.shown.values()}): "count(*)"}
    plain = [name for sql, name in group.inner.items() if sql == quoted(name)]
    computed = {name: sql for sql, name in group.inner.items() if sql != quoted(name)}
    keyed: Any = stream.key_by(*plain, **computed) if group.inner else stream
    over = keyed.window(group.window) if group.window else keyed
    result: Stream = over.aggregate(counted) if group.window or not bounded else _of_all_rows(keyed, group, counted)
    new = {group.shown[sql]: name for sql, name in group.inner.items() if group.shown[sql] != name}
    return result.rename(new) if new else result


def _of_all_rows(keyed: Any, group: _Group, aggregates: Mapping[str, str]) -> Stream:
    names = tuple(keyed.keys) if group.inner else ()
    return Stream(BoundedAggregate(input=keyed.node, keys=names, aggregates=tuple(aggregates.items())))


def _keys_of(stream: Stream, group: _Group) -> Stream:
    return stream.select({group.shown[sql]: sql for sql in group.inner})


def _chosen(result: Stream, final: Mapping[str, str]) -> Stream:
    same = list(final) == list(result.schema.names) and all(sql == quoted(name) for name, sql in final.items())
    return result if same else result.select(final)


def _refuse_sets(tree: exp.Select) -> None:
    group = tree.args.get("group") or exp.Group()
    found = [words for part, words in _SETS.items() if group.args.get(part)]
    found += [_SETS[_key(one)] for one in group.expressions if _key(one) in _SETS]
    if found:
        message = f"GROUP BY {found[0]} is not available"
        raise BadExpression(message, node=NODE, hint="write one query for each grouping, and UNION ALL them")


def _key(tree: exp.Expr) -> str:
    return "grouping_sets" if isinstance(tree, exp.GroupingSets) else tree.key


def _parts(tree: exp.Select, items: Sequence[Item], scope: Scope) -> list[exp.Expr]:
    """Return what is grouped by; numbers and aliases as the items that they mean."""
    group = tree.args.get("group")
    if group is None:
        return []
    if group.args.get("all"):
        return [item.body for item in items if not aggregate_calls(item.body) and item.body.find(exp.Column)]
    return [_part(part, items, scope) for part in group.expressions]


def _part(part: exp.Expr, items: Sequence[Item], scope: Scope) -> exp.Expr:
    if isinstance(part, exp.Literal) and not part.is_string:
        return _numbered(part.name, items)
    found = scope.resolved(part)
    known = isinstance(found, exp.Column) and found.name in scope.stream.schema.names
    alias = next((item for item in items if isinstance(found, exp.Column) and item.name == found.name), None)
    if alias is None or known:
        return found
    return _not_aggregate(alias, f"GROUP BY {alias.name}")


def _numbered(number: str, items: Sequence[Item]) -> exp.Expr:
    if not number.isdigit() or not 1 <= int(number) <= len(items):
        message = f"GROUP BY {number}: SELECT has {len(items)} columns"
        raise BadExpression(message, node=NODE, hint=f"use a number from 1 to {len(items)}, or the column's name")
    return _not_aggregate(items[int(number) - 1], f"GROUP BY {number}")


def _not_aggregate(item: Item, where: str) -> exp.Expr:
    if aggregate_calls(item.body):
        message = f"{where}: {text_of(item.body)} is an aggregate"
        raise BadExpression(message, node=NODE, hint="group by columns, and aggregate the others")
    return item.body


def _group(parts: Sequence[exp.Expr], items: Sequence[Item], scope: Scope) -> _Group:
    group = _Group(common_window(parts, scope.stream))
    group.window_names |= {item.name for item in items if is_window(item.body.unnest())}
    group.window_names -= set(scope.stream.schema.names)
    of_window = [part for part in parts if _is_of_window(part, group)]
    for part in parts:
        if part not in of_window:
            _add_key(part, group, items, scope)
    for part in of_window:
        _check_determined(part, group)
    return group


def _is_of_window(part: exp.Expr, group: _Group) -> bool:
    return bool(window_calls(part)) or (group.window is not None and names_window(part, group.window_names))


def _check_determined(part: exp.Expr, group: _Group) -> None:
    """Refuse a part that differs within a group of the window and the keys, or is the same in several windows."""
    if group.window is None or _is_open(part, group):
        message = f"GROUP BY {text_of(part)}: a window is grouped by as a whole, or by its start or end"
        call = text_of(next(iter(window_calls(part)), exp.column("window")))
        hint = f"group by {call} and by columns, each on its own, and the result by the expression"
        raise BadExpression(message, node=NODE, hint=hint)


def _is_open(tree: exp.Expr, group: _Group) -> bool:
    """Return whether a tree has columns, outside of aggregates, that are neither keys nor bounds of the window."""
    # A key may be shown under the name of another column of the stream.
    keys = {sql: f"\0{number}" for number, sql in enumerate(group.inner)}
    known = {*keys.values(), *(("window_start", "window_end") if group.window else ())}
    columns = exp.Paren(this=group.replaced(tree, keys)).find_all(exp.Column)
    return any(column.parts[0].name not in known for column in columns)


def _add_key(part: exp.Expr, group: _Group, items: Sequence[Item], scope: Scope) -> None:
    """Name a key: as its column, or as the item that shows it, but never as another column or item."""
    sql, names = text_of(part), [item.name for item in items]
    scalar(sql, scope.stream.schema, node=f"{NODE} / GROUP BY")
    alias = next((item.name for item in items if text_of(item.body) == sql), None)
    inner = part.name if isinstance(part, exp.Column) and sql == quoted(part.name) else alias or sql
    is_column = inner in scope.stream.schema.names and sql == quoted(inner)
    if (inner in names and inner != alias) or (inner in scope.stream.schema.names and not is_column):
        inner = fresh(f"{inner}_key", {*names, *scope.stream.schema.names, *group.inner.values()})
    group.inner[sql] = inner
    group.shown[sql] = alias or inner


def _replace_keys(tree: exp.Expr, names: Mapping[str, str]) -> None:
    for child in list(tree.iter_expressions()):
        if call_of(child) and child in aggregate_calls(child):
            continue
        name = names.get(text_of(child))
        if name is None:
            _replace_keys(child, names)
        else:
            child.replace(exp.column(exp.to_identifier(name, quoted=not name.isidentifier())))


def _shown(item: Item, aggregates: Mapping[str, str], group: _Group) -> str:
    """Return the result column of an item: an aggregate's own, or an expression over keys and window bounds."""
    if item.name in aggregates:
        return quoted(item.name)
    if _is_open(item.body, group):
        message = f"{text_of(item.body)} is neither an aggregate nor in GROUP BY"
        hint = choices("group by", [*group.inner, *(["window.start", "window.end"] if group.window else [])])
        raise BadExpression(message, node=NODE, hint=hint)
    return text_of(group.replaced(item.body, group.shown))


def _with_items(tree: exp.Expr, items: Sequence[Item], results: set[str], scope: Scope) -> exp.Expr:
    """Let HAVING use an alias of SELECT that is not a column of the stream or of the results."""
    bodies = {item.name: item.body for item in items if item.name not in {*results, *scope.stream.schema.names}}
    whole = exp.Paren(this=tree)
    for column in list(whole.find_all(exp.Column)):
        if len(column.parts) == 1 and column.name in bodies:
            column.replace(exp.Paren(this=bodies[column.name].copy()))
    found: exp.Expr = whole.this
    return found


def _over_results(tree: exp.Expr, aggregates: dict[str, str], group: _Group, items: Sequence[Item]) -> str:
    """Return an expression of aggregates as one over results; those not in SELECT get a column of their own."""
    whole = exp.Paren(this=tree)
    for call in [_with_clauses(one) for one in aggregate_calls(whole) if not _inside(one)]:
        sql = text_of(group.replaced(call, group.inner))
        taken = {*aggregates, *group.shown.values(), *group.inner.values(), *(item.name for item in items)}
        name = next((n for n, known in aggregates.items() if known == sql), fresh(f"having_{len(aggregates)}", taken))
        aggregates[name] = sql
        call.replace(exp.column(exp.to_identifier(name, quoted=not name.isidentifier())))
    return text_of(group.replaced(whole.this, group.shown))


def _with_clauses(call: exp.Expr) -> exp.Expr:
    """Return a call with its FILTER (WHERE ...) and WITHIN GROUP (...)."""
    while isinstance(call.parent, exp.Filter | exp.WithinGroup):
        call = call.parent
    return call


def _inside(call: exp.Expr) -> bool:
    above = call.parent
    while above is not None:
        if call_of(above) and above in aggregate_calls(above):
            return True
        above = above.parent
    return False
