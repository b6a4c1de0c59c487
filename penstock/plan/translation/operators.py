"""Arithmetic: Spark widens both sides first, raises on overflow and on a division by zero."""

from __future__ import annotations

from collections.abc import Callable

from penstock.plan.sql_expressions.arithmetic_types import no_digit_is_cut, operate
from penstock.plan.sql_expressions.types import DOUBLE, MOST_DIGITS, Type, as_decimal, common, operands
from penstock.plan.translation.casts import widened
from penstock.plan.translation.parts import Part, duckdb_type, kinds_of, not_native

TRIED = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/", "try_mod": "%"}
_KINDS = ("tinyint", "smallint", "int", "bigint", "float", "double")
FORMS = {f"{sign} {kind}" for sign in "+-*/%" for kind in _KINDS}
FORMS |= {f"div {kind}" for kind in _KINDS[:4]} | {f"{sign} decimal" for sign in "+-*"}
FORMS |= {f"{name} {kind}" for name in TRIED for kind in (*_KINDS[:4], "double")}
# A type in which no sum, difference or product of the narrower one overflows.
_ROOMY = {"bigint": "HUGEINT", "int": "BIGINT", "smallint": "INTEGER", "tinyint": "SMALLINT"}


def form(name: str, left: Part, right: Part) -> str:
    """Return the name of an operator on these types in the list of supported forms."""
    kind = common([left.type, right.type])
    found = f"{name} {kind.name if kind else ''}"
    if found not in FORMS or "void" in (left.type.name, right.type.name):
        not_native(f"{name} on {kinds_of([left, right])}")
    return found


def arithmetic(sign: str, left: Part, right: Part) -> str:
    """Write `left sign right`."""
    kind = _common(left, right)
    if kind.name == "decimal":
        return _decimals(sign, left, right)
    if sign == "/":
        kind = DOUBLE
    a, b = widened(left, kind), widened(right, kind)
    return _SIGNS[sign](sign, a, b, kind)


def tried(sign: str, left: Part, right: Part) -> str:
    """Write `try_add` and its like: null where the operator raises."""
    kind = _common(left, right)
    if sign == "/":
        return f"({widened(left, DOUBLE)} / nullif({widened(right, DOUBLE)}, 0))"
    a, b = widened(left, kind), widened(right, kind)
    if sign == "%":
        return f"({a} % {_not_minus_one(f'nullif({b}, 0)', kind)})"
    if kind == DOUBLE:
        return f"({a} {sign} {b})"
    roomy = _ROOMY[kind.name]
    return f"TRY_CAST((CAST({a} AS {roomy}) {sign} CAST({b} AS {roomy})) AS {duckdb_type(kind)})"


def guarded(sign: str, sql: str, left: Part, right: Part) -> str:
    """Leave out an operand that can fail where Spark does: it evaluates no second one beside a null.

    The first is the left one, but for a division the divisor. DuckDB evaluates both.
    """
    first, second = (right, left) if sign in ("/", "%", "div") else (left, right)
    return f"(CASE WHEN {first.sql} IS NULL THEN NULL ELSE {sql} END)" if second.fails else sql


def _common(left: Part, right: Part) -> Type:
    kind = common([left.type, right.type])
    assert kind is not None
    return kind


def _decimals(sign: str, left: Part, right: Part) -> str:
    """Write + - and * on decimals; only where no digit is cut from the result, both engines are exact."""
    sizes = operands([left.tree, right.tree], [left.type, right.type])
    if operate(sign, *sizes) is None or not no_digit_is_cut(sign, *sizes):
        not_native(f"{sign} on {kinds_of([left, right])}")
    a, b = (_roomy_decimal(part, as_decimal(size)) for part, size in zip((left, right), sizes, strict=True))
    return f"({a} {sign} {b})"


def _roomy_decimal(part: Part, kind: Type) -> str:
    """Write a decimal of 38 digits: DuckDB checks a product against the digits of its operands."""
    digits = part.number
    sql = widened(part, kind) if digits is None else f"'{digits}'"
    return f"CAST({sql} AS DECIMAL({MOST_DIGITS},{kind.size[1]}))"


def _plain(sign: str, a: str, b: str, kind: Type) -> str:
    return f"({a} {sign} {b})"


def _remainder(sign: str, a: str, b: str, kind: Type) -> str:
    return f"({a} % {_not_minus_one(b, kind)})"


def _whole_divided(sign: str, a: str, b: str, kind: Type) -> str:
    return f"(CAST({a} AS BIGINT) // CAST({b} AS BIGINT))"


def _not_minus_one(b: str, kind: Type) -> str:
    """Divide by 1 instead of -1: no remainder either way, and the least number has no positive twin."""
    return f"(CASE WHEN {b} = -1 THEN 1 ELSE {b} END)" if kind.is_integer else b


_SIGNS: dict[str, Callable[[str, str, str, Type], str]] = {
    **dict.fromkeys("+-*/", _plain),
    "%": _remainder,
    "div": _whole_divided,
}
