"""Functions of dates and times, in UTC, on the calendar that reaches back before 1582 unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from sqlglot import exp

from penstock.plan.translation.parts import Form, Part, not_native, safe_after_first

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
# The first midnight that is a timestamp in DuckDB.
_FIRST_US = -9_223_372_022_400_000_000
_MOST_DAYS = 100_000
_MOST_MONTHS = 12_000
_WHOLE = re.compile(r"-?\d{1,9}")


def shifted(sign: str, tree: exp.Expr, part: Callable[[exp.Expr], Part]) -> Part | None:
    """Write `time + INTERVAL ...` and `date + days`, or return None if it is neither."""
    if sign not in "+-" or isinstance(tree.this, exp.Interval):
        return None
    span, months = _microseconds(tree.expression), _months(tree.expression)
    moved = part(tree.this)
    if months is not None and moved.type.name == "date":
        # The last day of a shorter month stands for those that it has not, in both engines.
        return Part(f"CAST({moved.sql} {sign} to_months({months}) AS DATE)", moved.type, tree, moved.fails)
    if span is None:
        return _by_days(sign, moved, tree.expression, part)
    if moved.type.name == "timestamp":
        return Part(f"({moved.sql} {sign} to_microseconds({span}))", moved.type, tree, moved.fails)
    days, rest = divmod(span, _MICROSECONDS["day"])
    if moved.type.name == "date" and not rest and _span_unit(tree.expression) in ("day", "week"):
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
        not_native("a number of days that is an int and not written out")
    return f"({day.sql} {sign} CAST({days.sql} AS INTEGER))"


def _microseconds(tree: exp.Expr) -> int | None:
    """Return the length of a span of one unit that is always equally long."""
    per_unit = _MICROSECONDS.get(_span_unit(tree))
    if per_unit is None or not _WHOLE.fullmatch(tree.this.name):
        return None
    return int(tree.this.name) * per_unit


def _months(tree: exp.Expr) -> int | None:
    """Return the length of a span of whole months or years."""
    per_unit = {"month": 1, "year": 12}.get(_span_unit(tree))
    if per_unit is None or not _WHOLE.fullmatch(tree.this.name):
        return None
    months = int(tree.this.name) * per_unit
    return months if abs(months) <= _MOST_MONTHS else None


def _span_unit(tree: exp.Expr) -> str:
    unit = tree.args.get("unit") if isinstance(tree, exp.Interval) else None
    return unit.name.lower().removesuffix("s") if isinstance(unit, exp.Var) else ""


# DuckDB's functions of a time with zone use ICU, which is ten times slower; in UTC a time without zone is the same.
NAIVE = "make_timestamp(epoch_us({}))"
_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("quarter", "week", "hour", "minute", "second", "millisecond", "microsecond")},
}
_DAYS_AND_LONGER = ("year", "quarter", "month", "week")
_FIELDS = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "day dayofmonth": "day",
    "dayofyear": "dayofyear",
    "weekofyear": "weekofyear",
}


def _unit(part: Part) -> str:
    unit = _UNITS.get((part.text or "").lower())
    if unit is None:
        not_native(f"the unit {part.tree.sql('spark')}")
    return unit


def _date_trunc(unit: Part, time: Part) -> str:
    found = f"CAST(date_trunc('{_unit(unit)}', {NAIVE.format(time.sql)}) AS TIMESTAMP)"
    # DuckDB would turn the lowest hours around into the far future, and takes both ends for infinity, which is null.
    odd = f"{time.sql} < make_timestamp({_FIRST_US})::TIMESTAMPTZ OR isinf({time.sql})"
    # What raises here must not be volatile, as `error()` is: TRY does not take that.
    failed = f"CAST(concat('a time out of range: ', epoch_us({time.sql})) AS TIMESTAMP)"
    return f"(CASE WHEN {odd} THEN {failed} ELSE {found} END)"


def _trunc(day: Part, unit: Part) -> str:
    if _unit(unit) not in _DAYS_AND_LONGER:
        not_native(f"the unit {unit.tree.sql('spark')}")
    return f"date_trunc('{_unit(unit)}', {day.sql})"


def _since_1970(per_unit: int) -> str:
    """Whole units since 1970, rounded down before it too. Nothing here is below the first time, which would raise."""
    return f"(epoch_us({{0}}) // {per_unit} - CASE WHEN epoch_us({{0}}) % {per_unit} < 0 THEN 1 ELSE 0 END)"


def _from_1970(per_unit: int) -> str:
    return f"make_timestamp(CAST({{0}} AS BIGINT) * {per_unit})"


def _fields() -> list[Form]:
    found = []
    for names, call in _FIELDS.items():
        found.append(Form(names, "timestamp", f"{call}({NAIVE.format('{0}')})"))
        # The first days of all have no Thursday of their week in DuckDB.
        found.append(Form(names, "date", f"{call}({{0}})", fails=names == "weekofyear"))
    for name in ("hour", "minute", "second"):
        found.append(Form(name, "timestamp", f"{name}({NAIVE.format('{0}')})"))
    for kind, value in (("timestamp", NAIVE.format("{0}")), ("date", "{0}")):
        found.append(Form("dayofweek", kind, f"(dayofweek({value}) + 1)"))
        found.append(Form("weekday", kind, f"(isodow({value}) - 1)"))
    return found


TIMES = [
    *_fields(),
    Form("date_trunc", "string timestamp", _date_trunc, fails=True),
    # DuckDB calculates with it as a timestamp, and those end some 292,000 years from now.
    Form("trunc", "date string", _trunc, fails=True),
    # These two cut towards 1970, unix_seconds rounds down.
    Form("unix_timestamp to_unix_timestamp", "timestamp", "(epoch_us({0}) // 1000000)"),
    Form("unix_seconds", "timestamp", _since_1970(1_000_000)),
    Form("unix_millis", "timestamp", _since_1970(1_000)),
    Form("unix_micros", "timestamp", "epoch_us({0})"),
    Form("unix_date", "date", "({0} - DATE '1970-01-01')"),
    Form("timestamp_seconds", "whole", _from_1970(1_000_000), fails=True),
    Form("timestamp_millis", "whole", _from_1970(1_000), fails=True),
    Form("timestamp_micros", "whole", _from_1970(1), fails=True),
    Form("to_date", "timestamp", f"CAST({NAIVE.format('{0}')} AS DATE)"),
    Form("to_date", "date", "{0}"),
    Form("to_timestamp", "timestamp", "{0}"),
    Form("date_add dateadd", "date int", partial(by_days, "+"), fails=True),
    Form("date_sub", "date int", partial(by_days, "-"), fails=True),
    Form("datediff date_diff", "date date", "({0} - {1})", fails=True),
    Form("last_day", "date", "last_day({0})", fails=True),
]
