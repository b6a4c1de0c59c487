"""Aggregates of a relation as accumulators and parts. Only the driver imports this module."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from penstock.incremental.circuit.accumulators import Accumulator, Result, What
from penstock.incremental.circuit.aggregates import ROWS, SUM, GroupedAggregate, Part
from penstock.incremental.circuit.changes import WEIGHT
from penstock.incremental.circuit.operator import Operator
from penstock.incremental.circuit.ordering import OrderBy
from penstock.incremental.circuit.percentiles import Percentiles
from penstock.incremental.circuit.ranking import First
from penstock.incremental.circuit.sets import CountedRows, counted_schema
from penstock.incremental.circuit.sql_steps import column_list, made_step, rows_schema
from penstock.incremental.circuit.state import with_weight
from penstock.incremental.circuit.top_compiler import NewArrangement, top_operator
from penstock.native.steps import quote
from penstock.plan.relations import Aggregate
from penstock.plan.relations.aggregate_calls import ORDERED, SPREADS, Call
from penstock.plan.sql_expressions.expression import scalar
from penstock.schema import Field, Schema, arrow_type, bare, quoted

_ARGUMENT = "__penstock_x"
_VALUE = "__penstock_v"
_SPECIAL: tuple[What, ...] = ("nan", "inf", "-inf")


@dataclass
class _Inputs:
    """The columns that aggregates take of each row: arguments as SQL, each once, and their types."""

    schema: Schema
    columns: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def column(self, sql: str) -> str:
        """Return the column of an expression."""
        if sql not in self.columns:
            name = f"{_ARGUMENT}{len(self.columns)}"
            self.columns[sql], self.types[name] = name, scalar(sql, self.schema, node="aggregate").type
        return self.columns[sql]


@dataclass
class _Sums:
    """The accumulators, each once."""

    found: dict[tuple[What, str], Accumulator] = field(default_factory=dict)

    def column(self, what: What, source: str) -> tuple[What, str]:
        """Return the columns in which a sum is."""
        key = (what, source)
        if key not in self.found:
            self.found[key] = Accumulator(what, source, f"{SUM}{len(self.found)}")
        return what, self.found[key].column

    def of_part(self, source: str) -> tuple[What, str]:
        """Return the columns of a count that a part gives: no other aggregate has it."""
        made = Accumulator("count", source, f"{SUM}{len(self.found)}")
        self.found["count", made.column] = made
        return made.what, made.column


def compiled_aggregate(relation: Aggregate, arrangement: NewArrangement, *, append_only: bool) -> GroupedAggregate:
    """Return the operator of an aggregate; `append_only` if no row is ever taken out of its input."""
    given, calls = relation.input.schema, relation.calls
    inputs, sums = _Inputs(given), _Sums()
    made = _Calls(relation, inputs, sums, arrangement, append_only)
    values = [(calls.column(number), made.value(call)) for number, call in enumerate(calls.calls)]
    keys = [*rows_schema(given)]
    by_key = [one for name in relation.keys for one in keys if one.name == name]
    state = pa.schema([*by_key, pa.field(ROWS, pa.int64()), *_sum_fields(sums), *made.value_fields])
    taken = Schema((*(given.field(key) for key in relation.keys), *(Field(n, t) for n, t in inputs.types.items())))
    fields = with_weight(rows_schema(taken))
    own = (*relation.keys, *map(bare, inputs.columns), WEIGHT)
    step = None
    if not {*own} <= {*given.names, WEIGHT}:
        listed = [*map(quote, relation.keys), column_list(((n, sql) for sql, n in inputs.columns.items()), given)]
        sql = f"SELECT {', '.join(one for one in listed if one)}, {WEIGHT} FROM {{input}}"
        step = made_step(relation, sql, relation.detail, [*inputs.columns], given)
    plain = all(bare(sql) in calls.schema.names for _, sql in calls.results)
    result = None
    if not plain:
        listed = [*map(quote, relation.keys), column_list(calls.results, calls.schema)]
        shown = [sql for _, sql in calls.results]
        result = made_step(relation, f"SELECT {', '.join(listed)} FROM {{input}}", relation.detail, shown, calls.schema)
    return GroupedAggregate(
        schema=with_weight(rows_schema(relation.schema)),
        label=relation.label,
        groups=arrangement(state, relation.keys),
        inputs=fields,
        inputs_step=step,
        own=own,
        accumulators=tuple(sums.found.values()),
        parts=tuple(made.parts),
        calls=tuple(values),
        results=result,
        result_names=(*relation.keys, *(bare(sql) for _, sql in calls.results)),
    )


def _sum_fields(sums: _Sums) -> list[pa.Field]:
    whole = [pa.field(name, pa.int64()) for one in sums.found.values() for name in one.ints]
    return whole + [pa.field(name, pa.binary()) for one in sums.found.values() for name in one.numbers]


class _Calls:
    """Turns calls into results of accumulators, or of parts."""

    def __init__(
        self, relation: Aggregate, inputs: _Inputs, sums: _Sums, arrangement: NewArrangement, append_only: bool
    ) -> None:
        self.relation, self.inputs, self.sums, self.arrangement = relation, inputs, sums, arrangement
        self.append_only = append_only
        self.parts: list[Part] = []
        self.value_fields: list[pa.Field] = []

    def value(self, call: Call) -> Result | str:
        """Return where the value of a call is: a result of accumulators, or a column of the state."""
        if call.distinct:
            return self._distinct(call)
        if call.name in ("min", "max", "min_by", "max_by"):
            return self._extreme(call)
        if call.name in ORDERED:
            return self._percentile(call)
        return self._summed(call)

    def _summed(self, call: Call) -> Result:
        source = self.inputs.column(_argument(call))
        column = self.sums.column
        name = "count" if call.name == "count_if" else call.name
        kind = arrow_type(call.type)
        shown = _shown(call)
        parts: list[tuple[What, str]] = [column("count", source)]
        if name in ("count",):
            return Result("count", tuple(parts), kind, shown)
        if name in ("bool_and", "bool_or"):
            return Result(name, (*parts, column("true", source)), kind, shown)  # type: ignore[arg-type]
        given = arrow_type(call.types[0])
        if name in SPREADS or pa.types.is_floating(given):
            if name in SPREADS and not pa.types.is_floating(given):
                source = self.inputs.column(f"CAST({_argument(call)} AS DOUBLE)")
            parts += [column("double", source), *(column(what, source) for what in _SPECIAL)]
            parts += [column("square", source)] if name in SPREADS else []
            return Result(name, tuple(parts), kind, shown)  # type: ignore[arg-type]
        if pa.types.is_decimal(given):
            return Result(name, (*parts, column("decimal", source)), kind, shown, given.scale)  # type: ignore[arg-type]
        return Result(name, (*parts, column("whole", source)), kind, shown)  # type: ignore[arg-type]

    def _distinct(self, call: Call) -> Result:
        """Count distinct values: a set of them, whose changes are counted."""
        sources = [self.inputs.column(_guarded(call, one)) for one in call.arguments]
        fields = self._fields(sources)
        state = self.arrangement(counted_schema(fields), fields.names)
        operator = CountedRows(with_weight(fields), state, "distinct")
        target = self.sums.of_part(sources[0])
        self._part(operator, sources, sources, target[1], None)
        return Result("count", (target,), arrow_type(call.type), _shown(call))

    def _extreme(self, call: Call) -> str:
        sources = [self.inputs.column(_guarded(call, one)) for one in call.arguments]
        order = sources[-1]
        by = OrderBy(order, descending=call.name.startswith("max"))
        fields = with_weight(self._fields(sources))
        first = First(self.relation.keys, 1, (by,), tuple(sources))
        operator = top_operator(fields, fields, first, None, self.arrangement, append_only=self.append_only)
        return self._valued(operator, sources, [order], sources[0], call)

    def _percentile(self, call: Call) -> str:
        source = self.inputs.column(_guarded(call, call.arguments[0]))
        fields = with_weight(self._fields([source]))
        made = with_weight(pa.schema([*[*fields][:-2], pa.field(source, arrow_type(call.type))]))
        exact = call.name == "percentile_disc"
        state = self.arrangement(fields, self.relation.keys)
        by = OrderBy(source, descending=call.descending)
        operator = Percentiles(made, state, source, by, call.options[0], exact)
        return self._valued(operator, [source], [source], source, call)

    def _valued(self, operator: Operator, sources: list[str], needed: list[str], value: str, call: Call) -> str:
        target = f"{_VALUE}{len(self.value_fields)}"
        self.value_fields.append(pa.field(target, arrow_type(call.type)))
        self._part(operator, sources, needed, target, value)
        return target

    def _part(
        self,
        operator: Operator,
        sources: list[str],
        needed: list[str],
        target: str,
        value: str | None,
    ) -> None:
        names = [*self.relation.keys, *dict.fromkeys(sources), WEIGHT]
        self.parts.append(Part(operator, tuple((name, name) for name in names), tuple(needed), target, value))

    def _fields(self, sources: list[str]) -> pa.Schema:
        given = {one.name: one for one in rows_schema(self.relation.input.schema)}
        columns = [pa.field(name, arrow_type(self.inputs.types[name])) for name in dict.fromkeys(sources)]
        return pa.schema([*(given[key] for key in self.relation.keys), *columns])


def _argument(call: Call) -> str:
    """Return the value that is summed, as SQL: null where the row does not count."""
    if call.name == "count_if":
        return _guarded(call, f"CASE WHEN {call.arguments[0]} THEN 1 END")
    if len(call.arguments) == 1 and (call.name != "count" or call.condition is None):
        return _guarded(call, call.arguments[0])
    there = [f"({one}) IS NOT NULL" for one in call.arguments]
    there += [f"({call.condition})"] if call.condition else []
    return f"CASE WHEN {' AND '.join(there)} THEN 1 END" if there else "1"


def _guarded(call: Call, sql: str) -> str:
    if call.condition is None:
        return quoted(sql) if bare(sql) != sql else sql
    return f"CASE WHEN {call.condition} THEN {sql} END"


def _shown(call: Call) -> str:
    where = f" FILTER (WHERE {call.condition})" if call.condition else ""
    return f"{call.name}({'DISTINCT ' if call.distinct else ''}{', '.join(call.arguments) or '*'}){where}"
