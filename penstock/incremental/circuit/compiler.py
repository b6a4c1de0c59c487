"""From a relation to operators. Only the driver imports this module: tasks do not load the SQL parser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import singledispatchmethod

import pyarrow as pa

from penstock.errors import PipelineError
from penstock.incremental.circuit.aggregate_compiler import compiled_aggregate
from penstock.incremental.circuit.changes import WEIGHT
from penstock.incremental.circuit.joins import JoinedRows, Pairs
from penstock.incremental.circuit.latest import COUNT, REMOVED, Bag, LatestRows
from penstock.incremental.circuit.linear import Concatenation, Expressions, Given, Selection
from penstock.incremental.circuit.operator import Operator, Wired
from penstock.incremental.circuit.ordering import OrderBy
from penstock.incremental.circuit.ranking import First
from penstock.incremental.circuit.sets import CountedRows, counted_schema
from penstock.incremental.circuit.sql_steps import column_list, made_step, rows_schema
from penstock.incremental.circuit.state import Arrangement, with_weight
from penstock.incremental.circuit.top_compiler import top_operator
from penstock.native.steps import quote
from penstock.native.translate import expression
from penstock.plan.relations import (
    Aggregate,
    Distinct,
    Except,
    Filter,
    Input,
    Intersect,
    Join,
    Latest,
    Project,
    Relation,
    Top,
    Union,
)
from penstock.plan.relations.append_only import append_only
from penstock.plan.sql_expressions.expression import scalar
from penstock.schema import Field, Schema, bare

ORDER = "__penstock_order"


def compiled(relation: Relation, append_only: Collection[str] = ()) -> tuple[Wired, ...]:
    """Return the operators of a relation, each after its inputs; the last one gives the result.

    No row is ever taken out of the inputs named in `append_only`.
    """
    compiler = _Compiler(relation, append_only)
    for one in relation.operators:
        compiler.add(one)
    return tuple(compiler.wired)


class _Compiler:
    def __init__(self, relation: Relation, append_only: Collection[str]) -> None:
        self._append_only = append_only
        self.wired: list[Wired] = []
        self._numbers: dict[Relation, int] = {}
        self._arrangements = 0
        self._consumers = Counter(given for one in relation.operators for given in one.inputs)

    def add(self, relation: Relation) -> None:
        """Add the operators of a relation, whose inputs were added."""
        self._numbers[relation] = self.compile(relation)

    def arrangement(self, schema: pa.Schema, by: Iterable[str]) -> Arrangement:
        """Return a new table of state."""
        self._arrangements += 1
        return Arrangement(self._arrangements - 1, schema, tuple(by))

    def wire(self, relation: Relation, operator: Operator, inputs: Iterable[int] | None = None) -> int:
        """Add an operator over the results of others."""
        given = tuple(self._numbers[one] for one in relation.inputs) if inputs is None else tuple(inputs)
        self.wired.append(Wired(operator, given, relation.label))
        return len(self.wired) - 1

    @singledispatchmethod
    def compile(self, relation: Relation) -> int:
        """Add the operators of one relation, and return the number of its result."""
        message = f"{relation.kind} has no operator"
        raise PipelineError(message, node=relation.label)

    @compile.register
    def _input(self, relation: Input) -> int:
        schema = with_weight(rows_schema(relation.schema))
        self.wired.append(Wired(Given(schema), (), relation.label, relation.name))
        return len(self.wired) - 1

    @compile.register
    def _latest(self, relation: Latest) -> int:
        given, made = (rows_schema(one.schema) for one in (relation.input, relation))
        if relation.remove is None and not relation.key:
            return self.wire(relation, Selection(with_weight(made), own=(*made.names, WEIGHT)))
        remove = None
        if relation.remove is not None:
            sql = f"SELECT *, coalesce({expression(relation.remove, relation.input.schema)}, FALSE) AS {REMOVED}"
            step = f"{sql} FROM {{input}}"
            remove = made_step(relation, step, relation.remove, [relation.remove], relation.input.schema)
        if not relation.key:
            state = self.arrangement(made.append(pa.field(COUNT, pa.int64())), made.names)
            return self.wire(relation, Bag(with_weight(made), state, with_weight(given), remove))
        state = self.arrangement(made, relation.key)
        return self.wire(relation, LatestRows(with_weight(made), state, with_weight(given), remove))

    @compile.register
    def _project(self, relation: Project) -> int:
        schema = with_weight(rows_schema(relation.schema))
        if len(relation.carried) == len(relation.columns):
            own = (*(bare(sql) for _, sql in relation.columns), WEIGHT)
            return self.wire(relation, Selection(schema, own=own))
        listed = column_list(relation.columns, relation.input.schema)
        sql = f"SELECT {listed}, {WEIGHT} FROM {{input}}"
        return self._chained(relation, sql, [sql for _, sql in relation.columns], schema)

    @compile.register
    def _filter(self, relation: Filter) -> int:
        sql = f"SELECT * FROM {{input}} WHERE {expression(relation.condition, relation.input.schema)}"
        return self._chained(relation, sql, [relation.condition], with_weight(rows_schema(relation.schema)))

    def _chained(self, relation: Project | Filter, sql: str, expressions: list[str], schema: pa.Schema) -> int:
        """Add a step to the query of the input, if nothing else needs the result of that."""
        step = made_step(relation, sql, relation.detail, expressions, relation.input.schema)
        before = self._numbers[relation.input]
        wired = self.wired[before]
        if (
            before == len(self.wired) - 1
            and self._consumers[relation.input] == 1
            and isinstance(wired.operator, Expressions)
        ):
            operator = replace(wired.operator, schema=schema, chain=(*wired.operator.chain, step))
            self.wired[before] = replace(wired, operator=operator, relation=relation.label)
            return before
        return self.wire(relation, Expressions(schema, chain=(step,)))

    @compile.register
    def _union(self, relation: Union) -> int:
        return self.wire(relation, Concatenation(with_weight(rows_schema(relation.schema))))

    @compile.register
    def _distinct(self, relation: Distinct) -> int:
        return self._counted(relation, "distinct")

    @compile.register
    def _except(self, relation: Except) -> int:
        return self._counted(relation, "except all" if relation.all else "except")

    @compile.register
    def _intersect(self, relation: Intersect) -> int:
        return self._counted(relation, "intersect all" if relation.all else "intersect")

    def _counted(self, relation: Relation, kind: str) -> int:
        schema = rows_schema(relation.schema)
        state = self.arrangement(counted_schema(schema), schema.names)
        return self.wire(relation, CountedRows(with_weight(schema), state, kind))  # type: ignore[arg-type]

    @compile.register
    def _join(self, relation: Join) -> int:
        schema = with_weight(rows_schema(relation.pair))
        residual = None
        if relation.residual is not None:
            sql = f"SELECT * FROM {{input}} WHERE {expression(relation.residual, relation.pair)}"
            residual = made_step(relation, sql, relation.residual, [relation.residual], relation.pair)
        names = tuple(relation.left.schema.names), tuple(relation.right_names)
        on = tuple(left for left, _ in relation.on), tuple(right for _, right in relation.on)
        pairs = Pairs(schema, *names, relation.shared, residual)
        left, right = (
            self.arrangement(with_weight(rows_schema(one.schema)), by)
            for one, by in zip(relation.inputs, on, strict=True)
        )
        made = with_weight(rows_schema(relation.schema))
        appended = tuple(append_only(one, self._append_only) for one in relation.inputs)
        return self.wire(relation, JoinedRows(made, relation.how, pairs, left, right, appended))

    @compile.register
    def _aggregate(self, relation: Aggregate) -> int:
        appended = append_only(relation.input, self._append_only)
        return self.wire(relation, compiled_aggregate(relation, self.arrangement, append_only=appended))

    @compile.register
    def _top(self, relation: Top) -> int:
        given = rows_schema(relation.input.schema)
        names, by, computed = given.names, [], []
        for number, (sql, direction, nulls) in enumerate(relation.by):
            own = bare(sql)
            column = own if own in names else f"{ORDER}{number}"
            if own not in names:
                computed.append((column, sql))
            by.append(OrderBy(column, direction == "desc", nulls == "first"))
        before = self._numbers[relation.input]
        rows = with_weight(given)
        if computed:
            listed = ", ".join(map(quote, names))
            sql = f"SELECT {listed}, {column_list(computed, relation.input.schema)}, {WEIGHT} FROM {{input}}"
            step = made_step(relation, sql, relation.detail, [one for _, one in computed], relation.input.schema)
            kinds = [scalar(one, relation.input.schema, node=relation.label).type for _, one in computed]
            more = rows_schema(Schema(tuple(Field(n, k) for (n, _), k in zip(computed, kinds, strict=True))))
            rows = with_weight(pa.schema([*given, *more]))
            before = self.wire(relation, Expressions(rows, chain=(step,)), [before])
        first = First(relation.keys, relation.n, tuple(by), tuple(names), relation.ties)
        made = with_weight(rows_schema(relation.schema))
        appended = append_only(relation.input, self._append_only)
        operator = top_operator(made, rows, first, relation.rank, self.arrangement, append_only=appended)
        return self.wire(relation, operator, [before])
