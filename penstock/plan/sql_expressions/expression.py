"""Expressions over a row or a group: checked and typed while a pipeline is built, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from penstock.aggregates import Aggregator
from penstock.errors import AggregateNotAllowed, BadExpression, BadSchema, PipelineError, UnknownFunction
from penstock.plan.sql_expressions import functions
from penstock.plan.sql_expressions.distinct import distinct_call, streams, without_distinct
from penstock.plan.sql_expressions.functions import is_aggregate
from penstock.plan.sql_expressions.parsing import parse, parse_verbatim
from penstock.plan.sql_expressions.type_inference import Inference
from penstock.plan.sql_expressions.types import BOOLEAN, Type
from penstock.schema import Schema, parse_type

__all__ = ["Expression", "aggregate", "aggregate_calls", "is_aggregate", "parse", "predicate", "scalar"]
_NEVER_NULL = (exp.Literal, exp.Boolean, exp.Is, exp.HexString, exp.RawString)
_BARE_CALLS = (exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentUser, exp.SessionUser)
_AROUND_AGGREGATES = (exp.Filter, exp.WithinGroup)


@dataclass(frozen=True)
class Expression:
    """An expression over an input: its text, its Spark type, the columns it reads, its nullability."""

    sql: str
    type: str
    columns: frozenset[str]
    nullable: bool


def scalar(sql: str, schema: Schema, *, node: str) -> Expression:
    """Check an expression that makes one value of one row.

    >>> scalar("price * size", Schema("price double, size bigint"), node="select").type
    'double'
    """
    tree = _checked(sql, node)
    if calls := _aggregates(tree):
        message = f'{calls[0].name}(...) is an aggregate, in an expression over single rows: "{sql}"'
        raise AggregateNotAllowed(message, node=node, hint="use key_by(...).aggregate(...)")
    return _typed(tree, sql, schema, node)


def predicate(sql: str, schema: Schema, *, node: str) -> Expression:
    """Check a condition on one row."""
    found = scalar(sql, schema, node=node)
    if found.type != str(BOOLEAN):
        message = f'a condition must be boolean, and "{sql}" is {found.type}'
        raise BadExpression(message, node=node, hint='compare it with something, such as "size > 0"')
    return found


def aggregate(sql: str, schema: Schema, *, keys: tuple[str, ...], node: str) -> Expression:
    """Check an expression that makes one value of a group of rows.

    >>> aggregate("sum(size)", Schema("size int"), keys=(), node="aggregate 'n'").type
    'bigint'
    """
    tree = _checked(sql, node)
    calls = _aggregates(tree)
    if not calls:
        message = f'no aggregate in "{sql}"'
        raise AggregateNotAllowed(message, node=node, hint="a group has many rows: use sum(...) or max(...)")
    for call in calls:
        _check_aggregate(call, sql, node)
        if clause := distinct_call(call):
            call.set("expressions", clause.expressions)
    found = _typed(tree, sql, schema, node)
    _check_outside(tree, sql, keys, node)
    return found


def aggregate_calls(tree: exp.Expr) -> list[exp.Expression]:
    """Return the aggregate calls in a tree of `parse`, outermost first."""
    return [call for call in tree.find_all(exp.Expression) if _is_aggregate_node(call)]


def _is_aggregate_node(call: exp.Expr) -> bool:
    if isinstance(call, exp.Anonymous):
        return is_aggregate(call.name)
    return isinstance(call, exp.AggFunc)


def _aggregates(tree: exp.Expr) -> list[exp.Anonymous]:
    return [call for call in tree.find_all(exp.Anonymous) if is_aggregate(call.name)]


def _checked(sql: str, node: str) -> exp.Expr:
    """Parse an expression and refuse what streams do not support."""
    tree = parse_verbatim(sql, node=node)
    for call in tree.find_all(exp.Anonymous):
        _check_call(call, sql, node)
    for reason, hint in _misplaced(tree):
        message = f'{reason} in "{sql}"'
        raise BadExpression(message, node=node, hint=hint)
    return tree


def _check_call(call: exp.Anonymous, sql: str, node: str) -> None:
    name, count = call.name, len(call.expressions)
    if not functions.exists(name):
        near = ", ".join(functions.near(name))
        message = f"unknown function '{name}' in \"{sql}\""
        raise UnknownFunction(message, node=node, hint=f"did you mean {near}?" if near else None)
    if not functions.accepts(name, count):
        wanted = functions.counts(name)
        message = f'{name}(...) takes {wanted} argument{"" if wanted == "1" else "s"}, not {count}, in "{sql}"'
        raise BadExpression(message, node=node, hint=_written(name, call, wanted))
    if advice := functions.refusal(name, count):
        message = f'{name}(...) cannot be used in a stream, in "{sql}"'
        raise BadExpression(message, node=node, hint=advice)


def _written(name: str, call: exp.Anonymous, wanted: str) -> str:
    """Return how a function is called with as many arguments as it takes."""
    given = [one.sql("spark", normalize_functions=False) for one in call.expressions]
    least = int(wanted.split()[0])
    return f"write {name}({', '.join([*given[:least], *['...'] * (least - len(given))])})"


def _misplaced(tree: exp.Expr) -> Iterator[tuple[str, str]]:
    """Yield parts that are Spark SQL, but not expressions over one row or one group."""
    if tree.find(exp.Query, exp.Subquery):
        yield "a subquery", "use join(...) or ps.sql(...)"
    if tree.find(exp.Window):
        yield "OVER", "use .window(...), or top(...) for ranks"
    for call in tree.find_all(exp.Anonymous):
        if functions.is_window(call.name):
            yield f"the window function {call.name}(...)", "use .window(...), or top(...) for ranks"
        if functions.is_generator(call.name):
            yield (
                f"{call.name}(...), which makes many rows of one,",
                "use flat_map(...), or LATERAL VIEW in ps.sql(...)",
            )
    for star in tree.find_all(exp.Star):
        if not (isinstance(star.parent, exp.Anonymous) and star.parent.name.lower() == "count"):
            yield "'*'", "name the columns one by one"


def _check_aggregate(call: exp.Anonymous, sql: str, node: str) -> None:
    if instead := functions.ordered_instead(call.name):
        argument = call.expressions[0].sql("spark", normalize_functions=False) if call.expressions else "x"
        message = f'{call.name}(...) depends on the order of arrival, in "{sql}"'
        hint = f"choose a row by its time: {instead}({argument}, ts)"
        raise AggregateNotAllowed(message, node=node, hint=hint)
    if (clause := distinct_call(call)) and not streams(call):
        argument = ", ".join(part.sql("spark", normalize_functions=False) for part in clause.expressions)
        message = f'{call.name}(DISTINCT ...) cannot be streamed, in "{sql}"'
        hint = f"count(DISTINCT {argument}) can; or deduplicate(...) the rows first"
        raise AggregateNotAllowed(message, node=node, hint=hint)
    inner = [each for each in _aggregates(call) if each is not call]
    if inner:
        message = f'{inner[0].name}(...) inside {call.name}(...), in "{sql}"'
        raise AggregateNotAllowed(message, node=node, hint="aggregate twice, one after the other")


def _check_outside(tree: exp.Expr, sql: str, keys: tuple[str, ...], node: str) -> None:
    """Refuse a column that has many values per group."""
    for column in tree.find_all(exp.Column):
        name = column.parts[0].name
        if name not in keys and not _is_inside_aggregate(column):
            message = f"column '{name}' has many values per group in \"{sql}\""
            hint = f"put it into an aggregate, such as max({name}), or into key_by(...)"
            raise AggregateNotAllowed(message, node=node, hint=hint)


def _is_inside_aggregate(tree: exp.Expr) -> bool:
    above = tree.parent
    while above is not None:
        called = isinstance(above, exp.Anonymous) and is_aggregate(above.name)
        if called or isinstance(above, _AROUND_AGGREGATES):
            return True
        above = above.parent
    return False


def _typed(tree: exp.Expr, sql: str, schema: Schema, node: str) -> Expression:
    _check_calls_without_parentheses(tree, sql, schema, node)
    inference = Inference(schema, sql, node)
    kind = inference.infer(tree)
    _check_carried(kind, sql, node)
    return Expression(sql, str(kind), frozenset(inference.columns), _is_nullable(tree.unnest(), schema))


def _check_calls_without_parentheses(tree: exp.Expr, sql: str, schema: Schema, node: str) -> None:
    """Refuse words that are a column here, or a function: sqlglot and Spark do not agree which."""
    for call in tree.find_all(*_BARE_CALLS):
        word = call.sql("spark").split("(")[0].lower()
        if not call.args.get("this") and word in (name.lower() for name in schema.names):
            message = f"'{word}' is a function of Spark SQL, and there is a column of that name, in \"{sql}\""
            raise BadExpression(message, node=node, hint=f"write `{word}` for the column, {word}() for the function")
    for column in tree.find_all(exp.Column):
        if column.name.lower() == "current_path" and not column.this.args.get("quoted"):
            message = f"'{column.name}' is a function of Spark SQL in \"{sql}\""
            raise BadExpression(message, node=node, hint=f"write `{column.name}` for the column")


def _check_carried(kind: Type, sql: str, node: str) -> None:
    """Refuse a type that no column of a stream can have, such as INTERVAL HOUR."""
    try:
        parse_type(str(kind))
    except BadSchema:
        message = f'"{sql}" is {kind}, which no column can hold'
        target = "interval day to second" if kind.is_interval and not kind.is_years else "TYPE"
        raise BadExpression(message, node=node, hint=f"wrap it in cast(... as {target})") from None


def _is_nullable(tree: exp.Expr, schema: Schema) -> bool:
    """Whether null is possible, as far as it is obvious."""
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        return schema.field(tree.name).nullable
    if isinstance(tree, exp.Anonymous) and tree.name.lower() == "count":
        return False
    return not isinstance(tree, _NEVER_NULL)


def state_calls(aggregates: Iterable[tuple[str, str | Aggregator]], schema: Schema) -> list[list[str]]:
    """Return the aggregate calls in the order of Spark's state, each once: its column, function and argument type.

    >>> state_calls([("n", "count(DISTINCT a)"), ("s", "sum(a) / count(*)")], Schema("a int"))
    [['n', 'collect_set', 'int'], ['sum(a)', 'sum', 'int'], ['count(*)', 'count', '']]
    """
    found: dict[str, list[str]] = {}
    for name, what in aggregates:
        if not isinstance(what, str):
            return []
        tree = exp.Paren(this=parse_verbatim(without_distinct(what), node="state"))
        calls = [one for one in tree.find_all(exp.Anonymous, bfs=False) if is_aggregate(one.name)]
        for call in calls:
            text = _text(_whole(call))
            label = name if len(calls) == 1 and name not in (one[0] for one in found.values()) else text
            found.setdefault(text, [label, call.name.lower(), _type(call, schema)])
    return list(found.values())


def _whole(call: exp.Expr) -> exp.Expr:
    """Return a call with its FILTER and WITHIN GROUP."""
    while isinstance(call.parent, exp.Filter | exp.WithinGroup) and call.parent.this is call:
        call = call.parent
    return call


def _type(call: exp.Anonymous, schema: Schema) -> str:
    given = call.expressions
    if isinstance(call.parent, exp.WithinGroup):
        given = [one.this for one in call.parent.expression.expressions]
    if not given or isinstance(given[0], exp.Star):
        return ""
    try:
        return scalar(_text(given[0]), schema, node="state").type
    except PipelineError:
        return ""


def _text(tree: exp.Expr) -> str:
    return tree.sql("spark", normalize_functions=False)
