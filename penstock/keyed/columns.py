"""Between Arrow and the rows that Python functions see, without a call per value where Arrow has a quicker way."""

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
    """Return a column's values as Python has them."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz and kind.unit == "us":
        stamps = column.cast(pa.int64()).to_pylist() if column.null_count else _numbers(column.cast(pa.int64()))
        return [None if us is None else EPOCH + timedelta(0, 0, us) for us in stamps]
    whole = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if whole and not column.null_count:
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
    """Return what makes dicts of columns; written out for these names, which takes a third of the time of a loop."""
    places = [f"v{number}" for number in range(len(names))]
    pairs = ", ".join(f"{name!r}: {place}" for name, place in zip(names, places, strict=True))
    made: Callable[[list[list[Any]]], list[Row]] = eval(
        f"lambda columns: [{{{pairs}}} for {', '.join(places)}, in zip(*columns, strict=True)]"
    )
    return made


def by_key(table: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, list[int]]:
    """Put the rows of each key together, in the order in which keys appear; return where each begins, and the end."""
    codes = key_codes([table.column(name) for name in keys])
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    firsts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]]) if len(codes) else np.array([], int)
    return table.take(pa.array(order)).combine_chunks(), [*firsts.tolist(), len(codes)]


def key_texts(rows: Sequence[Row]) -> list[str]:
    """Return keys as text: one for each, the same in every epoch."""
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
