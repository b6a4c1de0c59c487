"""Checks of the arguments of the API: an invalid one is refused with its option, its value, and what to pass.

Those of `join` and `join_asof` are checked together, and become a node of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from penstock.contracts import Sink
from penstock.durations import Span, micros
from penstock.errors import BadFunction, BadJoin, BadValue, DanglingBranch, UnknownColumn, choices
from penstock.plan.naming import NAME_RULE, is_name
from penstock.plan.operators.joins import UNBOUNDED, How, Interval, Join, JoinAsof, JoinTable, Pairs
from penstock.plan.operators.node import Node
from penstock.schema import Schema
from penstock.signatures import check_call, name_of
from penstock.tables import Table
from penstock.windows import Window

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


On = str | Sequence[str] | Mapping[str, str]
Within = tuple[Span, Span] | Window | Literal["unbounded"]


def joined(left: Node, other: Node | Table, on: On, how: How, within: Within | None, suffix: str) -> Node:
    """Return a join of two streams, which needs `within`, or of a stream with a table, which has none."""
    keys = pairs(on)
    if isinstance(other, Table):
        if within is not None:
            message = "within= is for two streams, and this is a join with a table"
            raise BadJoin(
                message, node="join", hint="leave out within=; join_asof() finds the row that was valid at a row's time"
            )
        return _with_table(left, other, keys, how, suffix)
    if within is None:
        message = "within= is missing: how near in time must the rows of the two streams be?"
        near = 'pass within=("-5m", "1h") (the right\'s time less the left\'s) or within=tumbling("1h")'
        hint = f'{near}; within="unbounded" stores all rows of both forever'
        raise BadJoin(message, node="join", hint=hint)
    return Join(streams=(left, other), on=keys, how=how, within=_within(within), suffix=suffix)


def joined_asof(left: Node, other: Node | Table, on: On, how: How, max_age: Span | None, suffix: str) -> Node:
    """Return a join with the newest right row that is not newer than the left."""
    keys, age = pairs(on), None if max_age is None else micros(max_age, "max_age")
    if isinstance(other, Table):
        return _with_table(left, other, keys, how, suffix, asof=True, max_age_us=age)
    return JoinAsof(streams=(left, other), on=keys, how=how, max_age_us=age, suffix=suffix)


def _with_table(left: Node, table: Table, on: Pairs, how: How, suffix: str, **more: Any) -> JoinTable:
    return JoinTable(
        input=left,
        table=table.source,
        table_key=table.key,
        on=on,
        how=how,
        suffix=suffix,
        refresh_us=table.refresh_us,
        max_staleness_us=table.max_staleness_us,
        valid_from=table.valid_from,
        **more,
    )


def pairs(on: On) -> Pairs:
    """Return the columns of a join as pairs: left and right."""
    if isinstance(on, str):
        return ((on, on),)
    return tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in on)


def _within(within: Within) -> Interval | Window | Literal["unbounded"]:
    if isinstance(within, Window) or within == UNBOUNDED:
        return within
    if not isinstance(within, tuple) or len(within) != 2:
        message = f"within={within!r} is neither an interval nor a window"
        raise BadValue(message, node="join", hint='write within=("-5m", "1h"), tumbling("1h") or "unbounded"')
    return _signed(within[0]), _signed(within[1])


def _signed(span: Span) -> int:
    """Return a span in microseconds that may be negative, as in "-5m".

    >>> _signed("-1s")
    -1000000
    """
    if isinstance(span, str) and span.strip().startswith("-"):
        return -micros(span.strip()[1:], "within")
    return micros(span, "within") if isinstance(span, str) or span.days >= 0 else -micros(-span, "within")
