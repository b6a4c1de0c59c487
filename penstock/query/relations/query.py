"""Queries: WITH, SELECT, and the operators of sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from penstock.errors import PipelineError
from penstock.plan.relations import Distinct, Except, Intersect, Relation, Union
from penstock.plan.sql_expressions.types import STRING, common_of_two, read
from penstock.query.parsing import NODE as OTHER_NODE
from penstock.query.parsing import read_query
from penstock.query.relations.context import Context, Rank, projected
from penstock.query.relations.from_clause import rows_of
from penstock.query.relations.items import Item
from penstock.query.relations.ordering import limited, sorted_by
from penstock.query.relations.scope import Rows, Scope, Visible
from penstock.query.relations.select import refuse_clauses, select_of
from penstock.query.relations.subqueries import settled
from penstock.query.relations.trees import NODE, final_column, plain_bounds, refuse
from penstock.query.relations.with_clause import with_tables
from penstock.schema import Field, quoted


def relation_of(query: str, inputs: Mapping[str, Relation]) -> Relation:
    """Return the relation of an SQL query over relations by their names.

    >>> from penstock.plan.relations import Input
    >>> from penstock.schema import Schema
    >>> bid = Input("bid", Schema("auction bigint, price bigint"))
    >>> relation_of("SELECT auction, max(price) AS best FROM bid GROUP BY auction", {"bid": bid}).schema
    Schema('auction bigint, best bigint')
    """
    builder = _Builder()
    try:
        tree = plain_bounds(read_query(query))
        return builder.query(tree, Context.of(tree, inputs, builder), None)
    except PipelineError as error:
        inner = (error.node or "").removeprefix(NODE).removeprefix(OTHER_NODE).removeprefix(" / ")
        error.node = f"{NODE} / {inner}" if inner else NODE
        raise


class _Builder:
    """Makes relations of queries."""

    def query(self, tree: exp.Expr, context: Context, rank: Rank | None) -> Relation:
        """Return the relation of a query that needs nothing of the queries around it."""
        context = with_tables(tree, context)
        if isinstance(tree, exp.Subquery | exp.Paren):
            return _ordered(self.query(tree.this, context, rank), tree, context)
        if isinstance(tree, exp.SetOperation):
            refuse_clauses(tree)
            left, right = (self.query(side, context, None) for side in (tree.left, tree.right))
            return _ordered(_combined(tree, left, right), tree, context)
        if not isinstance(tree, exp.Select):
            refuse(f"{tree.key.upper()} is not a query of a view", "write SELECT ... FROM name")
        return self.select(tree, rows_of(tree, context, None), context, (), rank)

    def rows(self, select: exp.Select, context: Context, around: Scope) -> Rows:
        """Return the rows that a SELECT is computed from, inside of another query."""
        return settled(rows_of(select, context, around), context)

    def select(
        self, select: exp.Select, rows: Rows, context: Context, extra: tuple[str, ...], rank: Rank | None
    ) -> Relation:
        """Return what a SELECT makes of its rows."""
        return select_of(select, rows, context, extra, rank)


def _ordered(relation: Relation, tree: exp.Expr, context: Context) -> Relation:
    """Apply ORDER BY and LIMIT of a set of queries, which can name result columns only."""
    names = relation.schema.names
    items = [Item(name, final_column(name)) for name in names]
    order = sorted_by(tree, items, Scope(tuple(Visible("", name, name) for name in names)))
    by = tuple((quoted(one.item or one.body.name), one.direction, one.nulls) for one in order)
    return limited(relation, tree, by, (), context)


def _combined(tree: exp.SetOperation, left: Relation, right: Relation) -> Relation:
    left, right = _aligned(tree, left, right)
    once = bool(tree.args.get("distinct"))
    if isinstance(tree, exp.Union):
        return Distinct(Union((left, right))) if once else Union((left, right))
    kind = Except if isinstance(tree, exp.Except) else Intersect
    return kind(left, right, not once)


def _aligned(tree: exp.SetOperation, left: Relation, right: Relation) -> tuple[Relation, Relation]:
    """Give both sides the names of the left and common types: columns match by position, as in Spark."""
    word = tree.key.upper()
    if tree.args.get("by_name") and {*left.schema.names} == {*right.schema.names}:
        right = projected(right, [(name, quoted(name)) for name in left.schema.names])
    mine, theirs = left.schema.fields, right.schema.fields
    if len(mine) != len(theirs) or (tree.args.get("by_name") and left.schema.names != right.schema.names):
        message = f"{word}: the left side has {len(mine)} columns, and the right has {len(theirs)}"
        refuse(message, f"left: {left.schema.ddl}\n  right: {right.schema.ddl}")
    types = [_common(word, *pair, number) for number, pair in enumerate(zip(mine, theirs, strict=True), 1)]
    names = left.schema.names
    return _cast(left, names, types), _cast(right, names, types)


def _common(word: str, one: Field, other: Field, number: int) -> str:
    kinds = read(one.type), read(other.type)
    found = None if STRING in kinds and kinds[0] != kinds[1] else common_of_two(*kinds)
    if found is None:
        message = f"{word}: column {number} is {one.type} on the left ({one.name}) and {other.type} on the right"
        refuse(message, f"cast one of them: CAST({other.name} AS {one.type})")
    return str(found)


def _cast(relation: Relation, names: Sequence[str], types: Sequence[str]) -> Relation:
    given = zip(names, relation.schema.fields, types, strict=True)
    columns = [
        (name, quoted(old.name) if old.type == kind else f"CAST({quoted(old.name)} AS {kind})")
        for name, old, kind in given
    ]
    return projected(relation, columns)
