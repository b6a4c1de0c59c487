"""Which columns a clause can name, and by which table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlglot import exp

from penstock.errors import BadExpression, choices
from penstock.query.parsing import NODE
from penstock.stream import Stream


class Visible(NamedTuple):
    """A column as a query names it, and what the stream calls it."""

    table: str
    name: str
    column: str


@dataclass(frozen=True)
class Scope:
    """A stream in the middle of a query, with the tables that its columns come from."""

    stream: Stream
    columns: tuple[Visible, ...]

    @classmethod
    def of(cls, stream: Stream, table: str) -> Scope:
        """Return the scope of one table."""
        return cls(stream, tuple(Visible(table, name, name) for name in stream.schema.names))

    def on(self, stream: Stream) -> Scope:
        """Return the same columns of another stream."""
        return Scope(stream, self.columns)

    def adding(self, stream: Stream, table: str, columns: Sequence[tuple[str, str]]) -> Scope:
        """Return a scope with further columns, those of a lateral view."""
        return Scope(stream, (*self.columns, *(Visible(table, name, column) for name, column in columns)))

    def star(self, table: str = "") -> list[Visible]:
        """Return the columns of `*`, or of `table.*`."""
        found = [one for one in self.columns if table in ("", one.table)]
        if not found:
            message = f"{table}.*: unknown table '{table}'"
            raise BadExpression(message, node=NODE, hint=choices("tables", self._tables, table))
        return found

    def resolved(self, tree: exp.Expr) -> exp.Expr:
        """Return a tree in which columns have the stream's names; names that are not columns are left."""
        whole = exp.Paren(this=tree.copy())
        for column in list(whole.find_all(exp.Column)):
            if not isinstance(column.this, exp.Star):
                column.replace(self._column(column))
        found: exp.Expr = whole.this
        return found

    @property
    def _tables(self) -> list[str]:
        return list(dict.fromkeys(one.table for one in self.columns if one.table))

    def _column(self, column: exp.Column) -> exp.Expr:
        first, *more = column.parts
        if more and first.name in self._tables and first.name not in self.stream.schema.names:
            mine = [one for one in self.columns if one.table == first.name]
            found, rest = self._named(mine, more[0].name, first.name), more[1:]
        elif more and (theirs := [o for o in self.columns if (o.table, o.name) == (first.name, more[0].name)]):
            found, rest = theirs[0], more[1:]
        else:
            alike = [one for one in self.columns if one.name == first.name]
            if not alike:
                return column
            found, rest = self._only(alike), more
        tree: exp.Expr = exp.column(exp.to_identifier(found.column, quoted=not found.column.isidentifier()))
        for part in rest:
            tree = exp.Dot(this=tree, expression=part.copy())
        return tree

    def _named(self, mine: Sequence[Visible], name: str, table: str) -> Visible:
        found = next((one for one in mine if one.name == name), None)
        if found is None:
            message = f"table '{table}' has no column '{name}'"
            raise BadExpression(message, node=NODE, hint=choices("columns", [one.name for one in mine], name))
        return found

    def _only(self, alike: Sequence[Visible]) -> Visible:
        if len(alike) > 1:
            message = f"the column '{alike[0].name}' is ambiguous"
            raise BadExpression(message, node=NODE, hint=choices("choose", [f"{o.table}.{o.name}" for o in alike]))
        return alike[0]
