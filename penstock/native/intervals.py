"""Durations on their way through DuckDB: as whole microseconds.

DuckDB gives its intervals back in nanoseconds, which a long duration does not fit. Who takes the results casts them to
the columns they should have, so nothing has to be turned back.
"""

from __future__ import annotations

import pyarrow as pa


def without_durations(table: pa.Table) -> pa.Table:
    """Return a table with durations as numbers, at any depth.

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
