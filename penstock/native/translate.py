"""From the prefix of a plan to a program in DuckDB SQL.

Only the driver imports this module: tasks should not load the SQL parser.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch

from penstock.aggregates import Aggregator, state_type
from penstock.errors import PipelineError
from penstock.native.fallible_expressions import TRIED, Attempt, columns, succeeded
from penstock.native.folds import Fold, Folds
from penstock.native.program import Program
from penstock.native.steps import PANE, ROWS, TICK, TIME, Step, quote, usable
from penstock.plan.operators.joins import late_name
from penstock.plan.operators.node import Node
from penstock.plan.operators.partial_aggregates import Partial
from penstock.plan.operators.row_expressions import row_expressions
from penstock.plan.operators.stateless import Columns, Drop, EventTime, Filter, Rename, Select, WithColumns
from penstock.plan.physical.lanes import Prefix
from penstock.plan.sql_expressions.expression import scalar
from penstock.plan.translation import native_sql
from penstock.plan.translation.fallibility import can_fail, generic_reason, probes
from penstock.plan.translation.parts import NotNative
from penstock.schema import Field, Schema
from penstock.windows import ALL_TIMES, TimeRange, Window


def expression(sql: str, schema: Schema) -> str:
    """Return DuckDB's SQL of an expression over columns of these types, ready for `str.format`.

    >>> expression("size > price", Schema("size bigint, price bigint"))
    '("size" > "price")'
    """
    # Braces in a text must survive the composition of steps.
    return native_sql(sql, schema).replace("{", "{{").replace("}", "}}")


# Whole panes are added to every time, so that dividing rounds down before 1970 too; it is 73,000 years.
_LONG_AGO_US = 2**61
_CALLS = {
    "rows": "count(*){where}",
    "count": "count({0}){where}",
    "count_if": "count(CASE WHEN {0} THEN 1 END){where}",
    "sum": "CAST(sum({0}){where} AS {type})",
    "sum_double": "sum(CAST({0} AS DOUBLE)){where}",
    "sum_squares": "CAST(sum(CAST({0} AS BIGINT) * {0}){where} AS {type})",
    "min": "min({0}){where}",
    "max": "max({0}){where}",
    "min_by": "arg_min_null({0}, {1}){where}",
    "max_by": "arg_max_null({0}, {1}){where}",
    **dict.fromkeys(("bool_and", "every"), "bool_and({0}){where}"),
    **dict.fromkeys(("bool_or", "some", "any"), "bool_or({0}){where}"),
}


def program(
    prefix: Prefix, names: dict[Node, str], *, rejects: bool = False, time_range: TimeRange = ALL_TIMES
) -> Program:
    """Translate a prefix; with `rejects`, rows on which an expression fails are rejected."""
    times = prefix.times
    inputs = _inputs(prefix, names) if rejects else None
    output, final = _partial(prefix, inputs) if prefix.partial else _rows(prefix)
    return Program(
        chain=steps(prefix, names, rejects=rejects, time_range=time_range),
        output=output,
        final=final,
        time_column=times.column if times else None,
        time_source=_time_source(prefix),
        time_range=time_range,
        late_node=late_name(names[prefix.late], prefix.late_side) if prefix.late else None,
        late_window=prefix.late.window if prefix.late else None,
        lateness_us=prefix.late.lateness_us if prefix.late else 0,
        partial_node=names[prefix.partial] if prefix.partial else None,
        folds=_folds(prefix, names, inputs),
        inputs=inputs,
        end=_end(prefix, names),
    )


def _end(prefix: Prefix, names: dict[Node, str]) -> Step | None:
    """Return the aggregate at the end as an error shows it."""
    node = prefix.partial
    if node is None:
        return None
    listed = ", ".join(f"{what} as {name}" for name, what in node.aggregates if isinstance(what, str))
    probes = tuple(_probes(node, prefix.last.schema).values())
    return Step(names[node], node.kind, "SELECT * FROM {input}", listed or node.detail, probes=probes)


def _probes(node: Node, schema: Schema) -> dict[str, Attempt]:
    """Return what finds the part of an expression that failed; none where a part of it runs in Spark only."""
    try:
        return attempts(row_expressions(node), schema)
    except NotNative:
        return {}


def _inputs(prefix: Prefix, names: dict[Node, str]) -> Step | None:
    """Return the check of what a partial aggregate takes of each row, if that can fail."""
    node = prefix.partial
    tried = attempts(row_expressions(node), prefix.last.schema) if node is not None else {}
    if node is None or not tried:
        return None
    found = tuple(tried.values())
    sql = f"SELECT * FROM (SELECT *, {columns(found)} FROM {{input}} WHERE {{on_time}}) WHERE {succeeded(found)}"
    return Step(names[node], node.kind, sql, node.detail, found)


def _taken(inputs: Step | None) -> str:
    """Return the rows that an aggregate takes, as SQL that reads `{input}`."""
    return f"({inputs.sql})" if inputs else "{input} WHERE {on_time}"


def _time_source(prefix: Prefix) -> str | None:
    """Return the source's own column that the event time is, if nothing was computed on the way."""
    if prefix.times is None:
        return None
    name: str | None = prefix.times.column
    for node in reversed(prefix.chain[: prefix.chain.index(prefix.times)]):
        name = (node.carried or {}).get(name) if name is not None else None
    return name


