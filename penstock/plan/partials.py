"""Aggregates in two halves: a partial per task, and the merge of partials in Spark's state.

`sum(price * size) / sum(size)` becomes two partial sums, and `sum(p0) / sum(p1)` over them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from penstock.plan.expressions import aggregate_calls, parse, scalar
from penstock.plan.portable import KEY_TYPES, why_not
from penstock.plan.stateful import Aggregate
from penstock.schema import Schema

PREFIX = "__penstock_p"


@dataclass(frozen=True)
class Partial:
    """One column of partial results: what a task computes, its type, and what merges two of them."""

    sql: str
    type: str
    merge: str


@dataclass(frozen=True)
class Halves:
    """An aggregation in two halves; `finals` are the result columns over the partial columns."""

    partials: tuple[Partial, ...]
    finals: tuple[tuple[str, str], ...]

    def name(self, number: int) -> str:
        """The name of a partial column."""
        return f"{PREFIX}{number}"


def halves(node: Aggregate) -> Halves | str:
    """Split an aggregation, or say why it cannot be."""
    if node.window is None or node.window.kind != "tumbling":
        return "only tumbling windows are split so far"
    odd = [key for key in node.keys if node.input.schema.types[key] not in KEY_TYPES]
    if odd:
        return f"the key {odd[0]} is a {node.input.schema.types[odd[0]]}"
    found: dict[Partial, int] = {}
    finals = []
    for name, what in node.aggregates:
        if not isinstance(what, str):
            return f"{name} is Python"
        final = _final(what, node.input.schema, found)
        if isinstance(final, _Stays):
            return final.why
        finals.append((name, final))
    return Halves(tuple(found), tuple(finals))


@dataclass(frozen=True)
class _Stays:
    why: str


def _final(sql: str, schema: Schema, found: dict[Partial, int]) -> str | _Stays:
    tree: exp.Expr = parse(sql, node="aggregate").copy()
    for call in aggregate_calls(tree):
        merged = _merged(call, schema, found)
        if isinstance(merged, _Stays):
            return merged
        if call is tree:
            tree = merged
        else:
            call.replace(merged)
    return tree.sql("spark")


def _merged(call: exp.Expr, schema: Schema, found: dict[Partial, int]) -> exp.Expr | _Stays:
    """Return the merge that takes an aggregate call's place, noting the partials that it needs."""
    argument = call.this
    if isinstance(call.parent, exp.Filter) or isinstance(argument, exp.Distinct) or call.args.get("expressions"):
        return _Stays(call.sql("spark"))
    if isinstance(call, exp.Count) and isinstance(argument, exp.Star | exp.Literal):
        return _use(Partial("count(*)", "bigint", "sum"), found)
    if not isinstance(call, exp.Count | exp.Sum | exp.Min | exp.Max | exp.Avg):
        return _Stays(f"{call.sql('spark')} is not split so far")
    text = argument.sql("spark")
    reason = why_not(text, schema)
    if reason:
        return _Stays(reason)
    return _simple(call, argument.sql("duckdb"), scalar(text, schema, node="aggregate").type, found)


def _simple(call: exp.Expr, sql: str, kind: str, found: dict[Partial, int]) -> exp.Expr | _Stays:
    if isinstance(call, exp.Count):
        return _use(Partial(f"count({sql})", "bigint", "sum"), found)
    if isinstance(call, exp.Min | exp.Max):
        name = call.key
        return _use(Partial(f"{name}({sql})", kind, name), found)
    if kind not in ("bigint", "int", "double"):
        return _Stays(f"sum or avg of a {kind}")
    if isinstance(call, exp.Sum):
        whole = "double" if kind == "double" else "bigint"
        return _use(Partial(f"CAST(sum({sql}) AS {whole})", whole, "sum"), found)
    total = _use(Partial(f"sum(CAST({sql} AS DOUBLE))", "double", "sum"), found)
    count = _use(Partial(f"count({sql})", "bigint", "sum"), found)
    return exp.paren(exp.Div(this=total, expression=exp.func("nullif", count, exp.Literal.number(0))))


def _use(partial: Partial, found: dict[Partial, int]) -> exp.Expr:
    number = found.setdefault(partial, len(found))
    return exp.func(partial.merge, exp.column(f"{PREFIX}{number}"))
