"""Intervals that DuckDB gives, at any depth: durations in microseconds, which is what DuckDB was given."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_INTERVAL = pa.month_day_nano_interval()
_PARTS = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
_DAY_US = 86_400_000_000


def with_durations(table: pa.Table) -> pa.Table:
    """Return a table with its intervals as durations; Arrow has no cast between the two.

    >>> from datetime import timedelta
    >>> spans = pa.array([[timedelta(days=2, seconds=1)], None], pa.list_(pa.duration("us")))
    >>> intervals = pa.array([[(0, 2, 1_000_000_000)], None], pa.list_(_INTERVAL))
    >>> with_durations(pa.table({"a": intervals})).column("a").combine_chunks().equals(spans)
    True
    """
    for number, field in enumerate(table.schema):
        if _holds_intervals(field.type):
            column = table.column(number).combine_chunks()
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            durations = pa.chunked_array([_durations(chunk) for chunk in chunks], _type(field.type))
            table = table.set_column(number, field.name, durations)
    return table


def _holds_intervals(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_intervals(kind.field(number).type) for number in range(kind.num_fields))
    return bool(kind == _INTERVAL)


def _type(kind: pa.DataType) -> pa.DataType:
    return _durations(pa.nulls(0, kind)).type


def _durations(values: pa.Array) -> pa.Array:
    kind = values.type
    if not _holds_intervals(kind):
        return values
    if kind == _INTERVAL:
        return _flat(values)
    # A slice of lists has offsets that no mask goes with.
    values = pa.concat_arrays([values.slice(0, 0), values]) if values.offset else values
    mask = values.is_null()
    if pa.types.is_struct(kind):
        parts = [_durations(values.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, names=[field.name for field in kind], mask=mask)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(values.offsets, _durations(values.keys), _durations(values.items), mask=mask)
    large = pa.types.is_large_list(kind)
    lists = pa.LargeListArray if large else pa.ListArray
    return lists.from_arrays(values.offsets, _durations(values.values), mask=mask)


def _flat(values: pa.Array) -> pa.Array:
    parts = np.frombuffer(values.buffers()[1] or b"", _PARTS, count=values.offset + len(values))[values.offset :]
    micros = parts["days"].astype(np.int64) * _DAY_US + parts["nanos"] // 1000
    return pa.array(micros, pa.duration("us"), mask=values.is_null().to_numpy(zero_copy_only=False))
