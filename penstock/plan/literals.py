"""The types of numbers and intervals as they are written."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.plan.types import BIGINT, DOUBLE, INT, Type, decimal, interval

_INT_MAX, _BIGINT_MAX = 2**31 - 1, 2**63 - 1
# Marks the cast that sqlglot makes of 10L, to tell it from a cast that the user wrote.
SUFFIXED = "suffixed"
_UNITS = ("year", "month", "day", "hour", "minute", "second")
_STORED_AS = {"week": "day", "millisecond": "second", "microsecond": "second"}


def number_type(digits: str, *, negative: bool = False) -> Type:
    """Return the type of a number; the most negative whole number has no positive twin.

    >>> str(number_type("2147483648")), str(number_type("2147483648", negative=True))
    ('bigint', 'int')
    """
    if "e" in digits.lower():
        return DOUBLE
    if "." in digits:
        return decimal_type(digits)
    value = int(digits) - negative
    if value <= _INT_MAX:
        return INT
    return BIGINT if value <= _BIGINT_MAX else decimal_type(digits)


def decimal_type(digits: str) -> Type:
    """Return the smallest decimal type that holds a number."""
    whole, _, fraction = digits.partition(".")
    significant = len((whole + fraction).lstrip("0"))
    return decimal(max(significant, len(fraction), 1), len(fraction))


def operands(trees: Sequence[exp.Expr], kinds: Sequence[Type]) -> list[Type]:
    """Return the types of operands; beside a decimal, a whole literal counts only the digits it has."""
    if not any(kind.name == "decimal" for kind in kinds):
        return list(kinds)
    pairs = zip(trees, kinds, strict=True)
    return [decimal_type(digits) if (digits := _whole_digits(tree, kind)) else kind for tree, kind in pairs]


def _whole_digits(tree: exp.Expr, kind: Type) -> str | None:
    bare = tree.unnest()
    if isinstance(bare, exp.Neg):
        bare = bare.this
    if isinstance(bare, exp.TryCast) and bare.meta.get(SUFFIXED):
        bare = bare.this
    return bare.name if isinstance(bare, exp.Literal) and kind.is_integer else None


def interval_type(unit: exp.Expr | None) -> Type | None:
    """Return the type of an interval in a unit, or from one unit TO another; None if it is no unit."""
    if isinstance(unit, exp.IntervalSpan):
        return interval(unit.this.name.lower(), unit.expression.name.lower())
    name = unit.name.lower().removesuffix("s") if unit else ""
    name = _STORED_AS.get(name, name)
    return interval(name, name) if name in _UNITS else None
