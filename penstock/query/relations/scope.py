"""Which columns a clause can name: of the tables of FROM, and of the queries around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from sqlglot import exp

from penstock.errors import UnknownColumn, choices
from penstock.plan.relations import Relation
from penstock.query.relations.trees import FINAL, NODE, final_column, own_parts, refuse


class Visible(NamedTuple):
    """A column as a query names it, and its name in the relation, which is unique in the whole query.

    `merged`: a column of USING, which only its table's name still reaches.
    """

    table: str
    name: str
    column: str
    merged: bool = False


@dataclass(frozen=True)
class Scope:
    """The columns of FROM, and the scope of the query around."""

    columns: tuple[Visible, ...]
    outer: Scope | None = None
    # All columns of the tables, by table, also those that the query does not name.
    known: tuple[tuple[str, str], ...] = ()

    def resolved(self, tree: exp.Expr, aliases: Mapping[str, exp.Expr] | None = None) -> exp.Expr:
        """Return a tree in which columns have their final names; `aliases` count where no column has the name."""
        whole = exp.Paren(this=tree.copy())
        for column in [part for part in own_parts(whole) if isinstance(part, exp.Column)]:
            if FINAL not in column.meta and not isinstance(column.this, exp.Star):
                column.replace(self._column(column, aliases or {}))
        found: exp.Expr = whole.this
        return found

    def star(self, table: str = "") -> list[Visible]:
        """Return the columns of `*`, or of `table.*`."""
        found = [one for one in self.columns if (one.table == table if table else not one.merged)]
        if not found:
            refuse(f"{table}.*: unknown table '{table}'", choices("tables", self._tables, table))
        return found

    @property
    def _tables(self) -> list[str]:
        return list(dict.fromkeys(one.table for one in self.columns if one.table))

    def _column(self, column: exp.Column, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
        parts = [part.name for part in column.parts]
        if found := self._found(parts):
            return found
        if len(parts) == 1 and parts[0] in aliases:
            return exp.Paren(this=aliases[parts[0]].copy())
        around = self.outer
        while around is not None:
            if found := around._found(parts):
                return found
            around = around.outer
        self._unknown(parts)

    def _found(self, parts: list[str]) -> exp.Expr | None:
        """Find `table.column`, `column`, and fields of either."""
        first, *more = parts
        if more and (mine := [one for one in self.columns if (one.table, one.name) == (first, more[0])]):
            return _with_fields(self._only(mine), more[1:])
        alike = [one for one in self.columns if one.name == first and not one.merged]
        return _with_fields(self._only(alike), more) if alike else None

    def _only(self, alike: list[Visible]) -> Visible:
        if len(alike) > 1:
            hint = choices("choose", [f"{one.table}.{one.name}" for one in alike])
            refuse(f"the column '{alike[0].name}' is ambiguous", hint)
        return alike[0]

    def _unknown(self, parts: list[str]) -> NoReturn:
        first, *more = parts
        if more and first in self._tables:
            message = f"table '{first}' has no column '{more[0]}'"
            names = [name for table, name in self.known if table == first]
            raise UnknownColumn(message, node=NODE, hint=choices("columns", names, more[0]))
        message = f"unknown column '{'.'.join(parts)}'"
        names = list(dict.fromkeys(name for _, name in self.known))
        raise UnknownColumn(message, node=NODE, hint=choices("columns here", names, first))


@dataclass(frozen=True)
class Rows:
    """The rows of FROM and WHERE; conditions that have subqueries, or columns of a query around, are still to do."""

    relation: Relation
    scope: Scope
    with_queries: tuple[exp.Expr, ...] = ()
    correlated: tuple[exp.Expr, ...] = ()


def _with_fields(found: Visible, fields: list[str]) -> exp.Expr:
    tree: exp.Expr = final_column(found.column)
    for name in fields:
        tree = exp.Dot(this=tree, expression=exp.to_identifier(name, quoted=not name.isidentifier()))
    return tree
