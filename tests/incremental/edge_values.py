"""Tables of random rows, with the values at which equality and order are hard."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# Tests share the machine: how long an example takes says nothing.
law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

DOUBLES = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7e308]
TEXTS = ["", "a", "A", "a\0", "\0", "ä", "a\u0308", "\U0001f600", "\uffff", "'\"\\\n", "a" * 40]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [0, 1, -1, 2**63 - 1, -(2**63)],
    pa.int8(): [0, 127, -128],
    pa.bool_(): [True, False],
    pa.float64(): DOUBLES,
    pa.float32(): [0.0, -0.0, 1.5, float("nan"), float("inf")],
    pa.string(): TEXTS,
    pa.binary(): [b"", b"\0", b"\xff\0", b"ab"],
    pa.decimal128(20, 2): [Decimal("0.00"), Decimal("-1.10"), Decimal("123456789012345678.99")],
    pa.timestamp("us", "UTC"): [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, UTC)],
    pa.date32(): [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    pa.duration("us"): [timedelta(microseconds=-1), timedelta(0), timedelta(days=9)],
    pa.list_(pa.float64()): [[], [0.0], [-0.0], [float("nan"), None], [None]],
    pa.struct([("x", pa.int64()), ("y", pa.string())]): [
        {"x": None, "y": "a"},
        {"x": 1, "y": None},
        {"x": 1, "y": "a"},
    ],
    pa.map_(pa.string(), pa.int64()): [[], [("k", 1)], [("k", None)], [("k", 1), ("l", 2)]],
    pa.null(): [None],
}


def columns(most: int = 3) -> st.SearchStrategy[list[pa.DataType]]:
    return st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=most)


def row(kinds: list[pa.DataType]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(st.sampled_from([None, *VALUES[kind]]) for kind in kinds))


def table(kinds: list[pa.DataType], rows: list[tuple[Any, ...]]) -> pa.Table:
    names = [f"c{number}" for number in range(len(kinds))]
    arrays = [pa.array([one[number] for one in rows], kind) for number, kind in enumerate(kinds)]
    return pa.Table.from_arrays(arrays, names=names)


def same(value: Any) -> Any:
    """Return a value that is equal, and has the same hash, wherever two values are the same."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(same(one) for one in value)
    if isinstance(value, dict):
        return tuple((name, same(one)) for name, one in value.items())
    return value


def contents(found: pa.Table) -> list[tuple[Any, ...]]:
    names = found.column_names
    return [tuple(same(one[name]) for name in names) for one in found.to_pylist()]
