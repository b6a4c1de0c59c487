"""Casts that Spark refuses whatever the value is, under ANSI rules."""

from __future__ import annotations

from penstock.plan.types import BINARY, BOOLEAN, DATE, STRING, VOID, Type

_TIMES = ("timestamp", "timestamp_ntz")


def castable(given: Type, target: Type) -> bool:
    """Say whether a cast may work; only what never does is refused.

    >>> castable(Type("array", (DATE,)), DATE), castable(STRING, DATE)
    (False, True)
    """
    if VOID in (given, target) or given == target or "variant" in (given.name, target.name):
        return True
    if given.parts or target.parts:
        return target == STRING or given.name == target.name
    if given == DATE:
        return not (target.is_numeric or target in (BOOLEAN, BINARY))
    if target == DATE:
        return not (given.is_numeric or given in (BOOLEAN, BINARY))
    if BOOLEAN in (given, target):
        other = target if given == BOOLEAN else given
        return other == STRING or other.is_numeric
    return not (given == BINARY and (target.is_numeric or target.name in _TIMES))


def cast_advice(given: Type, target: Type, text: str) -> str:
    """Say how to come from one type to another."""
    if given == DATE and target.is_numeric:
        return f"count the days: unix_date({text}), or take a part: year({text})"
    if target == DATE and given.is_numeric:
        return f"days since 1970 become a date by date_from_unix_date({text})"
    if given.name == "array":
        return f"take one of its elements: {text}[0]"
    if given.name == "struct":
        return f"take one of its fields: {text}.{given.fields[0]}"
    if given.name == "map":
        return f"take one of its values: {text}['key']"
    return "choose another type, or cast to string first"
