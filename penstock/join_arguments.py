"""The arguments of `join` and `join_asof`, as a node of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from penstock.durations import Span, micros
from penstock.errors import BadJoin, BadValue
from penstock.plan.operators.joins import UNBOUNDED, How, Interval, Join, JoinAsof, JoinTable, Pairs
from penstock.plan.operators.node import Node
from penstock.tables import Table
from penstock.windows import Window

On = str | Sequence[str] | Mapping[str, str]
Within = tuple[Span, Span] | Window | Literal["unbounded"]


def joined(left: Node, other: Node | Table, on: On, how: How, within: Within | None, suffix: str) -> Node:
    """Return a join of two streams, which needs `within`, or of a stream with a table, which has none."""
    pairs = _pairs(on)
    if isinstance(other, Table):
        if within is not None:
            message = "within= is for two streams, and this is a join with a table"
            raise BadJoin(
                message, node="join", hint="leave out within=; join_asof() finds the row that was valid at a row's time"
            )
        return _with_table(left, other, pairs, how, suffix)
    if within is None:
        message = "within= is missing: how near in time must the rows of the two streams be?"
        near = 'pass within=("-5m", "1h") (the right\'s time less the left\'s) or within=tumbling("1h")'
        hint = f'{near}; within="unbounded" stores all rows of both forever'
        raise BadJoin(message, node="join", hint=hint)
    return Join(streams=(left, other), on=pairs, how=how, within=_within(within), suffix=suffix)


def joined_asof(left: Node, other: Node | Table, on: On, how: How, max_age: Span | None, suffix: str) -> Node:
    """Return a join with the newest right row that is not newer than the left."""
    pairs, age = _pairs(on), None if max_age is None else micros(max_age, "max_age")
    if isinstance(other, Table):
        return _with_table(left, other, pairs, how, suffix, asof=True, max_age_us=age)
    return JoinAsof(streams=(left, other), on=pairs, how=how, max_age_us=age, suffix=suffix)


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


def _pairs(on: On) -> Pairs:
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
