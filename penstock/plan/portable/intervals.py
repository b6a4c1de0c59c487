"""Times and dates moved by a span that is written out, or a date by a number of days."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from penstock.plan.portable.parts import Part, safe_after_first, stay

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_MOST_DAYS = 100_000
_WHOLE = re.compile(r"-?\d{1,9}")


def shifted(sign: str, tree: exp.Expr, part: Callable[[exp.Expr], Part]) -> Part | None:
    """Write `time + INTERVAL ...` and `date + days`, or return None if it is neither."""
    if sign not in "+-" or isinstance(tree.this, exp.Interval):
        return None
    span = _microseconds(tree.expression)
    moved = part(tree.this)
    if span is None:
        return _by_days(sign, moved, tree.expression, part)
    if moved.type.name == "timestamp":
        return Part(f"({moved.sql} {sign} to_microseconds({span}))", moved.type, tree, moved.fails)
    days, rest = divmod(span, _MICROSECONDS["day"])
    if moved.type.name == "date" and not rest and _unit(tree.expression) in ("day", "week"):
        return Part(f"({moved.sql} {sign} {days}::INTEGER)", moved.type, tree, moved.fails)
    return None


def _by_days(sign: str, moved: Part, tree: exp.Expr, part: Callable[[exp.Expr], Part]) -> Part | None:
    if moved.type.name != "date" or isinstance(tree, exp.Interval):
        return None
    days = part(tree)
    if days.type.name not in ("int", "smallint", "tinyint"):
        return None
    safe_after_first([moved, days], f"date {sign} days")
    return Part(by_days(sign, moved, days), moved.type, tree, moved.fails or days.fails)


def by_days(sign: str, day: Part, days: Part) -> str:
    """Move a date by days; Spark counts on from the last date there is to the first, DuckDB raises."""
    if days.type.name == "int" and (days.number is None or abs(days.number) > _MOST_DAYS):
        stay("a number of days that is an int and not written out")
    return f"({day.sql} {sign} CAST({days.sql} AS INTEGER))"


def _microseconds(tree: exp.Expr) -> int | None:
    """Return the length of a span of one unit that is always equally long."""
    per_unit = _MICROSECONDS.get(_unit(tree))
    if per_unit is None or not _WHOLE.fullmatch(tree.this.name):
        return None
    return int(tree.this.name) * per_unit


def _unit(tree: exp.Expr) -> str:
    unit = tree.args.get("unit") if isinstance(tree, exp.Interval) else None
    return unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""
