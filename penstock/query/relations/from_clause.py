"""FROM and WHERE: tables joined, in the order of the query, with conditions applied as early as they can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.plan.relations import Relation
from penstock.plan.relations.joins import How
from penstock.query.relations.context import Context, extended
from penstock.query.relations.joining import inner, outer
from penstock.query.relations.ranks import DONE
from penstock.query.relations.scope import Rows, Scope, Visible
from penstock.query.relations.tables import Table, table_of
from penstock.query.relations.trees import columns_of, conjuncts, queries_in, refuse

_HOW: dict[tuple[str, str], How] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "ANTI"): "anti",
}


@dataclass(frozen=True)
class _Step:
    """One table to be joined; `merged` are columns of USING in a FULL JOIN: the result, the left's, the right's."""

    relation: Relation
    how: How = "inner"
    on: tuple[exp.Expr, ...] = ()
    merged: tuple[tuple[str, str, str], ...] = ()


def rows_of(select: exp.Select, context: Context, around: Scope | None) -> Rows:
    """Return the rows that a SELECT is computed from."""
    clause = select.args.get("from_") or select.args.get("from")
    if clause is None:
        refuse("FROM is missing", "a view is made of other views: SELECT ... FROM name")
    if select.args.get("laterals"):
        refuse("LATERAL VIEW is not available in sql_view()", "explode the column in the stream, before .view(...)")
    tables = _Tables(select, context, around)
    tables.add(clause.this, ())
    for join in [*(clause.this.args.get("joins") or []), *(select.args.get("joins") or [])]:
        tables.join(join)
    where = select.args.get("where")
    asked = [one for one in (conjuncts(where.this) if where else []) if not one.meta.get(DONE)]
    conditions = [tables.scope.resolved(one) for one in asked]
    return _folded(tables.steps, conditions, tables.scope, context)


def _folded(steps: Sequence[_Step], where: Sequence[exp.Expr], scope: Scope, context: Context) -> Rows:
    """Join the tables. Inner joins wait in a pool, so that any order of them is possible; outer ones end it."""
    mine = {one.column for one in scope.columns}
    later = [one for one in where if queries_in(one) or not columns_of(one) <= mine]
    early = [one for one in where if one not in later]
    pool: list[Relation] = []
    conditions: list[exp.Expr] = []
    for step in steps:
        if step.how == "inner":
            pool.append(step.relation)
            later += [one for one in step.on if queries_in(one) or not columns_of(one) <= mine]
            conditions += [one for one in step.on if one not in later]
            continue
        if step.how in ("right", "full") and any(one not in where for one in later):
            refuse("ON with a subquery before a RIGHT or FULL JOIN", "put that join into a subquery of FROM")
        if step.how in ("left", "semi", "anti"):
            # Rows without a partner have the columns of the left side too.
            names = {name for one in pool for name in one.schema.names}
            conditions += [one for one in early if columns_of(one) and columns_of(one) <= names]
            early = [one for one in early if one not in conditions]
        joined = outer(inner(pool, conditions, context), step.relation, step.on, step.how, context)
        pool, conditions = [_merged(joined, step)], []
    with_queries = tuple(one for one in later if queries_in(one))
    correlated = tuple(one for one in later if not queries_in(one))
    return Rows(inner(pool, [*conditions, *early], context), scope, with_queries, correlated)


def _merged(relation: Relation, step: _Step) -> Relation:
    return extended(relation, [(name, f"coalesce({left}, {right})") for name, left, right in step.merged])


class _Tables:
    """Reads the tables of FROM from left to right: what is joined how, and which columns the query can name."""

    def __init__(self, select: exp.Select, context: Context, around: Scope | None) -> None:
        self._select, self._context = select, context
        self.scope = Scope((), around)
        self.steps: list[_Step] = []

    def add(self, tree: exp.Expr, on: tuple[exp.Expr, ...]) -> None:
        """Read a table, or tables that are joined in parentheses, to be joined by conditions of WHERE and ON."""
        nested = isinstance(tree, exp.Subquery) and isinstance(tree.this, exp.Table)
        table = table_of(tree.this if nested else tree, self._select, self._context)
        self.steps.append(_Step(table.relation, "inner", on))
        self.scope = self._with(table)
        for join in (tree.this.args.get("joins") or []) if nested else []:
            self.join(join)

    def join(self, tree: exp.Expr) -> None:
        """Read one more table."""
        how = _how(tree)
        nested = isinstance(tree.this, exp.Subquery) and isinstance(tree.this.this, exp.Table)
        if nested and (how != "inner" or tree.args.get("using") or _has_outer(tree.this.this)):
            refuse("OUTER JOIN with joins in parentheses is not available", "put them into a subquery of FROM")
        if nested:
            self.add(tree.this, ())
            self.steps[-1] = replace(self.steps[-1], on=(*self.steps[-1].on, *_on(tree, self.scope)))
            return
        table = table_of(tree.this, self._select, self._context)
        both = self._with(table)
        on = (*_on(tree, both), *self._using(tree, table))
        self._check(on, both, how)
        merged = self._merged(tree, table, how) if how not in ("semi", "anti") else ()
        self.steps.append(_Step(table.relation, how, on, merged if how == "full" else ()))
        if how not in ("semi", "anti"):
            self.scope = both
            self._hide(merged)

    def _with(self, table: Table) -> Scope:
        taken = {one.table for one in self.scope.columns if one.table}
        name = table.columns[0].table
        if name in taken:
            refuse(f"FROM has two tables called '{name}'", f"give one of them another name: {name} AS {name}_2")
        columns, known = (*self.scope.columns, *table.columns), (*self.scope.known, *table.known)
        return replace(self.scope, columns=columns, known=known)

    def _check(self, on: Sequence[exp.Expr], scope: Scope, how: How) -> None:
        if how == "inner":
            return
        if any(queries_in(one) for one in on):
            refuse(f"a subquery in ON of a {how.upper()} JOIN is not available", "put it into a subquery of FROM")
        mine = {one.column for one in scope.columns}
        if any(not columns_of(one) <= mine for one in on):
            refuse(f"ON of a {how.upper()} JOIN with a column of a query around", "put the condition into WHERE")

    def _using(self, tree: exp.Expr, table: Table) -> list[exp.Expr]:
        """Return USING as equalities."""
        columns = [exp.column(name.copy()) for name in tree.args.get("using") or []]
        left, right = Scope(self.scope.columns), Scope(table.columns)
        return [exp.EQ(this=left.resolved(column), expression=right.resolved(column)) for column in columns]

    def _merged(self, tree: exp.Expr, table: Table, how: How) -> tuple[tuple[str, str, str], ...]:
        """Return the columns of USING: the one that is shown, which has the value of whichever side has a row."""
        found = []
        for name in [one.name for one in tree.args.get("using") or []]:
            right = next(one.column for one in table.columns if one.name == name)
            left = next(one.column for one in self.scope.columns if one.name == name and not one.merged)
            shown = {"right": right, "full": self._context.fresh(name)}.get(how, left)
            found.append((shown, left, right))
        return tuple(found)

    def _hide(self, merged: Sequence[tuple[str, str, str]]) -> None:
        for shown, left, right in merged:
            name = next(one.name for one in self.scope.columns if one.column == left)
            columns = [
                one._replace(merged=True) if one.column in (left, right) and one.table else one
                for one in self.scope.columns
                if one.table or one.name != name
            ]
            self.scope = replace(self.scope, columns=(Visible("", name, shown), *columns))


def _on(tree: exp.Expr, scope: Scope) -> list[exp.Expr]:
    on = tree.args.get("on")
    return [scope.resolved(one) for one in conjuncts(on)] if on else []


def _has_outer(tree: exp.Expr) -> bool:
    return any(_how(join) != "inner" for join in tree.args.get("joins") or [])


def _how(tree: exp.Expr) -> How:
    if tree.args.get("method"):
        refuse(f"{tree.args['method']} JOIN is not available", "name the columns: JOIN t USING (a, b)")
    side, kind = tree.text("side"), tree.text("kind")
    how = _HOW.get((side.upper(), kind.upper()))
    if isinstance(tree.this, exp.Lateral):
        refuse("LATERAL is not available in sql_view()", "write the subquery with GROUP BY, and join it")
    if how is None:
        words = " ".join(word for word in (side, kind) if word)
        refuse(f"{words} JOIN is not available", "use INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN")
    return how
