"""The judge: DuckDB computes a relation from scratch, by SQL that is written here and nowhere else.

Expressions in tests are such that Spark SQL and DuckDB read them alike; aggregates are translated by hand.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

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

SEQUENCE = "seq__"
Row = tuple[Any, ...]


def recomputed(relation: Relation, tables: dict[str, pa.Table]) -> list[Row]:
    """Return the rows of a relation over the rows of its inputs; those of logs have the column `SEQUENCE`."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
    for name, table in tables.items():
        connection.register(name, table)
    return [tuple(row.values()) for row in connection.sql(query(relation)).to_arrow_table().to_pylist()]


def query(relation: Relation) -> str:
    """Return a relation as DuckDB's SQL."""
    columns = ", ".join(map(q, relation.schema.names))
    match relation:
        case Input():
            return f"SELECT {columns} FROM {q(relation.name)}"
        case Latest():
            return _latest(relation, columns)
        case Project():
            listed = ", ".join(f"{sql} AS {q(name)}" for name, sql in relation.columns)
            return f"SELECT {listed} FROM ({query(relation.input)})"
        case Filter():
            return f"SELECT * FROM ({query(relation.input)}) WHERE {relation.condition}"
        case Union():
            return " UNION ALL ".join(f"(SELECT {columns} FROM ({query(one)}))" for one in relation.parts)
        case Distinct():
            return f"SELECT DISTINCT * FROM ({query(relation.input)})"
        case Except() | Intersect():
            word = f"{relation.kind.upper()}{' ALL' if relation.all else ''}"
            return f"({query(relation.left)}) {word} ({query(relation.right)})"
        case Join():
            return _join(relation)
        case Aggregate():
            return _aggregate(relation)
        case Top():
            return _top(relation)
    raise AssertionError(relation)


def q(name: str) -> str:
    return f'"{name}"'


def _latest(relation: Latest, columns: str) -> str:
    assert isinstance(relation.input, Input)
    assert relation.key
    by = ", ".join(map(q, relation.key))
    numbered = f"SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {SEQUENCE} DESC) AS rn__"
    gone = f"coalesce({relation.remove}, FALSE)" if relation.remove else "FALSE"
    return f"SELECT {columns} FROM ({numbered} FROM {q(relation.input.name)}) WHERE rn__ = 1 AND NOT {gone}"


def _join(relation: Join) -> str:
    keys = [f"r__{number}" for number in range(len(relation.on))]
    right = [f"{q(own)} AS {q(name)}" for own, name in relation.right_names.items()]
    right += [f"{q(own)} AS {key}" for key, (_, own) in zip(keys, relation.on, strict=True)]
    r = f"(SELECT {', '.join(right)} FROM ({query(relation.right)})) r"
    left = f"({query(relation.left)}) l"
    on = " AND ".join([f"l.{q(own)} = r.{key}" for key, (own, _) in zip(keys, relation.on, strict=True)] or ["TRUE"])
    on += f" AND ({relation.residual})" if relation.residual else ""
    if relation.how in ("semi", "anti"):
        word = "EXISTS" if relation.how == "semi" else "NOT EXISTS"
        return f"SELECT * FROM {left} WHERE {word} (SELECT 1 FROM {r} WHERE {on})"
    shared = {own: key for key, (own, other) in zip(keys, relation.on, strict=True) if own == other}
    mine = [
        f"coalesce(l.{q(one)}, r.{shared[one]}) AS {q(one)}" if one in shared else f"l.{q(one)}"
        for one in relation.left.schema.names
    ]
    listed = ", ".join([*mine, *(f"r.{q(name)}" for name in relation.right_names.values())])
    return f"SELECT {listed} FROM {left} {relation.how.upper()} JOIN {r} ON {on}"


_CALLS = (
    (r"count_if\((.*?)\)", r"count(CASE WHEN \1 THEN 1 END)"),
    (r"percentile\((\w+), ([\d.]+)\)", r"quantile_cont(CAST(\1 AS DOUBLE), \2)"),
    (r"median\((\w+)\)", r"quantile_cont(CAST(\1 AS DOUBLE), 0.5)"),
    (r"max_by\((\w+), (\w+)\)", r"first(\1 ORDER BY \2 DESC, \1 ASC NULLS FIRST) FILTER (WHERE \2 IS NOT NULL)"),
    (r"min_by\((\w+), (\w+)\)", r"first(\1 ORDER BY \2 ASC, \1 ASC NULLS FIRST) FILTER (WHERE \2 IS NOT NULL)"),
)


def _aggregate(relation: Aggregate) -> str:
    listed = [q(key) for key in relation.keys]
    for name, sql in relation.aggregates:
        text = sql
        for pattern, made in _CALLS:
            text = re.sub(pattern, made, text)
        listed.append(f"{_cast(text, relation.schema.types[name])} AS {q(name)}")
    by = f" GROUP BY {', '.join(map(q, relation.keys))}" if relation.keys else ""
    return f"SELECT {', '.join(listed)} FROM ({query(relation.input)}){by}"


def _cast(sql: str, kind: str) -> str:
    names = {"bigint": "BIGINT", "double": "DOUBLE", "int": "INTEGER"}
    kind = names.get(kind, kind)
    return f"CAST({sql} AS {kind})" if kind in names.values() or kind.startswith("decimal") else sql


def _top(relation: Top) -> str:
    by = [f"{sql} {direction.upper()} NULLS {nulls.upper()}" for sql, direction, nulls in relation.by]
    if relation.ties == "row_number":
        by += [f"{q(name)} ASC NULLS FIRST" for name in relation.input.schema.names]
    part = f"PARTITION BY {', '.join(map(q, relation.keys))} " if relation.keys else ""
    order = f"ORDER BY {', '.join(by)}" if by else ""
    ranked = f"SELECT *, {relation.ties}() OVER ({part}{order}) AS rn__ FROM ({query(relation.input)})"
    rank = f", CAST(rn__ AS INTEGER) AS {q(relation.rank)}" if relation.rank else ""
    return f"SELECT * EXCLUDE (rn__){rank} FROM ({ranked}) WHERE rn__ <= {relation.n}"


def same(found: Iterable[Row], expected: Iterable[Row]) -> bool:
    """Whether two bags of rows are equal; doubles may differ in their last digits."""
    return differences(found, expected) == []


def differences(found: Iterable[Row], expected: Iterable[Row]) -> list[str]:
    """Return the rows that one bag has, and the other has not."""
    a, b = Counter(map(_plain, found)), Counter(map(_plain, expected))
    return [f"only found {n} x {row}" for row, n in (a - b).items()] + [
        f"only expected {n} x {row}" for row, n in (b - a).items()
    ]


def _plain(row: Sequence[Any]) -> Row:
    return tuple(map(_value, row))


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value + 0.0:.9g}"
    return value
