"""Checks of the arguments of the API: an invalid one is refused with its option, its value, and what to pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.contracts import Sink
from penstock.errors import BadFunction, BadValue, DanglingBranch, UnknownColumn, choices
from penstock.plan.naming import NAME_RULE, is_name
from penstock.schema import Schema
from penstock.signatures import check_call, name_of

_SINKS = "sinks: topic(), files(), table(), webhook(), console(), collect(), callback()"


def sink(value: Any, node: str) -> Sink:
    """Return a sink; anything else is refused."""
    if isinstance(value, Sink):
        return value
    message = f"{shown(value)} is not a sink"
    made = str(getattr(value, "__name__", "")) if callable(value) else ""
    raise BadValue(message, node=node, hint=f"call it: {made}()" if f" {made}()" in _SINKS else _SINKS)


def helper(using: Any, node: str) -> None:
    """Refuse a `using` that cannot be called: each worker calls it once, without arguments."""
    if using is None:
        return
    if not callable(using):
        message = f"using={shown(using)} is not a function"
        hint = "pass a function or a class that makes it, such as using=httpx.AsyncClient: each worker makes its own"
        raise BadFunction(message, node=node, hint=hint)
    if not isinstance(using, type):
        check_call(using, (), node)


def reducer(fn: Any, node: str) -> Callable[..., Any]:
    """Return a function of two rows."""
    if not callable(fn):
        message = f"{shown(fn)} is not a function"
        raise BadFunction(message, node=node, hint="SQL goes in strings to aggregate(), Python in functions")
    check_call(fn, ("a", "b"), node)
    return fn  # type: ignore[no-any-return]


def one_of(value: Any, valid: tuple[Any, ...], what: str, node: str) -> None:
    """Refuse a value of an option that is not in its list."""
    if value not in valid:
        message = f"{what}={value!r} is not known"
        raise BadValue(message, node=node, hint=choices(what, [repr(one) for one in valid if one]))


def optional_sink(value: Any, node: str) -> Sink | None:
    """Return a sink, or None."""
    return None if value is None else sink(value, node)


def name(value: Any, node: str, what: str = "a name") -> str:
    """Return a valid name of a node or a pipeline."""
    if is_name(value):
        return str(value)
    message = f"{shown(value)} cannot be {what}"
    raise BadValue(message, node=node, hint=NAME_RULE)


def text(value: Any, node: str, example: str) -> str:
    """Return a string; anything else is refused."""
    if isinstance(value, str):
        return value
    message = f"{shown(value)} is not a string"
    raise BadValue(message, node=node, hint=f"pass a string, such as {example}")


def column(schema: Schema, value: Any, node: str) -> None:
    """Refuse the name of an unknown column."""
    if not isinstance(value, str) or value not in schema:
        message = f"unknown column {shown(value)}"
        raise UnknownColumn(message, node=node, hint=choices("columns here", schema.names, str(value)))


def shown(value: Any) -> str:
    """Describe a value in a few words: the repr of a plan would fill the screen.

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
    written = repr(value)
    return written if len(written) <= 80 else f"{written[:80]}..."


class Branches(dict[str, Any]):
    """The branches of a split, by name; an unknown name is refused with a list of the known ones."""

    def __missing__(self, key: str) -> Any:
        message = f"unknown branch {key!r}"
        raise DanglingBranch(message, node="split", hint=choices("branches", self, str(key)))
