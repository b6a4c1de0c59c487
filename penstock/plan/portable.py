"""Which expressions mean the same in Spark and in DuckDB, to the bit.

The list is short on purpose: an expression that is not on it keeps its node in Spark. What is on it was compared with
Spark on nulls, NaN, infinities, overflow and extremes (tests/native).
"""

from __future__ import annotations

from sqlglot import exp

from penstock.errors import PipelineError
from penstock.plan.expressions import parse, scalar
from penstock.schema import Schema

_TYPES = frozenset({"string", "bigint", "int", "double", "boolean", "timestamp", "date"})
_NUMBERS = frozenset({"bigint", "int", "double"})
KEY_TYPES = frozenset({"string", "bigint", "int", "boolean", "date", "timestamp"})
_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren, exp.Null, exp.Boolean, exp.Is)
_COMPARE = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul)


def why_not(sql: str, schema: Schema) -> str | None:
    """Return what keeps an expression in Spark, or None if it may run natively."""
    return _why_not(parse(sql, node="expression"), schema)


def _why_not(tree: exp.Expr, schema: Schema) -> str | None:
    if isinstance(tree, exp.Column):
        return _column(tree, schema)
    if isinstance(tree, exp.Literal):
        whole = tree.is_string or tree.is_int
        return None if whole else f"the decimal {tree.name}"
    if isinstance(tree, _COMPARE):
        return _first(tree, schema) or _same_kind(tree, schema)
    if isinstance(tree, _ARITHMETIC):
        return _first(tree, schema) or _numbers(tree, schema)
    if isinstance(tree, _LOGIC):
        return _first(tree, schema)
    return f"{type(tree).__name__.lower()}()"


def _first(tree: exp.Expr, schema: Schema) -> str | None:
    reasons = (_why_not(part, schema) for part in tree.iter_expressions())
    return next((reason for reason in reasons if reason), None)


def _column(tree: exp.Column, schema: Schema) -> str | None:
    if tree.table or tree.name not in schema:
        return f"the field {tree.sql('spark')}"
    kind = schema.types[tree.name]
    return None if kind in _TYPES else f"the type {kind} of {tree.name}"


def _same_kind(tree: exp.Binary, schema: Schema) -> str | None:
    """Text is compared with text and numbers with numbers: across kinds the engines cast differently."""
    left, right = _type(tree.left, schema), _type(tree.right, schema)
    alike = left == right or {left, right} <= _NUMBERS
    return None if alike else f"a {left} compared with a {right}"


def _numbers(tree: exp.Binary, schema: Schema) -> str | None:
    kinds = {_type(tree.left, schema), _type(tree.right, schema)}
    return None if kinds <= _NUMBERS else f"arithmetic on {', '.join(sorted(kinds - _NUMBERS))}"


def _type(tree: exp.Expr, schema: Schema) -> str:
    try:
        return scalar(tree.sql("spark"), schema, node="expression").type
    except PipelineError:
        return "unknown"
