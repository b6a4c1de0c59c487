"""Spark's SQL functions: which exist, which aggregate, which differ in a replay, and which argument types they refuse.

`tests/plan/sql_expressions/test_types_agree_with_spark.py` compares the refusals with Spark's.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from sqlglot import exp

from penstock.errors import choices
from penstock.plan.sql_expressions.types import STRING, VOID, Type

# Spark's grammar knows these; its registry, from which functions.txt is written, does not.
_GRAMMAR = {"timestampadd": "3", "timestampdiff": "3", "try_cast": "1"}
# These take a unit and two more arguments as well; Spark's grammar turns that form into another function.
_ALSO_THREE = ("date_add", "dateadd", "date_diff", "datediff")
_TABLES = ("generator_funcs", "table_funcs")
_MORE_TABLES = ("variant_explode", "variant_explode_outer")
_ORDER_DEPENDENT = {
    "first": "min_by",
    "first_value": "min_by",
    "last": "max_by",
    "last_value": "max_by",
    "any_value": "min_by",
}
# The number of arguments with which each one is given its seed.
_SEEDED = {"rand": 1, "random": 1, "randn": 1, "uniform": 3, "randstr": 2, "shuffle": 2, "uuid": 1}
_UNSTABLE = {
    "monotonically_increasing_id",
    "spark_partition_id",
    "input_file_name",
    "input_file_block_start",
    "input_file_block_length",
}
_REFUSED = {
    "window": "use .window(...)",
    "session_window": "use .window(session(...))",
    "window_time": "a window's result has window_start and window_end",
    "grouping": "it belongs to GROUP BY CUBE",
    "grouping_id": "it belongs to GROUP BY CUBE",
    "measure": "it belongs to metric views",
    "reflect": "use .map(...)",
    "java_method": "use .map(...)",
    "try_reflect": "use .map(...)",
}


@cache
def _known() -> dict[str, tuple[str, str]]:
    text = files("penstock.plan.sql_expressions").joinpath("functions.txt").read_text()
    registry = {name: (group, counts) for name, group, counts in map(str.split, text.splitlines())}
    return registry | {name: ("grammar_funcs", counts) for name, counts in _GRAMMAR.items()}


def names() -> list[str]:
    """Return all functions."""
    return list(_known())


def exists(name: str) -> bool:
    """Whether Spark has a function of that name, in any case of letters."""
    return name.lower() in _known()


def group(name: str) -> str:
    """Return Spark's group of a function, such as `math_funcs`."""
    return _known().get(name.lower(), ("", ""))[0]


def near(name: str) -> list[str]:
    """Return up to five functions with similar names."""
    return get_close_matches(name.lower(), _known(), n=5)


def is_aggregate(name: str) -> bool:
    """Whether a function makes one value of many rows.

    >>> is_aggregate("SUM"), is_aggregate("upper")
    (True, False)
    """
    return group(name) == "agg_funcs"


def is_window(name: str) -> bool:
    """Whether a function needs OVER."""
    return group(name) == "window_funcs"


def is_generator(name: str) -> bool:
    """Whether a function makes many rows of one."""
    return group(name) in _TABLES or name.lower() in _MORE_TABLES


def ordered_instead(name: str) -> str | None:
    """Return the aggregate to use in place of one whose result depends on the order of arrival."""
    return _ORDER_DEPENDENT.get(name.lower())


def refusal(name: str, count: int) -> str | None:
    """Return what to use instead of a function that streams do not support; None if they do."""
    name = name.lower()
    if name in _REFUSED:
        return _REFUSED[name]
    if name in _UNSTABLE:
        return "a replayed epoch would get another value; use a column of the source"
    if count < _SEEDED.get(name, 0):
        return "a replayed epoch would get another value; give it a seed as the last argument"
    return None


def accepts(name: str, count: int) -> bool:
    """Whether a function can be called with that many arguments."""
    name = name.lower()
    if count == 3 and name in _ALSO_THREE:
        return True
    least, dash, most = _known()[name][1].replace("+", "-1000").partition("-")
    return int(least) <= count <= int(most if dash else least)


def counts(name: str) -> str:
    """Return how many arguments a function takes, in words."""
    text = _known()[name.lower()][1]
    return f"{text[:-1]} or more" if text.endswith("+") else text.replace("-", " to ")


# In aggregates Spark casts strings to what it needs, and fails on the first row whose text is none: Penstock refuses
# them, because a failure inside an aggregate cannot be attributed to a row.
_SUMS = frozenset(["sum", "try_sum", "avg", "mean", "try_avg", "histogram_numeric", "bitmap_construct_agg"])
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
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
    ]
)
_PERCENTILES = frozenset(["median", "percentile", "percentile_cont", "percentile_disc"])
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
    """Return whether Spark, or Penstock instead of it, refuses the arguments of a function because of their types.

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
        return first.name != "boolean"
    if name in _ORDERED:
        return args[min(1, len(args) - 1)].has_map
    if name in _DATES:
        return first.name not in ("date", "timestamp", "timestamp_ntz", "string", "time")
    return first.name != "array" and (name in _ARRAYS or (name in _SIZES and first.name != "map"))


def advice(name: str, args: tuple[Type, ...], text: str) -> str:
    """Return which types a function takes, and how to convert the argument."""
    if name in _SUMS | _MOMENTS | _PERCENTILES | _APPROXIMATE:
        if STRING in args:
            return f"{name} takes numbers; convert the text: {name}(try_cast({text} as double)), null where it is none"
        if args[0].name == "boolean":
            return f"{name} takes numbers; to count rows for which it is true: count_if({text}), or cast({text} as int)"
        return f"{name} takes numbers; give it one, such as a field, an element or unix_seconds(...) of it"
    if name in _BOOLEANS:
        if STRING in args:
            return f"{name} takes a condition; compare the text, or convert it: {name}(try_cast({text} as boolean))"
        return f"{name} takes a condition: {name}({text} > 0)"
    if name in _ORDERED:
        return "a map has no order: compare one value of it, such as m['key']"
    if name in _DATES:
        return f"{name} takes a date or a time; seconds since 1970 become one by timestamp_seconds({text})"
    if name in _ARRAYS | _SIZES:
        return f"{name} takes an array; a text is split into one by split({text}, ',')"
    return f"convert it first: cast({text} as TYPE)"


def one_type(kinds: list[Type]) -> str:
    """Return how to give values of several types one type."""
    if len({kind.name for kind in kinds}) < 2:
        return "check the type of the column: this one is not supported"
    return f"convert one of them so that both are of one type, as in cast(... as {kinds[0]})"


def wrong_unit(name: str, nodes: Sequence[exp.Expr]) -> tuple[str, str] | None:
    """Return what is wrong with a unit of time, and the units: Spark would give null for every row."""
    position = _UNIT_AT.get(name)
    unit = nodes[position] if position is not None and len(nodes) == 2 else None
    if not isinstance(unit, exp.Literal) or unit.name.upper() in (*_UNITS, *_SHORT_UNITS):
        return None
    return f"'{unit.name}' is not a unit of time", choices("units", _UNITS, unit.name.upper())
