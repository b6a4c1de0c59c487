"""Types that functions refuse, where the rules of their results do not say it, and what to do about them.

`tests/plan/test_types_agree_with_spark.py` asks Spark whether it refuses the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.errors import choices
from penstock.plan.types import STRING, VOID, Type

# Spark makes doubles of texts here, and fails on the first row that is no number: Penstock refuses them.
_SUMS = frozenset(["sum", "try_sum", "avg", "mean", "try_avg"])
_MOMENTS = frozenset(
    [
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "variance",
        "var_pop",
        "var_samp",
        "skewness",
        "kurtosis",
        "corr",
        "covar_pop",
        "covar_samp",
        "regr_avgx",
        "regr_avgy",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
    ]
)
_PERCENTILES = frozenset(["median", "percentile", "percentile_cont"])
_APPROXIMATE = frozenset(["percentile_approx", "approx_percentile"])
_BOOLEANS = frozenset(["bool_and", "bool_or", "every", "some", "any", "count_if"])
_ORDERED = frozenset(["min", "max", "min_by", "max_by"])
_DATES = frozenset(
    [
        "year",
        "quarter",
        "month",
        "day",
        "dayofmonth",
        "dayofweek",
        "dayofyear",
        "weekofyear",
        "weekday",
        "hour",
        "minute",
        "second",
        "last_day",
        "add_months",
        "date_add",
        "date_sub",
        "date_format",
        "unix_date",
        "unix_micros",
        "unix_millis",
        "unix_seconds",
        "dayname",
        "monthname",
    ]
)
_ARRAYS = frozenset(
    [
        "array_contains",
        "array_distinct",
        "array_max",
        "array_min",
        "array_position",
        "array_remove",
        "array_size",
        "array_compact",
    ]
)
_SIZES = frozenset(("size", "cardinality"))
_UNIT_AT = {"date_trunc": 0, "trunc": 1}
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
_SHORT_UNITS = ("YYYY", "YY", "MM", "MON", "DD")
_PAIRS = ("corr", "covar", "regr")


def refuses(name: str, args: tuple[Type, ...]) -> bool:
    """Say whether Spark, or Penstock in its place, refuses the arguments of a function because of their types.

    >>> refuses("sum", (STRING,)), refuses("stddev", (Type("int"),))
    (True, False)
    """
    if not args or args[0] == VOID:
        return False
    first = args[0]
    values = args[: 2 if name.startswith(_PAIRS) else 1]
    if name in _SUMS:
        return first == STRING
    if name in _MOMENTS:
        return not all(one.is_numeric or one == VOID for one in values)
    if name in _PERCENTILES:
        return not (first.is_numeric or first.is_interval)
    if name in _APPROXIMATE:
        return not (first.is_numeric or first.is_interval or first.name in ("date", "timestamp", "timestamp_ntz"))
    if name in _BOOLEANS:
        return first.name not in ("boolean", "string")
    if name in _ORDERED:
        return args[min(1, len(args) - 1)].has_map
    if name in _DATES:
        return first.name not in ("date", "timestamp", "timestamp_ntz", "string", "time")
    return first.name != "array" and (name in _ARRAYS or (name in _SIZES and first.name != "map"))


def advice(name: str, args: tuple[Type, ...], text: str) -> str:
    """Return what a function takes, and how the argument becomes that."""
    if name in _SUMS | _MOMENTS | _PERCENTILES | _APPROXIMATE:
        if STRING in args:
            return f"{name} takes numbers; convert the text: {name}(try_cast({text} as double)), null where it is none"
        if args[0].name == "boolean":
            return f"{name} takes numbers; to count what is true: count_if({text}), or cast({text} as int)"
        return f"{name} takes numbers; give it one, such as a field, an element or unix_seconds(...) of it"
    if name in _BOOLEANS:
        return f"{name} takes a condition: {name}({text} > 0)"
    if name in _ORDERED:
        return "a map has no order: compare one value of it, such as m['key']"
    if name in _DATES:
        return f"{name} takes a date or a time; seconds since 1970 become one by timestamp_seconds({text})"
    if name in _ARRAYS | _SIZES:
        return f"{name} takes an array; a text is split into one by split({text}, ',')"
    return f"convert it first: cast({text} as TYPE)"


def one_type(kinds: list[Type]) -> str:
    """Say how values of several types come together."""
    if len({kind.name for kind in kinds}) < 2:
        return "it works on other types than this one: look at what the column holds"
    return f"convert one of them so that both are of one type, as in cast(... as {kinds[0]})"


def wrong_unit(name: str, nodes: Sequence[exp.Expr]) -> tuple[str, str] | None:
    """Return what is wrong with a unit of time, and the units: Spark would give null for every row."""
    place = _UNIT_AT.get(name)
    unit = nodes[place] if place is not None and len(nodes) == 2 else None
    if not isinstance(unit, exp.Literal) or unit.name.upper() in (*_UNITS, *_SHORT_UNITS):
        return None
    return f"'{unit.name}' is not a unit of time", choices("units", _UNITS, unit.name.upper())
