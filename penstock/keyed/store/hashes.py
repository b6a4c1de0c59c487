"""The hash of a key in the state: equal keys have equal hashes, whatever the width of their Arrow types."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.native.key_hash import key_hashes

Numbers = npt.NDArray[np.int64]


def group_hashes(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> Numbers:
    """Return the hash of each row's key; without key columns all rows have the same one.

    >>> group_hashes([pa.array([1, 2], pa.int32())], 2).tolist() == group_hashes([pa.array([1, 2])], 2).tolist()
    True
    """
    if not columns:
        return np.zeros(rows, np.int64)
    if not rows:
        return np.zeros(0, np.int64)
    return key_hashes([_plain(_whole(column)) for column in columns])


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _plain(column: pa.Array) -> pa.Array:
    """Return a column as texts or 64-bit numbers, which all that is equal has in common."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_int64(kind):
        return column
    if pa.types.is_floating(kind):
        return _float_bits(column.cast(pa.float64()))
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_duration(kind):
        return column.cast(pa.int64())
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.int64())
    if pa.types.is_decimal(kind):
        return pa.array([None if one is None else str(one.normalize()) for one in column.to_pylist()], pa.string())
    texts = (json.dumps(one, separators=(",", ":"), ensure_ascii=False, default=str) for one in column.to_pylist())
    valid = column.is_valid().to_pylist()
    return pa.array([text if there else None for text, there in zip(texts, valid, strict=True)], pa.string())


def _float_bits(column: pa.Array) -> pa.Array:
    """Return the bits of doubles; -0.0 equals 0.0, and every NaN is the same one."""
    values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return pa.array(bits, mask=column.is_null().to_numpy(zero_copy_only=False))
