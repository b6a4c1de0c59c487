"""What the operators of a view store between epochs, in words, and what bounds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import singledispatch

from penstock.durations import span_text
from penstock.plan.relations import Aggregate, Distinct, Except, Intersect, Join, Latest, Relation, Top
from penstock.plan.relations.aggregate_calls import EXTREMES, ORDERED, Call
from penstock.plan.relations.append_only import append_only


@singledispatch
def kept_by(relation: Relation, inputs: Collection[str]) -> str:
    """Return what an operator stores; no row is ever taken out of the inputs with these names."""
    return "stores nothing"


@kept_by.register
def _latest(relation: Latest, inputs: Collection[str]) -> str:
    if relation.key:
        return f"stores the last row of each {', '.join(relation.key)}"
    return "stores each different row and how often it came" if relation.remove else "stores nothing"


@kept_by.register
def _join(relation: Join, inputs: Collection[str]) -> str:
    by = ", ".join(left for left, _ in relation.on)
    return f"stores the rows of both sides{f', by {by}' if by else ''}"


@kept_by.register
def _aggregate(relation: Aggregate, inputs: Collection[str]) -> str:
    whose = f"of each {', '.join(relation.keys)}" if relation.keys else "of all rows"
    # What these were before a row came cannot be computed from what they are with it.
    whole = ORDERED if append_only(relation.input, inputs) else (*EXTREMES, *ORDERED)
    names = dict.fromkeys(_shown(call) for call in relation.calls.calls if call.distinct or call.name in whole)
    return f"stores the aggregates {whose}" + (f", and all values of {', '.join(names)}" if names else "")


def _shown(call: Call) -> str:
    inside = ", ".join(call.arguments)
    return f"{call.name}(DISTINCT {inside})" if call.distinct else f"{call.name}({inside})"


@kept_by.register
def _top(relation: Top, inputs: Collection[str]) -> str:
    if append_only(relation.input, inputs):
        whose = f" of each {', '.join(relation.keys)}" if relation.keys else ""
        return f"stores the first {relation.n} rows{whose}: none is ever taken out"
    return f"stores all rows{f', by {chr(44).join(relation.keys)}' if relation.keys else ''}"


@kept_by.register
def _distinct(relation: Distinct, inputs: Collection[str]) -> str:
    return "stores each different row and how often it is there"


@kept_by.register(Except)
@kept_by.register(Intersect)
def _two_sets(relation: Except | Intersect, inputs: Collection[str]) -> str:
    return "stores each different row and how often either side has it"


def bounds_of(relation: Relation, ttls: Mapping[str, int | None]) -> list[tuple[str, bool]]:
    """Return what bounds the state, stream by stream, and whether that can be all: state follows its inputs."""
    found = (one for one in relation.operators if isinstance(one, Latest))
    return [_bound(one, ttls.get(getattr(one.input, "name", ""))) for one in found]


def _bound(relation: Latest, ttl_us: int | None) -> tuple[str, bool]:
    name = getattr(relation.input, "name", relation.input.kind)
    if ttl_us is not None:
        return f"rows of {name} leave {span_text(ttl_us)} after their event time (ttl)", True
    what = f"a row for each {', '.join(relation.key)}" if relation.key else "every row"
    if relation.remove is not None:
        return f"{what} of {name} stays until it is removed ({relation.remove})", True
    return f"{what} of {name} stays forever: pass remove= or ttl= to view()", False
