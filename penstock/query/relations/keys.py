"""Equalities as the keys of joins: expressions become columns, and both sides get one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.plan.relations import Relation
from penstock.plan.sql_expressions.expression import scalar
from penstock.plan.sql_expressions.types import common_of_two, read
from penstock.plan.translation import why_not
from penstock.query.parsing import text_of
from penstock.query.relations.context import Context, extended
from penstock.query.relations.trees import NODE, columns_of, queries_in
from penstock.schema import Schema, quoted

_DEFAULTS = {"string": "''", "boolean": "FALSE", "date": "DATE '1970-01-01'", "timestamp": "TIMESTAMP '1970-01-01'"}


@dataclass(frozen=True)
class Equality:
    """A condition `left = right` with one side of each relation."""

    left: exp.Expr
    right: exp.Expr


def equality(tree: exp.Expr, left: Schema, right: Schema) -> Equality | None:
    """Return a condition as an equality of two relations; None if it is not one that a join can use as a key."""
    if not isinstance(tree, exp.EQ) or queries_in(tree):
        return None
    for mine, theirs in ((tree.left, tree.right), (tree.right, tree.left)):
        if _is_of(mine, left) and _is_of(theirs, right) and common_type(mine, left, theirs, right):
            return Equality(mine.unnest(), theirs.unnest())
    return None


def _is_of(tree: exp.Expr, schema: Schema) -> bool:
    found = columns_of(tree)
    return bool(found) and found <= {*schema.names}


def common_type(left: exp.Expr, schema: Schema, right: exp.Expr, other: Schema) -> str | None:
    """Return the type in which two sides are compared, if both can become it without a reader of text."""
    kinds = [read(scalar(text_of(tree), one, node=NODE).type) for tree, one in ((left, schema), (right, other))]
    if kinds[0] == kinds[1]:
        return str(kinds[0])
    found = None if any(kind.name == "string" for kind in kinds) else common_of_two(*kinds)
    if found is None or any(why_not(_cast(text_of(t), str(found)), s) for t, s in ((left, schema), (right, other))):
        return None
    return str(found)


def with_keys(
    left: Relation, right: Relation, equalities: Sequence[Equality], context: Context
) -> tuple[Relation, Relation, tuple[tuple[str, str], ...]]:
    """Return both relations with columns for the sides of equalities, and the pairs of their names."""
    kinds = [common_type(one.left, left.schema, one.right, right.schema) or "" for one in equalities]
    left, mine = _with_columns(left, [one.left for one in equalities], kinds, context)
    right, theirs = _with_columns(right, [one.right for one in equalities], kinds, context)
    return left, right, tuple(dict.fromkeys(zip(mine, theirs, strict=True)))


def _with_columns(
    relation: Relation, trees: Sequence[exp.Expr], kinds: Sequence[str], context: Context
) -> tuple[Relation, list[str]]:
    names, made = [], {}
    for tree, kind in zip(trees, kinds, strict=True):
        sql = text_of(tree)
        if isinstance(tree, exp.Column) and relation.schema.types.get(tree.name) == kind and quoted(tree.name) == sql:
            names.append(tree.name)
            continue
        given = scalar(sql, relation.schema, node=NODE).type
        sql = sql if given == kind else _cast(sql, kind)
        if sql not in made:
            made[sql] = context.internal("key")
        names.append(made[sql])
    return extended(relation, [(name, sql) for sql, name in made.items()]), names


def with_column(relation: Relation, tree: exp.Expr, context: Context, name: str = "key") -> tuple[Relation, str]:
    """Return the relation with a column for an expression, and its name; a column is itself."""
    sql = text_of(tree)
    if isinstance(tree.unnest(), exp.Column) and (own := tree.unnest().name) in relation.schema:
        return relation, own
    made = context.internal(name)
    return extended(relation, [(made, sql)]), made


def null_safe(
    left: Relation, right: Relation, pairs: Sequence[tuple[str, str]], context: Context
) -> tuple[Relation, Relation, tuple[tuple[str, str], ...]]:
    """Return both relations with keys that are equal where the columns are, null being equal to null."""
    on: list[tuple[str, str]] = []
    made: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    for pair in pairs:
        fields = left.schema.field(pair[0]), right.schema.field(pair[1])
        if not all(field.nullable for field in fields):
            on.append(pair)
            continue
        default = _DEFAULTS.get(fields[0].type, f"CAST(0 AS {fields[0].type})")
        flags = context.internal("is_null"), context.internal("is_null")
        values = context.internal("or_default"), context.internal("or_default")
        for side, column in enumerate(map(quoted, pair)):
            made[side].append((flags[side], f"{column} IS NULL"))
            made[side].append((values[side], f"coalesce({column}, {default})"))
        on += [flags, values]
    return extended(left, made[0]), extended(right, made[1]), tuple(on)


def _cast(sql: str, kind: str) -> str:
    return f"CAST({sql} AS {kind})"
