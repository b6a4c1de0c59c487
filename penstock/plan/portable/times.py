"""Functions of dates and times, in UTC, on the calendar that reaches back before 1582 unchanged."""

from __future__ import annotations

from functools import partial

from penstock.plan.portable.forms import Form
from penstock.plan.portable.intervals import by_days
from penstock.plan.portable.parts import Part, stay

# DuckDB's functions of a time with zone ask ICU, ten times slower; in UTC a time without zone is the same.
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
        stay(f"the unit {part.tree.sql('spark')}")
    return unit


def _date_trunc(unit: Part, time: Part) -> str:
    return f"CAST(date_trunc('{_unit(unit)}', {NAIVE.format(time.sql)}) AS TIMESTAMP)"


def _trunc(day: Part, unit: Part) -> str:
    if _unit(unit) not in _DAYS_AND_LONGER:
        stay(f"the unit {unit.tree.sql('spark')}")
    return f"date_trunc('{_unit(unit)}', {day.sql})"


def _since_1970(per_unit: int) -> str:
    """Whole units since 1970, rounded down before it too."""
    return f"((epoch_us({{0}}) - (epoch_us({{0}}) % {per_unit} + {per_unit}) % {per_unit}) // {per_unit})"


def _from_1970(per_unit: int) -> str:
    return f"make_timestamp(CAST({{0}} AS BIGINT) * {per_unit})"


def _fields() -> list[Form]:
    found = []
    for names, call in _FIELDS.items():
        found.append(Form(names, "timestamp", f"{call}({NAIVE.format('{0}')})"))
        found.append(Form(names, "date", f"{call}({{0}})"))
    for name in ("hour", "minute", "second"):
        found.append(Form(name, "timestamp", f"{name}({NAIVE.format('{0}')})"))
    for kind, value in (("timestamp", NAIVE.format("{0}")), ("date", "{0}")):
        found.append(Form("dayofweek", kind, f"(dayofweek({value}) + 1)"))
        found.append(Form("weekday", kind, f"(isodow({value}) - 1)"))
    return found


TIMES = [
    *_fields(),
    Form("date_trunc", "string timestamp", _date_trunc),
    Form("trunc", "date string", _trunc),
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
    Form("last_day", "date", "last_day({0})"),
]