def _rows(prefix: Prefix) -> tuple[Schema, str]:
    fields = prefix.last.schema.nullable().fields
    if prefix.times is None:
        return Schema(fields), "SELECT * FROM {input}"
    more = (Field(TIME, "timestamp"), Field(TICK, "boolean"))
    return Schema(fields + more), f"SELECT *, FALSE AS {TICK} FROM {{input}} WHERE {{on_time}}"


def _partial(prefix: Prefix, inputs: Step | None) -> tuple[Schema, str]:
    node, split = prefix.partial, prefix.split
    assert node is not None
    assert split is not None
    keys = [Field(key, prefix.last.schema.types[key]) for key in node.keys]
    parts = [Field(split.name(i), partial.type) for i, partial in enumerate(split.partials)]
    listed = [quote(key.name) for key in keys]
    listed += [
        f"{partial_call(partial, prefix.last.schema)} AS {part.name}"
        for part, partial in zip(parts, split.partials, strict=True)
    ]
    groups = [quote(key.name) for key in keys]
    timed = []
    if prefix.times is not None:
        timed = [Field(TIME, "timestamp"), Field(TICK, "boolean")]
        listed += [f"max({TIME}) AS {TIME}", f"FALSE AS {TICK}"]
    if node.window is not None and split.pane_us is not None:
        groups.append(_pane(node.window, split.pane_us))
    listed.append(f"count(*) AS {ROWS}")
    sql = f"SELECT {', '.join(listed)} FROM {_taken(inputs)} GROUP BY {', '.join(groups)}"
    folded = [Field(split.fold_name(name), _fold_type(one)) for name, one in node.python.items()]
    return Schema((*keys, *parts, *folded, *timed)), sql


def _folds(prefix: Prefix, names: dict[Node, str], inputs: Step | None) -> Folds | None:
    node, split = prefix.partial, prefix.split
    if node is None or split is None or not split.folded or node.window is None or split.pane_us is None:
        return None
    schema = prefix.last.schema
    fields = [schema.field(key) for key in node.keys] + [Field(PANE, "bigint"), Field(TIME, "timestamp")]
    listed = [*map(quote, node.keys), f"{_pane(node.window, split.pane_us)} AS {PANE}", TIME]
    folds = []
    for result, one in node.python.items():
        taken = tuple(f"{split.fold_name(result)}_{number}" for number in range(len(one.inputs)))
        listed += [f"{expression(sql, schema)} AS {name}" for sql, name in zip(one.inputs, taken, strict=True)]
        kinds = (scalar(sql, schema, node=result).type for sql in one.inputs)
        fields += [Field(name, kind) for name, kind in zip(taken, kinds, strict=True)]
        folds.append(Fold(split.fold_name(result), _fold_type(one), one, taken))
    sql = f"SELECT {', '.join(listed)} FROM {_taken(inputs)}"
    label = f"{node.kind} '{names[node]}'"
    return Folds(label, sql, node.keys, Schema(tuple(fields)).nullable(), tuple(folds))


def _fold_type(aggregator: Aggregator) -> str:
    return f"struct<at:bigint,acc:{state_type(aggregator.state)}>"


def partial_call(partial: Partial, schema: Schema) -> str:
    """Return a partial aggregate as DuckDB's SQL, ready for `str.format`."""
    # DuckDB evaluates an argument before the condition, also where that does not hold.
    guard = f"CASE WHEN {partial.condition} THEN {{}} END" if partial.condition else ""
    guarded = (guard.format(sql) if guard and can_fail(sql, schema) else sql for sql in partial.arguments)
    arguments = [expression(sql, schema) for sql in guarded]
    where = f" FILTER (WHERE {expression(partial.condition, schema)})" if partial.condition else ""
    return _CALLS[partial.call].format(*arguments, type=partial.type, where=where)


