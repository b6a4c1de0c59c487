"""Relations as one statement of DuckDB, over the contents of their inputs: what a view has to be equal to.

This checks the translation of SQL without the circuit: the statement of the relation beside the query itself.
"""

from __future__ import annotations

from functools import singledispatch

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
from penstock.plan.relations.aggregate_calls import Call
from penstock.plan.sql_expressions.types import read
from penstock.plan.translation import native_sql
from penstock.plan.translation.parts import duckdb_type
from penstock.schema import Schema


def statement_of(relation: Relation) -> str:
    """Return a query with one table of WITH for each operator."""
    names = {one: f"r{number}" for number, one in enumerate(relation.operators)}
    tables = [f"{names[one]} AS MATERIALIZED ({_sql(one, [names[each] for each in one.inputs])})" for one in names]
    return f"WITH {', '.join(tables)} SELECT * FROM {names[relation]}"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def duckdb_schema(schema: Schema) -> str:
    """Return the columns of a table."""
    return ", ".join(f"{_name(field.name)} {duckdb_type(read(field.type))}" for field in schema)


def column_list(schema: Schema) -> str:
    """Return the names of columns."""
    return ", ".join(_name(field.name) for field in schema)


@singledispatch
def _sql(relation: Relation, inputs: list[str]) -> str:
    raise NotImplementedError(relation.kind)


@_sql.register
def _(relation: Input, inputs: list[str]) -> str:
    return f"SELECT * FROM {_name(relation.name)}"


@_sql.register
def _(relation: Latest, inputs: list[str]) -> str:
    return f"SELECT {', '.join(map(_name, relation.schema.names))} FROM {inputs[0]}"


@_sql.register
def _(relation: Project, inputs: list[str]) -> str:
    columns = (f"{native_sql(sql, relation.input.schema)} AS {_name(name)}" for name, sql in relation.columns)
    return f"SELECT {', '.join(columns)} FROM {inputs[0]}"


@_sql.register
def _(relation: Filter, inputs: list[str]) -> str:
    return f"SELECT * FROM {inputs[0]} WHERE {native_sql(relation.condition, relation.input.schema)}"


@_sql.register
def _(relation: Join, inputs: list[str]) -> str:
    assert not relation.shared, "the names of sql_view() are unique"
    on = [f"l.{_name(left)} = r.{_name(right)}" for left, right in relation.on]
    on += [native_sql(relation.residual, relation.pair)] if relation.residual else []
    word = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}.get(relation.how)
    if word:
        return f"SELECT l.*, r.* FROM {inputs[0]} l {word} {inputs[1]} r ON {' AND '.join(on) or 'TRUE'}"
    negated = "NOT " if relation.how == "anti" else ""
    partner = f"EXISTS (SELECT 1 FROM {inputs[1]} r WHERE {' AND '.join(on) or 'TRUE'})"
    return f"SELECT * FROM {inputs[0]} l WHERE {negated}{partner}"


@_sql.register
def _(relation: Aggregate, inputs: list[str]) -> str:
    found, keys = relation.calls, [*map(_name, relation.keys)]
    calls = [f"{_call(call, relation)} AS {_name(found.column(n))}" for n, call in enumerate(found.calls)]
    grouped = f"SELECT {', '.join([*keys, *calls])} FROM {inputs[0]}" + (f" GROUP BY {', '.join(keys)}" if keys else "")
    results = [f"{native_sql(sql, found.schema)} AS {_name(name)}" for name, sql in found.results]
    return f"SELECT {', '.join([*keys, *results])} FROM ({grouped})"


def _call(call: Call, relation: Aggregate) -> str:
    schema = relation.input.schema
    arguments = ", ".join(native_sql(one, schema) for one in call.arguments) or "*"
    name = {"min_by": "arg_min", "max_by": "arg_max"}.get(call.name, call.name)
    where = f" FILTER (WHERE {native_sql(call.condition, schema)})" if call.condition else ""
    sql = f"{name}({'DISTINCT ' if call.distinct else ''}{arguments}){where}"
    return f"CAST({sql} AS {duckdb_type(read(call.type))})"


@_sql.register
def _(relation: Distinct, inputs: list[str]) -> str:
    return f"SELECT DISTINCT * FROM {inputs[0]}"


@_sql.register
def _(relation: Top, inputs: list[str]) -> str:
    schema = relation.input.schema
    by = [f"{native_sql(sql, schema)} {way} NULLS {nulls}" for sql, way, nulls in relation.by]
    by += [*map(_name, schema.names)] if relation.ties == "row_number" else []
    keys = f"PARTITION BY {', '.join(map(_name, relation.keys))} " if relation.keys else ""
    rank = relation.rank or "__rank"
    numbered = f"SELECT *, {relation.ties}() OVER ({keys}ORDER BY {', '.join(by)}) AS {rank} FROM {inputs[0]}"
    return f"SELECT * {'' if relation.rank else f'EXCLUDE ({rank}) '}FROM ({numbered}) WHERE {rank} <= {relation.n}"


@_sql.register
def _(relation: Union, inputs: list[str]) -> str:
    return " UNION ALL ".join(f"SELECT * FROM {one}" for one in inputs)


@_sql.register
def _(relation: Except, inputs: list[str]) -> str:
    return f"SELECT * FROM {inputs[0]} EXCEPT {'ALL ' if relation.all else ''}SELECT * FROM {inputs[1]}"


@_sql.register
def _(relation: Intersect, inputs: list[str]) -> str:
    return f"SELECT * FROM {inputs[0]} INTERSECT {'ALL ' if relation.all else ''}SELECT * FROM {inputs[1]}"
