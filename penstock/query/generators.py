"""Generators: LATERAL VIEW, and explode() and its relatives as an item of SELECT."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.errors import BadExpression, choices
from penstock.plan.operators.explode import GENERATORS, Explode, check_names, generated
from penstock.plan.sql_expressions.functions import is_generator
from penstock.query.parsing import NODE, body_of, call_of, fresh, text_of
from penstock.query.scope import Scope
from penstock.stream import Stream


def lateral_view(scope: Scope, lateral: exp.Lateral) -> Scope:
    """Return a scope with the columns of a lateral view."""
    if not lateral.args.get("view") or not is_generator(call_of(lateral.this)):
        message = f"LATERAL {text_of(lateral.this)} is not available"
        raise BadExpression(message, node=NODE, hint="write LATERAL VIEW explode(column) t AS name")
    alias = lateral.args.get("alias")
    names = [column.name for column in alias.args.get("columns") or []] if alias else []
    table = alias.name if alias else ""
    stream, columns = _exploded(scope, lateral.this, names, "LATERAL VIEW", outer=bool(lateral.args.get("outer")))
    return scope.adding(stream, table, columns)


def generator_item(items: Sequence[exp.Expr]) -> exp.Expr | None:
    """Return the item of a SELECT that makes many rows of one."""
    found = [item for item in items if is_generator(call_of(body_of(item)))]
    if len(found) > 1:
        message = f"SELECT has two generators, {text_of(body_of(found[0]))} and {text_of(body_of(found[1]))}"
        raise BadExpression(message, node=NODE, hint="use LATERAL VIEW for each of them")
    return found[0] if found else None


def exploded_item(scope: Scope, item: exp.Expr) -> tuple[Stream, list[tuple[str, str]]]:
    """Return the stream with the columns of a generator in SELECT, and these: their names, and the stream's."""
    aliases = [one.name for one in item.expressions] if isinstance(item, exp.Aliases) else []
    names = [item.alias] if isinstance(item, exp.Alias) else aliases
    return _exploded(scope, body_of(item), names, "SELECT", outer=False)


def _exploded(
    scope: Scope, call: exp.Expr, names: Sequence[str], clause: str, *, outer: bool
) -> tuple[Stream, list[tuple[str, str]]]:
    name, given = call_of(call), call.expressions
    function = name.removesuffix("_outer")
    if function not in GENERATORS or len(given) != 1:
        message = f"{clause}: {text_of(call)} is not available"
        raise BadExpression(message, node=NODE, hint=f"{choices('generators', GENERATORS)}, each also as ..._outer")
    outer = outer or name.endswith("_outer")
    argument, schema = text_of(scope.resolved(given[0])), scope.stream.schema
    where = f"{NODE} / {clause}"
    made = generated(function, argument, schema, outer=outer, where=where)
    names = names or [field.name for field in made]
    check_names(function, names, made, where)
    taken = set(schema.names)
    columns: list[tuple[str, str]] = []
    for one in names:
        columns.append((one, fresh(one, taken)))
        taken.add(columns[-1][1])
    chosen = tuple(column for _, column in columns)
    node = Explode(input=scope.stream.node, function=function, argument=argument, names=chosen, outer=outer)
    return Stream(node), columns
