"""The items of SELECT, and the clauses that may name them: GROUP BY, HAVING and ORDER BY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from penstock.errors import choices
from penstock.query.parsing import body_of, name_of
from penstock.query.relations.scope import Scope
from penstock.query.relations.trees import aggregates_in, final_column, refuse


class Item(NamedTuple):
    """A result column: its name, and its expression over final columns."""

    name: str
    body: exp.Expr


def items_of(trees: Sequence[tuple[str, exp.Expr]], scope: Scope) -> list[Item]:
    """Return the result columns of named items; an item may use earlier ones by their aliases, as in Spark."""
    items: list[Item] = []
    for name, tree in trees:
        if tree.is_star:
            items += _star(tree, scope)
        else:
            items.append(Item(name, scope.resolved(tree, {item.name: item.body for item in items})))
    names = [item.name for item in items]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        refuse(f"SELECT has two columns called '{twice}'", f"name one of them: ... AS {twice}_2")
    return items


def named(select: exp.Select) -> list[tuple[str, exp.Expr]]:
    """Return the items of a SELECT with their names."""
    for item in select.expressions:
        if isinstance(item, exp.Aliases):
            refuse(f"{item.sql('spark')}: an item with several names", "explode the column in the stream, before .view")
    return [(name_of(item), body_of(item)) for item in select.expressions]


def _star(tree: exp.Expr, scope: Scope) -> list[Item]:
    star = tree.this if isinstance(tree, exp.Column) else tree
    if star.args.get("replace") or star.args.get("rename"):
        refuse("* REPLACE and * RENAME are not available in sql_view()", "name the columns one by one")
    found = scope.star(tree.table if isinstance(tree, exp.Column) else "")
    without = {column.name for column in star.args.get("except_") or star.args.get("except") or []}
    if unknown := without - {one.name for one in found}:
        refuse(f"* EXCEPT: unknown column '{min(unknown)}'", choices("columns", [one.name for one in found]))
    return [Item(one.name, final_column(one.column)) for one in found if one.name not in without]


def numbered(tree: exp.Expr, items: Sequence[Item], clause: str) -> Item | None:
    """Return the item that a number means; None if the tree is no number."""
    if not isinstance(tree, exp.Literal) or tree.is_string:
        return None
    if not tree.name.isdigit() or not 1 <= int(tree.name) <= len(items):
        hint = f"use a number from 1 to {len(items)}, or the column's name"
        refuse(f"{clause} {tree.name}: SELECT has {len(items)} columns", hint)
    return items[int(tree.name) - 1]


def group_keys(parts: Sequence[exp.Expr], items: Sequence[Item], scope: Scope) -> list[exp.Expr]:
    """Return what is grouped by; numbers and aliases as the items that they mean."""
    aliases = {item.name: item.body for item in items if not aggregates_in(item.body)}
    found = []
    for part in parts:
        item = numbered(part, items, "GROUP BY")
        found.append((item.body if item else scope.resolved(part, aliases)).unnest())
    return found
