"""Partial aggregates, and how each aggregate is merged from them, as Spark SQL over partial columns.

A rule takes the call and a `Columns`, to which it adds the partials that it needs; it returns the merge. Spark's
state holds merged partials in both lanes, so that a job can change lanes and keep its state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.plan.sql_expressions.types import BIGINT, BOOLEAN, DOUBLE, Type, decimal

PREFIX = "__penstock_p"
_COUNTS = ("rows", "count", "count_if")
_OF_ROW = {
    "rows": "1L",
    "count": "CASE WHEN {0} IS NOT NULL THEN 1L ELSE 0L END",
    "count_if": "CASE WHEN {0} THEN 1L ELSE 0L END",
    "sum": "CAST({0} AS {type})",
    "sum_double": "CAST({0} AS DOUBLE)",
    "sum_squares": "CAST(CAST({0} AS BIGINT) * CAST({0} AS BIGINT) AS {type})",
}
_SMALL_INTEGERS = ("tinyint", "smallint", "int")
_EXACT = decimal(38, 0)


class NotTwoPhase(Exception):
    """An aggregation that has no two-phase form; the text is the reason."""


@dataclass(frozen=True)
class Partial:
    """One column of partial results: an aggregate that a task computes, over Spark SQL, and its type."""

    call: str
    arguments: tuple[str, ...]
    type: str
    condition: str | None = None

    def __str__(self) -> str:
        what = "count(*)" if self.call == "rows" else f"{self.call}({', '.join(self.arguments)})"
        return f"{what} {self.type}{f' where {self.condition}' if self.condition else ''}"

    @property
    def of_row(self) -> str:
        """The partial of a single row, for rows that reach Spark one by one."""
        value = _OF_ROW.get(self.call, "{0}").format(*self.arguments, type=self.type)
        if self.condition is None:
            return value
        none = "0L" if self.call in _COUNTS else "NULL"
        return f"CASE WHEN {self.condition} THEN {value} ELSE {none} END"


@dataclass(frozen=True)
class Call:
    """An aggregate call as the user wrote it, with the condition of its FILTER clause."""

    name: str
    arguments: tuple[str, ...]
    types: tuple[Type, ...]
    condition: str | None

    @property
    def kind(self) -> Type:
        """The type of what is aggregated."""
        return self.types[0]


class Columns:
    """The partials of one aggregation, each once."""

    def __init__(self) -> None:
        self.partials: dict[Partial, int] = {}

    def add(self, partial: str, kind: Type, call: Call, *arguments: str) -> str:
        """Return the column of a partial."""
        made = Partial(partial, arguments or call.arguments, str(kind), call.condition)
        return f"{PREFIX}{self.partials.setdefault(made, len(self.partials))}"


Rule = Callable[[Call, Columns], str]


def merge(call: Call, columns: Columns) -> str:
    """Return the merge of a call's partials."""
    return rule(call.name)(call, columns)


def rule(name: str) -> Rule:
    """Return the rule of an aggregate; `NotTwoPhase` if it has none."""
    if name not in _RULES:
        message = f"{name}() {_WHY.get(name, 'has no two-phase form')}"
        raise NotTwoPhase(message)
    return _RULES[name]


def _count(call: Call, columns: Columns) -> str:
    if len(call.arguments) > 1:
        message = "count() of several columns has no two-phase form"
        raise NotTwoPhase(message)
    return f"sum({columns.add('count' if call.arguments else 'rows', BIGINT, call)})"


def _count_if(call: Call, columns: Columns) -> str:
    return f"sum({columns.add('count_if', BIGINT, call)})"


def _sum(call: Call, columns: Columns) -> str:
    kind = call.kind
    if kind.name == "decimal":
        # Spark widens the type of a sum of sums once more.
        wide = decimal(kind.size[0] + 10, kind.size[1])
        return f"CAST(sum({columns.add('sum', wide, call)}) AS {wide})"
    _number(call)
    return f"sum({columns.add('sum', BIGINT if kind.is_integer else DOUBLE, call)})"


