"""The tables of FROM: each with the columns that the query needs, under names that are unique in the whole query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.plan.relations import Relation
from penstock.query.relations.context import Context, Rank, projected, renamed
from penstock.query.relations.ranks import asked_rank
from penstock.query.relations.scope import Visible
from penstock.query.relations.trees import refuse
from penstock.query.relations.windows import table_function
from penstock.schema import quoted


@dataclass(frozen=True)
class Table:
    """A relation of FROM, and the columns by which the query names it."""

    relation: Relation
    columns: tuple[Visible, ...]
    known: tuple[tuple[str, str], ...]


def table_of(tree: exp.Expr, select: exp.Select, context: Context) -> Table:
    """Return a table, a subquery or a window function of FROM."""
    relation = _relation(tree, select, context)
    alias = tree.alias_or_name or (tree.this.name if isinstance(tree.this, exp.Expr) else "")
    wanted = _wanted(relation.schema.names, select)
    names = {name: context.fresh(name) for name in wanted}
    kept = projected(relation, [(new, quoted(old)) for old, new in names.items()])
    known = tuple((alias, name) for name in relation.schema.names)
    return Table(kept, tuple(Visible(alias, old, new) for old, new in names.items()), known)


def _relation(tree: exp.Expr, select: exp.Select, context: Context) -> Relation:
    _refuse_parts(tree)
    if isinstance(tree, exp.Subquery):
        return renamed(context.query(tree.this, asked_rank(tree.this, tree.alias, select)), tree)
    if not isinstance(tree, exp.Table):
        refuse(f"FROM {tree.sql('spark')} is not available", "read a view by its name, or a subquery")
    if isinstance(tree.this, exp.Anonymous):
        return renamed(table_function(tree.this, context), tree)
    if tree.db:
        name = f"{tree.db}.{tree.name}"
        refuse(f"FROM {name}: tables have no database here", f"pass the view by a name: {tree.name}=...")
    return renamed(context.table(tree.name, _rank(tree, select, context)), tree)


def _rank(tree: exp.Expr, select: exp.Select, context: Context) -> Rank | None:
    query = context.definition(tree.name)
    return asked_rank(query, tree.alias_or_name, select) if query is not None else None


def _refuse_parts(tree: exp.Expr) -> None:
    for part, words in (("sample", "TABLESAMPLE"), ("pivots", "PIVOT"), ("version", "FOR SYSTEM_TIME AS OF")):
        if tree.args.get(part):
            refuse(f"{words} is not available", "a view is a function of all rows, as they are now")


def _wanted(names: Sequence[str], select: exp.Select) -> list[str]:
    """Return the columns that the query can mean: those that it names anywhere, or all with a star."""
    if any(item.is_star for item in select.expressions):
        return [*names]
    parts = {part.name for column in select.find_all(exp.Column) for part in column.parts}
    parts |= {name.name for join in select.find_all(exp.Join) for name in join.args.get("using") or []}
    return [name for name in names if name in parts] or [names[0]]
