"""Conversion of Arrow tables to the rows that Python functions take, column by column where possible."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.process import EPOCH

Row = dict[str, Any]


def values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values as Python objects."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz and kind.unit == "us":
        stamps = column.cast(pa.int64()).to_pylist() if column.null_count else _numbers(column.cast(pa.int64()))
        return [None if us is None else EPOCH + timedelta(0, 0, us) for us in stamps]
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and not column.null_count:
        return _numbers(column)
    if pa.types.is_string(kind):
        found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    plain: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return plain


def rows_of(table: pa.Table, names: Sequence[str]) -> list[Row]:
    """Return rows as dicts of these columns."""
    return _dicts(tuple(names))([values(table.column(name)) for name in names])


@cache
def _dicts(names: tuple[str, ...]) -> Callable[[list[list[Any]]], list[Row]]:
    """Return a function from columns to dicts, generated for these names: three times as fast as a loop."""
    variables = [f"v{number}" for number in range(len(names))]
    pairs = ", ".join(f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True))
    made: Callable[[list[list[Any]]], list[Row]] = eval(
        f"lambda columns: [{{{pairs}}} for {', '.join(variables)}, in zip(*columns, strict=True)]"
    )
    return made


def by_key(table: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, list[int]]:
    """Group the rows by key, in the order in which keys appear; return the start of each group, and the end."""
    codes = key_codes([table.column(name) for name in keys])
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    firsts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]]) if len(codes) else np.array([], int)
    return table.take(pa.array(order)).combine_chunks(), [*firsts.tolist(), len(codes)]


def key_texts(rows: Sequence[Row]) -> list[str]:
    """Return keys as JSON text: the identity of a key in the state."""
    return [json.dumps(list(row.values()), separators=(",", ":"), ensure_ascii=False, default=str) for row in rows]


def _numbers(column: pa.ChunkedArray) -> list[Any]:
    found: list[Any] = column.to_numpy().tolist()
    return found


def key_codes(columns: Sequence[pa.ChunkedArray]) -> Any:
    """Number the distinct keys in the order in which they appear."""
    codes = _encoded(columns[0])
    for column in columns[1:]:
        more = _encoded(column)
        codes = _encoded(pa.chunked_array([pa.array(codes * (int(more.max(initial=0)) + 1) + more)]))
    return codes


def _encoded(column: pa.ChunkedArray) -> Any:
    if pa.types.is_nested(column.type):
        column = pa.chunked_array([pa.array(key_texts([{"": one} for one in column.to_pylist()]), pa.string())])
    if pa.types.is_floating(column.type):
        # Spark groups -0.0 with 0.0.
        column = pc.add(column, pa.scalar(0.0, column.type))
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64)
