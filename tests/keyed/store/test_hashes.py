"""Equal keys have equal hashes, whatever their Arrow types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.keyed.store.hashes import group_hashes

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([1, -1, None], [pa.int8(), pa.int16(), pa.int32(), pa.int64()]),
        ([1.5, -0.0, NAN, None], [pa.float32(), pa.float64()]),
        ([Decimal("1.50"), None], [pa.decimal128(10, 2), pa.decimal128(20, 4)]),
        ([datetime(2026, 1, 2, tzinfo=UTC), None], [pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")]),
        ([date(2026, 1, 2), None], [pa.date32(), pa.date64()]),
        ([True, False, None], [pa.bool_()]),
        ([b"a", b"", None], [pa.binary()]),
        ([{"a": 1}, None], [pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int32())])]),
    ],
)
def test_a_key_has_the_same_hash_in_every_type_that_holds_it(values: list[Any], kinds: list[pa.DataType]) -> None:
    found = [group_hashes([pa.array(values, kind)], len(values)).tolist() for kind in kinds]
    assert all(one == found[0] for one in found)
    assert len(set(found[0])) == len(values)


def test_zeros_are_equal_and_columns_count() -> None:
    zeros = group_hashes([pa.array([0.0, -0.0])], 2)
    assert zeros[0] == zeros[1]
    pairs = group_hashes([pa.array(["a", "b"]), pa.array(["b", "a"])], 2)
    assert pairs[0] != pairs[1]
    assert group_hashes([], 3).tolist() == [0, 0, 0]
