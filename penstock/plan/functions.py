"""Spark's SQL functions by name: which exist, which aggregate, which would differ in a replayed epoch."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files

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
    text = files("penstock.plan").joinpath("functions.txt").read_text()
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
    """Return up to five functions that may have been meant."""
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
    """Return what to do instead of calling a function that has no place in a stream; None if it has."""
    name = name.lower()
    if name in _REFUSED:
        return _REFUSED[name]
    if name in _UNSTABLE:
        return "a replayed epoch would get another value; keep what you need in a column of the source"
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
