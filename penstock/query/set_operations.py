"""UNION of two queries."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.errors import BadExpression
from penstock.plan.sql_expressions.types import STRING, common_of_two, read
from penstock.query.parsing import NODE
from penstock.schema import Field, quoted
from penstock.stream import Stream


def united(tree: exp.Union, left: Stream, right: Stream) -> Stream:
    """Return the union of two queries: columns match by position, as in Spark, and have the left's names."""
    if tree.args.get("by_name") and set(left.schema.names) == set(right.schema.names):
        right = right.select(*map(quoted, left.schema.names))
    mine, theirs = left.schema.fields, right.schema.fields
    if len(mine) != len(theirs) or (tree.args.get("by_name") and left.schema.names != right.schema.names):
        message = f"UNION: the left side has {len(mine)} columns, and the right has {len(theirs)}"
        raise BadExpression(message, node=NODE, hint=f"left: {left.schema.ddl}\n  right: {right.schema.ddl}")
    types = [_common(one, other, number) for number, (one, other) in enumerate(zip(mine, theirs, strict=True), 1)]
    names = left.schema.names
    return _cast(left, names, types).union(_cast(right, names, types))


def _common(one: Field, other: Field, number: int) -> str:
    """Return the type of a column that both sides become: the wider number, the time of a date."""
    kinds = read(one.type), read(other.type)
    found = None if STRING in kinds and kinds[0] != kinds[1] else common_of_two(*kinds)
    if found is None:
        message = f"UNION: column {number} is {one.type} on the left ({one.name}) and {other.type} on the right"
        raise BadExpression(message, node=NODE, hint=f"cast one of them: CAST({other.name} AS {one.type})")
    return str(found)


def _cast(stream: Stream, names: Sequence[str], types: Sequence[str]) -> Stream:
    given = stream.schema.fields
    chosen = {
        name: quoted(old.name) if old.type == kind else f"CAST({quoted(old.name)} AS {kind})"
        for name, old, kind in zip(names, given, types, strict=True)
    }
    same = all(sql == quoted(name) for name, sql in chosen.items()) and tuple(names) == stream.schema.names
    return stream if same else stream.select(chosen)
