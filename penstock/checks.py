"""Arguments that cannot be meant: each is refused with its option, its value, and what to pass instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.contracts import Sink
from penstock.errors import BadFunction, BadValue, DanglingBranch, UnknownColumn, choices
from penstock.functions import check_call, name_of
from penstock.plan.naming import NAME_RULE, is_name
from penstock.schema import Schema

_SINKS = "sinks: topic(), files(), table(), webhook(), console(), collect(), callback()"


def sink(value: Any, node: str) -> Sink:
    """Return a sink; anything else is refused."""
    if isinstance(value, Sink):
        return value
    message = f"{shown(value)} is not a sink"
    made = str(getattr(value, "__name__", "")) if callable(value) else ""
    raise BadValue(message, node=node, hint=f"call it: {made}()" if f" {made}()" in _SINKS else _SINKS)


def helper(using: Any, node: str) -> None:
    """Refuse a `using` that makes nothing: it is called once per worker, without arguments."""
    if using is None:
        return
    if not callable(using):
        message = f"using={shown(using)} is not a function"
        hint = "pass a function or a class that makes it, such as using=httpx.AsyncClient: each worker makes its own"
        raise BadFunction(message, node=node, hint=hint)
    if not isinstance(using, type):
        check_call(using, (), node)


def optional_sink(value: Any, node: str) -> Sink | None:
    """Return a sink, or None."""
    return None if value is None else sink(value, node)


def name(value: Any, node: str, what: str = "a name") -> str:
    """Return a name of letters, digits and few signs."""
    if is_name(value):
        return str(value)
    message = f"{shown(value)} cannot be {what}"
    raise BadValue(message, node=node, hint=NAME_RULE)


def text(value: Any, node: str, example: str) -> str:
    """Return a text."""
    if isinstance(value, str):
        return value
    message = f"{shown(value)} is not a text"
    raise BadValue(message, node=node, hint=f"pass a text, such as {example}")


def column(schema: Schema, value: Any, node: str) -> None:
    """Refuse a name that no column has."""
    if not isinstance(value, str) or value not in schema:
        message = f"unknown column {shown(value)}"
        raise UnknownColumn(message, node=node, hint=choices("columns here", schema.names, str(value)))


def shown(value: Any) -> str:
    """Return what a value is, in few words: a plan or an object would fill the screen.

    >>> shown("x"), shown(len)
    ("'x'", 'the function len')
    """
    kind = type(value)
    if kind.__name__ in ("Stream", "KeyedStream", "WindowedStream", "View", "Table", "Output"):
        return f"a {kind.__name__}"
    if callable(value) and hasattr(value, "__qualname__") and not isinstance(value, type):
        return f"the function {name_of(value)}"
    if isinstance(value, (list, tuple, set)):
        return f"a {kind.__name__} of {len(value)}"
    said = repr(value)
    return said if len(said) <= 80 else f"{said[:80]}..."


class Branches(dict[str, Any]):
    """The branches of a split, by name; one that there is not is refused with those that are."""

    def __missing__(self, key: str) -> Any:
        message = f"there is no branch {key!r}"
        raise DanglingBranch(message, node="split", hint=choices("branches", self, str(key)))


def whole_number(least: int, node: str, values: Mapping[str, Any]) -> None:
    """Refuse what is no whole number, or less than the least."""
    for option, value in values.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            message = f"{option}={value!r} is not a whole number"
            raise BadValue(message, node=node, hint=f"pass {option}={least} or more")
        if value is not None and value < least:
            message = f"{option}={value} is less than {least}"
            raise BadValue(message, node=node, hint=f"pass {option}={least} or more")
