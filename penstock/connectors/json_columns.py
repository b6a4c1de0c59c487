"""What Arrow's JSON reader is asked for, and its answer in the declared types, at any depth.

It reads no bytes, dates or maps from JSON: those it gives as texts and lists, and here they become what they are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.binary_text import decoded
from penstock.connectors.epoch_numbers import ZONED, instants_of
from penstock.connectors.inner_types import holds
from penstock.connectors.json_rewrite import KEY, VALUE
from penstock.connectors.text_columns import convert, instants, plain_times


def wire(kind: pa.DataType, times: pa.DataType) -> pa.DataType:
    """Return the type that the reader is asked for; `times` is how instants are written."""
    if kind == ZONED:
        return times
    if pa.types.is_date(kind) or pa.types.is_binary(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_floating(kind):
        # A number that is too large for a double is refused; one that is too large for less would be infinity.
        return pa.float64()
    if pa.types.is_decimal(kind):
        # Arrow's reader does not check a decimal's precision; the cast from a wide one does.
        return pa.decimal256(76, kind.scale)
    if pa.types.is_list(kind):
        return pa.list_(wire(kind.value_type, times))
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, wire(part.type, times)) for part in kind])
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([(KEY, pa.string()), (VALUE, wire(kind.item_type, times))]))
    return kind


def typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return what the reader gave in its type; raise ArrowInvalid if a value does not fit."""
    if values.type == kind:
        return values
    if pa.types.is_list(kind):
        parts = typed(values.values, kind.value_type)
        return pa.ListArray.from_arrays(values.offsets, parts, type=kind, mask=values.is_null())
    if pa.types.is_struct(kind):
        parts = [typed(values.field(n), part.type) for n, part in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        return _map(values, kind)
    if pa.types.is_binary(kind):
        return decoded(values)
    if pa.types.is_timestamp(kind):
        return _times(values, kind)
    return values.cast(kind)


def _times(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type):
        return instants_of(values)
    return instants(values) if kind == ZONED else plain_times(values).cast(kind)


def _map(values: pa.ListArray, kind: pa.MapType) -> pa.Array:
    texts = values.values.field(KEY)
    keys = decoded(texts) if pa.types.is_binary(kind.key_type) else convert(texts, kind.key_type)
    _refuse_same_keys(keys, pc.list_parent_indices(values))
    items = typed(values.values.field(VALUE), kind.item_type)
    return pa.MapArray.from_arrays(values.offsets, keys, items, type=kind, mask=values.is_null())


def _refuse_same_keys(keys: pa.Array, rows: pa.Array) -> None:
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = rows.to_numpy(zero_copy_only=False).astype(np.int64) * (codes.max(initial=0) + 1) + codes
    if len(np.unique(pairs)) < len(pairs):
        message = "a key of a map is there twice"
        raise pa.ArrowInvalid(message)


def holds_interval(kind: pa.DataType) -> bool:
    """Say whether a span of time is in a type, which JSON has no form for."""
    return holds(kind, pa.types.is_duration)


def holds_nested_key(kind: pa.DataType) -> bool:
    """Say whether a map in a type has keys that are no plain values."""
    return holds(kind, lambda one: pa.types.is_map(one) and pa.types.is_nested(one.key_type))