def _avg(call: Call, columns: Columns) -> str:
    if call.kind.name == "decimal":
        message = "avg() of a decimal is rounded by Spark's own rules"
        raise NotTwoPhase(message)
    _number(call)
    # Where it loses nothing, the partial of sum() serves: then an avg() that is added later finds its state there.
    if call.kind.name in _SMALL_INTEGERS or not call.kind.is_integer:
        total = f"CAST({_sum(call, columns)} AS DOUBLE)"
    else:
        total = f"sum({columns.add('sum_double', DOUBLE, call)})"
    return f"{total} / nullif({_count(call, columns)}, 0)"


def _number(call: Call) -> None:
    if not call.kind.is_numeric:
        message = f"{call.name}() of a {call.kind}"
        raise NotTwoPhase(message)


def _extreme(call: Call, columns: Columns) -> str:
    _ordered(call.kind)
    return f"{call.name}({columns.add(call.name, call.kind, call)})"


def _extreme_by(call: Call, columns: Columns) -> str:
    if len(call.arguments) != 2:
        message = f"{call.name}() of several rows has no two-phase form"
        raise NotTwoPhase(message)
    value, order = call.types
    _ordered(order)
    found = columns.add(call.name, value, call)
    best = columns.add(call.name.removesuffix("_by"), order, call, call.arguments[1])
    return f"{call.name}({found}, {best})"


def _ordered(kind: Type) -> None:
    if kind.parts:
        message = f"the order of a {kind.name}"
        raise NotTwoPhase(message)


def _logic(call: Call, columns: Columns) -> str:
    return f"{call.name}({columns.add(call.name, BOOLEAN, call)})"


def _spread(result: str) -> Rule:
    """Merge variances of whole numbers, which exact sums of squares give without cancellation.

    Squares are taken about `q`, the whole number next to the mean, so that what is subtracted is never the greater
    part. For other numbers a merge of two variances is not a sum, and Spark's state can hold nothing else in constant
    space.
    """

    def merged(call: Call, columns: Columns) -> str:
        if call.kind.name not in _SMALL_INTEGERS:
            message = f"{call.name}() of a {call.kind}: Spark's state cannot merge partial variances"
            raise NotTwoPhase(message)
        n = f"nullif({_count(call, columns)}, 0)"
        total, squares = (f"sum({columns.add(name, _EXACT, call)})" for name in ("sum", "sum_squares"))
        q = f"CAST(round(CAST({total} AS DOUBLE) / {n}) AS DECIMAL(10,0))"
        about_q = f"CAST({squares} - {q} * (2 * {total} - {q} * {n}) AS DOUBLE)"
        rest = f"CAST({total} - {q} * {n} AS DOUBLE)"
        return result.format(m2=f"({about_q} - {rest} * {rest} / {n})", n=n)

    return merged


_WHY = {"approx_count_distinct": "is a sketch, and that of DuckDB differs"}
_VARIANCE = "{m2} / nullif({n} - 1, 0)"
_RULES: dict[str, Rule] = {
    "count": _count,
    "count_if": _count_if,
    "sum": _sum,
    **dict.fromkeys(("avg", "mean"), _avg),
    **dict.fromkeys(("min", "max"), _extreme),
    **dict.fromkeys(("min_by", "max_by"), _extreme_by),
    **dict.fromkeys(("bool_and", "every", "bool_or", "some", "any"), _logic),
    **dict.fromkeys(("variance", "var_samp"), _spread(_VARIANCE)),
    **dict.fromkeys(("stddev", "std", "stddev_samp"), _spread(f"sqrt({_VARIANCE})")),
    "var_pop": _spread("{m2} / {n}"),
    "stddev_pop": _spread("sqrt({m2} / {n})"),
}
