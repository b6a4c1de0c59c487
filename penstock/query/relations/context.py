"""What the clauses of a query share: the tables that it can read, and the names that are taken."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Protocol

from sqlglot import exp

from penstock.errors import choices
from penstock.plan.relations import Project, Relation
from penstock.query.relations.scope import Rows, Scope
from penstock.query.relations.trees import refuse
from penstock.schema import quoted


@dataclass(frozen=True)
class Rank:
    """What the query around asks of a column of ROW_NUMBER(): the first n rows, and whether it shows the number."""

    n: int
    shown: bool


class Builder(Protocol):
    """Makes relations of queries, and of the rows of a SELECT: the parts of a query need both."""

    def query(self, tree: exp.Expr, context: Context, rank: Rank | None) -> Relation:
        """Return the relation of a query that needs nothing of the queries around it."""

    def rows(self, select: exp.Select, context: Context, around: Scope) -> Rows:
        """Return the rows that a SELECT is computed from, inside of another query."""

    def select(
        self, select: exp.Select, rows: Rows, context: Context, extra: tuple[str, ...], rank: Rank | None
    ) -> Relation:
        """Return what a SELECT makes of its rows, for each group of the columns `extra`, which it keeps."""


@dataclass(frozen=True)
class _Shared:
    """Of a whole query. Names are unique in it, so that a column of a query around needs no table."""

    builder: Builder
    taken: set[str] = field(default_factory=set)
    built: dict[tuple[int, Rank | None], Relation] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """The tables that a query can read: inputs, and those of WITH, each with the context of its definition."""

    inputs: Mapping[str, Relation]
    shared: _Shared
    reserved: Set[str]
    tables: Mapping[str, tuple[exp.Expr, Context]] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: exp.Expr, inputs: Mapping[str, Relation], builder: Builder) -> Context:
        """Return the context of a whole query."""
        reserved = {one.name.casefold() for one in tree.find_all(exp.Identifier)}
        reserved |= {name.casefold() for one in inputs.values() for name in one.schema.names}
        return cls(inputs, _Shared(builder), reserved)

    def adding(self, table: exp.Expr) -> Context:
        """Return a context with one more table of WITH, which shadows another of its name."""
        return replace(self, tables={**self.tables, table.alias: (table, self)})

    def fresh(self, name: str) -> str:
        """Return a name that nothing in the query has, also not in another case, and that needs no quotes."""
        base = name if quoted(name) == name else "column"
        found, number = base, 2
        while found.casefold() in self.shared.taken:
            found, number = f"{base}_{number}", number + 1
        self.shared.taken.add(found.casefold())
        return found

    def internal(self, name: str) -> str:
        """Return a fresh name that no column, table or alias has either."""
        found = self.fresh(name)
        while found.casefold() in self.reserved:
            found = self.fresh(name)
        return found

    def query(self, tree: exp.Expr, rank: Rank | None = None) -> Relation:
        """Return the relation of a query that needs nothing of the queries around it."""
        return self.shared.builder.query(tree, self, rank)

    def rows(self, select: exp.Select, around: Scope) -> Rows:
        """Return the rows that a subquery is computed from."""
        return self.shared.builder.rows(select, self, around)

    def select(self, select: exp.Select, rows: Rows, extra: tuple[str, ...] = ()) -> Relation:
        """Return what a SELECT makes of its rows, for each group of the columns `extra`, which it keeps."""
        return self.shared.builder.select(select, rows, self, extra, None)

    def definition(self, name: str) -> exp.Expr | None:
        """Return the query of a table of WITH."""
        found = self.tables.get(name)
        return found[0].this if found else None

    def table(self, name: str, rank: Rank | None = None) -> Relation:
        """Return the relation of a table; one of WITH is built once, however often it is read."""
        if name not in self.tables:
            if name not in self.inputs:
                refuse(f"unknown table '{name}'", choices("tables", [*self.tables, *self.inputs], name))
            return self.inputs[name]
        tree, context = self.tables[name]
        key = (id(tree), rank)
        if key not in self.shared.built:
            self.shared.built[key] = renamed(context.query(tree.this, rank), tree)
        return self.shared.built[key]


def renamed(relation: Relation, tree: exp.Expr) -> Relation:
    """Give the columns of a table the names of its alias, as in `WITH t(a, b) AS (...)`."""
    alias = tree.args.get("alias")
    names = [column.name for column in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return relation
    given = relation.schema.names
    if len(names) != len(given):
        message = f"table '{tree.alias}' has {len(given)} columns, and {len(names)} names are given"
        refuse(message, choices("columns", given))
    return projected(relation, [(name, quoted(old)) for name, old in zip(names, given, strict=True)])


def projected(relation: Relation, columns: list[tuple[str, str]]) -> Relation:
    """Return these columns; the relation itself where they are what it has."""
    same = [name for name, _ in columns] == [*relation.schema.names]
    if same and all(sql == quoted(name) for name, sql in columns):
        return relation
    inner = {quoted(name): sql for name, sql in relation.columns} if isinstance(relation, Project) else {}
    if isinstance(relation, Project) and all(sql in inner for _, sql in columns):
        # Columns of columns are one step.
        return projected(relation.input, [(name, inner[sql]) for name, sql in columns])
    return Project(relation, tuple(columns))


def extended(relation: Relation, columns: list[tuple[str, str]]) -> Relation:
    """Return the relation with further columns."""
    if not columns:
        return relation
    return projected(relation, [*((name, quoted(name)) for name in relation.schema.names), *columns])
