"""The aggregate calls of a relation, each once, and its results as expressions over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from penstock.errors import AggregateNotAllowed, choices
from penstock.plan.sql_expressions.distinct import distinct_call
from penstock.plan.sql_expressions.expression import aggregate, is_aggregate, scalar
from penstock.plan.sql_expressions.parsing import parse_verbatim
from penstock.plan.translation import why_not
from penstock.schema import Field, Schema

CALL = "__penstock_a"
_SAME = {"mean": "avg", "every": "bool_and", "some": "bool_or", "any": "bool_or"}
_SAME |= {"std": "stddev_samp", "stddev": "stddev_samp", "variance": "var_samp"}
# Aggregates whose result over a set of values is the same as over all of them.
_IDEMPOTENT = ("min", "max", "bool_and", "bool_or")
COUNTS = ("count", "count_if", "bool_and", "bool_or")
SUMS = ("sum", "avg")
EXTREMES = ("min", "max", "min_by", "max_by")
SPREADS = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
ORDERED = ("median", "percentile", "percentile_cont", "percentile_disc")
SUPPORTED = (*COUNTS, *SUMS, *EXTREMES, *SPREADS, *ORDERED)


@dataclass(frozen=True)
class Call:
    """One aggregate: its name, its arguments as SQL with their types, the condition of FILTER, and its result type.

    `distinct`: each value of the arguments counts once. `options` are numbers that are written out, such as the
    fractions of percentiles; `descending` is the order of WITHIN GROUP.
    """

    name: str
    arguments: tuple[str, ...]
    types: tuple[str, ...]
    condition: str | None
    distinct: bool
    type: str
    options: tuple[float, ...] = ()
    descending: bool = False


@dataclass(frozen=True)
class Calls:
    """The calls, and the results: (name, SQL over the keys and `CALL` columns), typed by `schema`."""

    calls: tuple[Call, ...]
    results: tuple[tuple[str, str], ...]
    schema: Schema

    def column(self, number: int) -> str:
        """The column that results find the value of a call in."""
        return f"{CALL}{number}"


def decomposed(aggregates: Iterable[tuple[str, str]], schema: Schema, keys: tuple[str, ...]) -> Calls:
    """Take the calls out of aggregates; what cannot be maintained by changes is refused.

    >>> found = decomposed([("mean", "sum(a) / count(*)")], Schema("a int"), ())
    >>> found.results, [call.name for call in found.calls]
    ((('mean', '__penstock_a0 / __penstock_a1'),), ['sum', 'count'])
    """
    calls: dict[Call, int] = {}
    results = []
    for name, sql in aggregates:
        node = f"aggregate '{name}'"
        tree = exp.Paren(this=parse_verbatim(sql, node=node))
        for one in [one for one in tree.find_all(exp.Anonymous) if is_aggregate(one.name)]:
            whole = _whole(one)
            call = _call(one, whole, sql, schema, keys, node)
            whole.replace(exp.column(f"{CALL}{calls.setdefault(call, len(calls))}"))
        results.append((name, _text(tree.this)))
    fields = (Field(f"{CALL}{number}", call.type) for call, number in calls.items())
    found = Calls(tuple(calls), tuple(results), Schema((*(schema.field(key) for key in keys), *fields)))
    for name, sql in found.results:
        if reason := why_not(sql, found.schema):
            message = f'a view cannot evaluate "{dict(aggregates)[name]}": {reason}'
            hint = "give the aggregates names of their own, and compute with them downstream"
            raise AggregateNotAllowed(message, node=f"aggregate '{name}'", hint=hint)
    return found


def _whole(call: exp.Expr) -> exp.Expr:
    """Return a call with its FILTER and WITHIN GROUP."""
    while isinstance(call.parent, exp.Filter | exp.WithinGroup) and call.parent.this is call:
        call = call.parent
    return call


def _call(call: exp.Anonymous, whole: exp.Expr, sql: str, schema: Schema, keys: tuple[str, ...], node: str) -> Call:
    name = _SAME.get(call.name.lower(), call.name.lower())
    if name not in SUPPORTED:
        message = f'{call.name}(...) cannot be maintained by changes, in "{sql}"'
        raise AggregateNotAllowed(message, node=node, hint=choices("aggregates of views", sorted(SUPPORTED), name))
    clause = distinct_call(call)
    given = list(clause.expressions if clause else call.expressions)
    if name == "count" and not clause:
        given = [one for one in given if not isinstance(one, exp.Star | exp.Literal)]
    given, options, descending = _ordered(name, call, given, sql, node)
    condition = _text(whole.expression.this) if isinstance(whole, exp.Filter) else None
    if name in ("min_by", "max_by") and len(given) != 2:
        message = f'{call.name}(...) of several rows cannot be maintained by changes, in "{sql}"'
        raise AggregateNotAllowed(message, node=node, hint="use top(n, by=...)")
    arguments = tuple(map(_text, given))
    types = tuple(scalar(one, schema, node=node).type for one in arguments)
    for one in (*arguments, *([condition] if condition else [])):
        if reason := why_not(one, schema):
            message = f'a view cannot evaluate "{one}": {reason}'
            raise AggregateNotAllowed(message, node=node, hint="compute it in the stream upstream, as a column")
    kind = aggregate(_text(whole), schema, keys=keys, node=node).type
    distinct = clause is not None and name not in _IDEMPOTENT
    return Call(name, arguments, types, condition, distinct, kind, options, descending)


def _ordered(
    name: str, call: exp.Anonymous, given: list[exp.Expr], sql: str, node: str
) -> tuple[list[exp.Expr], tuple[float, ...], bool]:
    """Return the values of an ordered aggregate apart from its fractions."""
    if name not in ORDERED:
        return given, (), False
    descending = False
    if isinstance(call.parent, exp.WithinGroup):
        (order,) = call.parent.expression.expressions
        given, descending = [order.this, *given], bool(order.args.get("desc"))
    if name == "median":
        return given, (0.5,), False
    if len(given) != 2:
        message = f'{call.name}(...) with frequencies cannot be maintained by changes, in "{sql}"'
        raise AggregateNotAllowed(message, node=node, hint="write percentile(x, 0.5)")
    if not isinstance(given[1], exp.Literal) or given[1].is_string or not 0 <= float(given[1].name) <= 1:
        message = f'the fraction of {call.name}(...) is not a number from 0 to 1, in "{sql}"'
        raise AggregateNotAllowed(message, node=node, hint="write it out: percentile(x, 0.9)")
    return given[:1], (float(given[1].name),), descending


def _text(tree: exp.Expr) -> str:
    return tree.sql("spark", normalize_functions=False)
