"""ORDER BY ... LIMIT: the first rows. Without a limit an order means nothing, for a view has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from penstock.plan.relations import Filter, Relation, Top
from penstock.plan.relations.groups import Direction, Nulls, Order
from penstock.query.relations.context import Context, projected
from penstock.query.relations.items import Item, numbered
from penstock.query.relations.scope import Scope
from penstock.query.relations.trees import refuse
from penstock.schema import quoted


class Sorted(NamedTuple):
    """One item of ORDER BY: an expression over final columns, or a result column by its name."""

    body: exp.Expr
    item: str | None
    direction: Direction
    nulls: Nulls


def sorted_by(select: exp.Expr, items: Sequence[Item], scope: Scope) -> list[Sorted]:
    """Return the items of ORDER BY, if a limit makes it mean something; names mean result columns first."""
    order = select.args.get("order")
    if order is None or not select.args.get("limit"):
        return []
    found = []
    by_name = {item.name: item for item in items}
    for one in order.expressions:
        tree = one.this if isinstance(one, exp.Ordered) else one
        alias = by_name.get(tree.name) if isinstance(tree, exp.Column) and len(tree.parts) == 1 else None
        item = numbered(tree, items, "ORDER BY") or alias
        body = item.body if item else scope.resolved(tree, {name: each.body for name, each in by_name.items()})
        direction: Direction = "desc" if one.args.get("desc") else "asc"
        nulls: Nulls = "first" if one.args.get("nulls_first") else "last"
        found.append(Sorted(body, item.name if item else None, direction, nulls))
    return found


def limited(relation: Relation, tree: exp.Expr, by: Order, keys: tuple[str, ...], context: Context) -> Relation:
    """Return the first rows of each group of `keys`, if there is a limit."""
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    if limit is None:
        if offset is not None:
            refuse("OFFSET without LIMIT is not available", "write ORDER BY ... LIMIT n OFFSET m")
        return relation
    if not by:
        refuse("LIMIT without ORDER BY: which rows are first is not said", "write ORDER BY ... LIMIT n")
    most, skipped = _number(limit, "LIMIT"), _number(offset, "OFFSET") if offset else 0
    if most < 1:
        refuse("LIMIT 0 is not available", "take one row at least")
    if not skipped:
        return Top(relation, keys, most, by)
    rank = context.internal("rank")
    ranked = Filter(Top(relation, keys, most + skipped, by, rank), f"{rank} > {skipped}")
    return projected(ranked, [(name, quoted(name)) for name in relation.schema.names])


def _number(tree: exp.Expr, clause: str) -> int:
    number = tree.expression
    if not isinstance(number, exp.Literal) or not number.name.isdigit():
        refuse(f"{clause} {number.sql('spark') if number else ''}: a whole number is needed", f"write {clause} 10")
    return int(number.name)
