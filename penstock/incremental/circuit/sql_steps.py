"""Expressions of relations as steps in DuckDB's SQL. Only the driver imports this module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from penstock.native.steps import Step, quote
from penstock.native.translate import attempts, expression
from penstock.plan.relations import Relation
from penstock.plan.translation.parts import NotNative
from penstock.schema import Schema


def rows_schema(schema: Schema) -> pa.Schema:
    """Return the columns of rows; what may be null is not distinguished."""
    return schema.nullable().arrow


def column_list(columns: Iterable[tuple[str, str]], schema: Schema) -> str:
    """Return columns of a SELECT, ready for `str.format`."""
    return ", ".join(f"{expression(sql, schema)} AS {quote(name)}" for name, sql in columns)


def made_step(relation: Relation, sql: str, shown: str, expressions: Sequence[str], schema: Schema) -> Step:
    """Return a step with what finds the expression that failed on a row."""
    try:
        probes = tuple(attempts(expressions, schema).values())
    except NotNative:
        probes = ()
    return Step(relation.detail, relation.kind, sql, shown, probes=probes)
