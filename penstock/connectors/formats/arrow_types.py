"""Nested Arrow types: a search, and the conversion of nanoseconds to microseconds at any depth."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc


def to_microseconds(values: pa.Array) -> pa.Array:
    """Return a column with its nanoseconds dropped; others as they are.

    >>> to_microseconds(pa.array([-1], pa.timestamp("ns"))).cast(pa.int64())[0].as_py()
    -1
    """
    kind = values.type
    if not contains_type(kind, _is_nanoseconds):
        return values
    if pa.types.is_timestamp(kind):
        # Without its zone, which would be looked up for each value.
        whole = pc.floor_temporal(values.cast(pa.timestamp("ns")), unit="microsecond").cast(pa.timestamp("us"))
        return whole.cast(pa.timestamp("us", kind.tz))
    if pa.types.is_dictionary(kind):
        return to_microseconds(values.dictionary_decode())
    if pa.types.is_struct(kind):
        parts = [to_microseconds(values.field(n)) for n in range(kind.num_fields)]
        fields = [part.with_type(array.type) for part, array in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=values.is_null())
    return _list(values)


def _list(values: pa.Array) -> pa.Array:
    # A slice of lists has offsets that no mask goes with.
    values = pa.concat_arrays([values.slice(0, 0), values]) if values.offset else values
    mask = values.is_null()
    if pa.types.is_map(values.type):
        keys, items = to_microseconds(values.keys), to_microseconds(values.items)
        return pa.MapArray.from_arrays(values.offsets, keys, items, mask=mask)
    large = pa.types.is_large_list(values.type)
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(
        values.offsets, to_microseconds(values.values), mask=mask
    )


def _is_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_nanoseconds(kind.value_type)
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def contains_type(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type passes a test, or one inside it does.

    >>> contains_type(pa.list_(pa.binary()), pa.types.is_binary)
    True
    """
    return test(kind) or any(contains_type(kind.field(n).type, test) for n in range(kind.num_fields))
