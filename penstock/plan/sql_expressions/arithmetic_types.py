"""The result types of Spark's operators on numbers, times and intervals, under ANSI rules."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.plan.sql_expressions.types import (
    BIGINT,
    DATE,
    DOUBLE,
    MOST_DIGITS,
    STRING,
    TIMESTAMP,
    VOID,
    Type,
    as_decimal,
    common_of_two,
    decimal,
    interval,
)

SIGNS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_LEAST_SCALE = 6
_DAY_TO_SECOND = interval("day", "second")
_YEAR_TO_MONTH = interval("year", "month")
_TIMES = ("timestamp", "timestamp_ntz")


def operate(sign: str, a: Type, b: Type) -> Type | None:
    """Return the type of `a sign b` for + - * / % and div; None if Spark refuses these operands.

    >>> str(operate("*", decimal(10, 2), decimal(5, 1)))
    'decimal(16,3)'
    """
    if sign == "/" and a == VOID and b.is_numeric:
        return DOUBLE
    a, b = _void_as(b, a), _void_as(a, b)
    if sign in "+-" and (timed := _with_time(sign, a, b)):
        return timed
    if a.is_interval or b.is_interval:
        return _with_interval(sign, a, b)
    kind = _numbers(a, b)
    if kind is None:
        return None
    if sign == "div":
        return BIGINT
    if kind.name == "decimal":
        return _DECIMALS[sign](as_decimal(a).size, as_decimal(b).size)
    return DOUBLE if sign == "/" else kind


def bits(a: Type, b: Type) -> Type | None:
    """Return the type of `a & b`, `a | b` and `a ^ b`."""
    kind = _numbers(a, b)
    return kind if kind and kind.is_integer else None


def scaled(kind: Type) -> Type:
    """Return the type of an interval after a multiplication, a division, a sum or an average."""
    return _YEAR_TO_MONTH if kind.is_years else _DAY_TO_SECOND


def _void_as(kind: Type, other: Type) -> Type:
    """Return the type that NULL takes beside another operand."""
    if other != VOID:
        return other
    return DOUBLE if kind == VOID else kind


def _numbers(a: Type, b: Type) -> Type | None:
    kind = common_of_two(a, b)
    return kind if kind and kind.is_numeric else None


def _with_time(sign: str, a: Type, b: Type) -> Type | None:
    if sign == "-" and (between := _between(a, b)):
        return between
    if sign == "+" and (b == DATE or b.name in _TIMES):
        a, b = b, a
    if a.name in _TIMES:
        return a if b.is_interval or b.name == "interval" else None
    if a == DATE and b.name in ("int", "smallint", "tinyint"):
        return DATE
    if a == DATE and b.is_interval:
        return DATE if b.is_years or b.name == "interval day" else TIMESTAMP
    return None


def _between(a: Type, b: Type) -> Type | None:
    """Return the type of the difference of two times."""
    names = {a.name, b.name}
    if names == {"date"}:
        return interval("day", "day")
    return _DAY_TO_SECOND if names <= {"date", "string", *_TIMES} and names & set(_TIMES) else None


def _with_interval(sign: str, a: Type, b: Type) -> Type | None:
    if a.is_interval and b.is_interval:
        same = a.is_years == b.is_years
        if sign == "div":
            return BIGINT if same else None
        return common_of_two(a, b) if sign in "+-" else None
    span, number = (a, b) if a.is_interval else (b, a)
    fits = number.is_numeric or number == STRING
    if fits and (sign == "*" or (sign == "/" and span is a)):
        return scaled(span)
    return None


def no_digit_is_cut(sign: str, a: Type, b: Type) -> bool:
    """Return whether the type of `a sign b` holds every result of + - and * on two decimals."""
    (p, s), (q, t) = as_decimal(a).size, as_decimal(b).size
    return (p + q + 1 if sign == "*" else max(p - s, q - t) + max(s, t) + 1) <= MOST_DIGITS


def _adjusted(precision: int, scale: int) -> Type:
    """Cut a decimal to 38 digits as Spark does: whole digits first, but at least six decimals are kept."""
    if precision <= MOST_DIGITS:
        return decimal(precision, scale)
    kept = max(MOST_DIGITS - (precision - scale), min(scale, _LEAST_SCALE))
    return decimal(MOST_DIGITS, kept)


def _sum(a: tuple[int, int], b: tuple[int, int]) -> Type:
    scale = max(a[1], b[1])
    return _adjusted(max(a[0] - a[1], b[0] - b[1]) + scale + 1, scale)


def _product(a: tuple[int, int], b: tuple[int, int]) -> Type:
    return _adjusted(a[0] + b[0] + 1, a[1] + b[1])


def _quotient(a: tuple[int, int], b: tuple[int, int]) -> Type:
    scale = max(_LEAST_SCALE, a[1] + b[0] + 1)
    return _adjusted(a[0] - a[1] + b[1] + scale, scale)


def _remainder(a: tuple[int, int], b: tuple[int, int]) -> Type:
    scale = max(a[1], b[1])
    return _adjusted(min(a[0] - a[1], b[0] - b[1]) + scale, scale)


_DECIMALS: dict[str, Callable[[tuple[int, int], tuple[int, int]], Type]] = {
    "+": _sum,
    "-": _sum,
    "*": _product,
    "/": _quotient,
    "%": _remainder,
}
