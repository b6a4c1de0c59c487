"""Partial results of groups that are still open: Arrow tables, merged by DuckDB, stored as bytes between calls.

A pane is the longest run of time or of rows that lies wholly inside or outside each window. Rows and states have the
same partial columns, so one merge serves for rows that come in and for windows that go out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.native import engine
from penstock.native.steps import PANE, quote
from penstock.plan.operators.partial_aggregates import Partial
from penstock.schema import Schema
from penstock.values.state_tables import StateTable
from penstock.windows import LAST_US

PLACE = "__penstock_place"
# Placeholder in the SQL of a merge for what lists are ordered by.
ORDERED = "<order>"
LISTS = f"flatten(list({{0}} ORDER BY {ORDERED}))"
_COUNTED = ("rows", "count", "count_if", "sum", "sum_double", "sum_squares")
_ALL, _ANY = ("bool_and", "every"), ("bool_or", "some", "any")


class Invocation(Protocol):
    """What a step is called with for some keys of a bucket, and where it leaves what the next call needs of them."""

    rows: pa.Table
    state: tuple[StateTable, ...] | None
    watermark_us: int
    now_us: int
    ended: bool


def is_over(call: Invocation) -> bool:
    """Return whether no row will ever come: all that is open is closed."""
    return call.ended or call.watermark_us >= LAST_US


@dataclass(frozen=True)
class Panes:
    """The columns of a node's panes: its keys, and its partials with the SQL that merges each."""

    keys: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    rows: Schema

    def empty(self, *numbers: str) -> pa.Table:
        """Return no panes, with these columns of numbers."""
        fields = [pa.field(name, pa.int64()) for name in numbers]
        return pa.schema([*self.rows.nullable().arrow, *fields]).empty_table()

    def key_table(self, *numbers: str) -> pa.Table:
        """Return no keys, with these columns of numbers."""
        fields = [self.rows.nullable().arrow.field(name) for name in self.keys]
        return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in numbers)]).empty_table()

    def merged(self, of: str, *by: str, order: str = PANE) -> str:
        """Return the query that merges panes or rows which agree in their keys and in these columns.

        Lists are put together in an order: that of panes, or of rows after what is there already.
        """
        merges = (f"{sql.replace(ORDERED, order)} AS {name}" for name, sql in self.merges)
        return f"SELECT {', '.join([*map(quote, self.keys), *by, *merges])} FROM {of}{self.grouped(*by)}"

    def together(self, fresh: str, before: str, *by: str) -> str:
        """Return the query that merges rows, which have these columns, with the panes that are there already."""
        old = f"SELECT {self.listed}, {', '.join(by)}, -1 AS {PLACE} FROM {before}"
        rows = f"SELECT *, row_number() OVER () AS {PLACE} FROM ({fresh})"
        return self.merged(f"(({rows}) UNION ALL BY NAME ({old}))", *by, order=PLACE)

    def grouped(self, *by: str) -> str:
        """Return the GROUP BY of keys and more; without any there is one group, if there is a row."""
        groups = ", ".join([*map(quote, self.keys), *by])
        return f" GROUP BY {groups}" if groups else " HAVING count(*) > 0"

    def same_key(self, left: str, right: str) -> str:
        """Return the condition that two tables are at the same key; null is a key too."""
        pairs = (f"{left}.{quote(key)} IS NOT DISTINCT FROM {right}.{quote(key)}" for key in self.keys)
        return " AND ".join(pairs) or "TRUE"

    @property
    def listed(self) -> str:
        """The keys and partials, as a query names them."""
        return ", ".join([*map(quote, self.keys), *(name for name, _ in self.merges)])

    def of(self, alias: str) -> str:
        """The keys and partials of one table among several."""
        return ", ".join(f"{alias}.{name}" for name in (*map(quote, self.keys), *(name for name, _ in self.merges)))

    def partition(self, alias: str) -> str:
        """The PARTITION BY of a table's keys."""
        return f"PARTITION BY {', '.join(f'{alias}.{quote(key)}' for key in self.keys)}" if self.keys else ""


def merge_of(number: int, partials: Sequence[Partial], name: str) -> str:
    """Return the DuckDB aggregate that merges a partial column.

    >>> total = Partial("sum", ("v",), "bigint")
    >>> merge_of(0, [total], "__penstock_p")
    'CAST(sum(__penstock_p0) AS bigint)'
    """
    partial = partials[number]
    column = f"{name}{number}"
    if partial.call in _COUNTED:
        return f"CAST(sum({column}) AS {partial.type})"
    if partial.call in ("min_by", "max_by"):
        which = partial.call.removesuffix("_by")
        ordered = next(
            i
            for i, other in enumerate(partials)
            if (other.call, other.arguments, other.condition) == (which, partial.arguments[1:], partial.condition)
        )
        return f"arg_{which}_null({column}, {name}{ordered})"
    kind = "bool_and" if partial.call in _ALL else "bool_or" if partial.call in _ANY else partial.call
    return f"{kind}({column})"


def run(sql: str, **tables: pa.Table) -> pa.Table:
    """Run one query over Arrow tables; each is known by its name."""
    connection = engine.connection()
    for name, table in tables.items():
        connection.register(name, without_durations(table))
    try:
        return connection.sql(sql).to_arrow_table()
    finally:
        for name in tables:
            connection.unregister(name)


def fits(table: pa.Table, like: pa.Table) -> pa.Table:
    """Give a result of DuckDB the exact columns of a table that is kept."""
    return table.select(like.column_names).cast(like.schema)


def without_durations(table: pa.Table) -> pa.Table:
    """Return a table with durations as whole microseconds, at any depth.

    DuckDB returns intervals in nanoseconds, which a long duration overflows. Callers cast results to their own types.

    >>> spans = pa.table({"a": pa.array([[1], None], pa.list_(pa.duration("us")))})
    >>> without_durations(spans).schema.field("a").type
    ListType(list<item: int64>)
    """
    schema = pa.schema([field.with_type(_numbers(field.type)) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def _numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_numbers(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_numbers(kind.key_type), _numbers(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers(kind.value_type)))
    return kind