def _pane(window: Window, pane_us: int) -> str:
    """Return the number of a row's pane."""
    shift = _LONG_AGO_US // pane_us * pane_us - window.offset_us
    return f"(epoch_us({TIME}) + {shift}) // {pane_us}"


def steps(
    prefix: Prefix, names: dict[Node, str], *, rejects: bool = False, time_range: TimeRange = ALL_TIMES
) -> tuple[Step, ...]:
    """Return the chain as SQL, one step per node."""
    found = []
    timed = False
    for node in prefix.chain:
        tried = attempts(row_expressions(node), node.inputs[0].schema) if rejects else {}
        probes = tried or _probes(node, node.inputs[0].schema)
        sql = native_lowering(node, _Rows(f", {TIME}" if timed else "", tried, time_range))
        found.append(Step(names[node], node.kind, sql, node.detail, tuple(tried.values()), tuple(probes.values())))
        timed = timed or node == prefix.times
    return tuple(found)


@singledispatch
def native_lowering(node: Node, rows: _Rows) -> str:
    """Return a node of the native lane as SQL over `{input}`."""
    message = f"{node.kind} has no lowering to the native lane"
    raise PipelineError(message, node=node.label)


@dataclass(frozen=True)
class _Rows:
    """What a step reads: `time` is the column of event times, if they are declared; `tried` are attempts."""

    time: str
    tried: dict[str, Attempt]
    time_range: TimeRange

    @property
    def source(self) -> str:
        return f"(SELECT *, {columns(self.tried.values())} FROM {{input}})" if self.tried else "{input}"

    @property
    def where(self) -> str:
        return f" WHERE {succeeded(self.tried.values())}" if self.tried else ""

    def select(self, listed: Columns, schema: Schema) -> str:
        return f"SELECT {_columns(listed, schema, self.tried)}{self.time} FROM {self.source}{self.where}"


@native_lowering.register
def _filter(node: Filter, rows: _Rows) -> str:
    if node.condition in rows.tried:
        one = rows.tried[node.condition]
        return f"SELECT * EXCLUDE ({one.column}) FROM {rows.source} WHERE {one.value}"
    return f"SELECT * FROM {{input}} WHERE {expression(node.condition, node.input.schema)}"


@native_lowering.register
def _select(node: Select, rows: _Rows) -> str:
    return rows.select(node.columns, node.input.schema)


@native_lowering.register
def _with_columns(node: WithColumns, rows: _Rows) -> str:
    new = dict(node.columns)
    return rows.select(tuple((n, new.get(n, _quoted(n))) for n in node.schema.names), node.input.schema)


@native_lowering.register
def _rename(node: Rename, rows: _Rows) -> str:
    old = dict(node.names)
    renamed = ", ".join(f"{quote(old.get(n, n))} AS {quote(n)}" for n in node.schema.names)
    return f"SELECT {renamed}{rows.time} FROM {{input}}"


@native_lowering.register
def _event_time(node: EventTime, rows: _Rows) -> str:
    time = quote(node.column)
    return f"SELECT *, {time} AS {TIME} FROM {{input}} WHERE {usable(time, rows.time_range)}"


@native_lowering.register
def _drop(node: Drop, rows: _Rows) -> str:
    return f"SELECT {', '.join(map(quote, node.schema.names))}{rows.time} FROM {{input}}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _columns(listed: Columns, schema: Schema, tried: dict[str, Attempt]) -> str:
    values = (tried[sql].value if sql in tried else expression(sql, schema) for _, sql in listed)
    return ", ".join(f"{value} AS {quote(name)}" for value, (name, _) in zip(values, listed, strict=True))


def attempts(wanted: Iterable[str], schema: Schema) -> dict[str, Attempt]:
    """Return attempts for those of some expressions that can fail, by expression."""
    risky = [sql for sql in dict.fromkeys(wanted) if can_fail(sql, schema)]
    return {sql: _attempt(f"{TRIED}{number}", sql, schema) for number, sql in enumerate(risky)}


def _attempt(column: str, sql: str, schema: Schema) -> Attempt:
    found = []
    for probe in probes(sql, schema):
        try:
            found.append((native_sql(probe.sql, schema), probe.reason))
        except NotNative:
            continue
    return Attempt(column, native_sql(sql, schema), tuple(found), generic_reason(sql))
