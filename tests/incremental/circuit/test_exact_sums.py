"""Sums that are added to and subtracted from for ever are exact: those of doubles are rounded once, at the end."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.incremental.circuit.exact_sums import (
    UNIT,
    carried,
    doubles_by_group,
    from_bytes,
    half_up,
    limbs_of,
    numbers_of,
    ratio,
    to_bytes,
    to_decimals,
)
from penstock.incremental.circuit.row_identity import Grouping

DOUBLES = st.floats(allow_nan=False, allow_infinity=False)


def one_group(size: int) -> Grouping:
    return Grouping(np.zeros(size, np.int64), np.zeros(1, np.int64))


@settings(deadline=None)
@given(st.lists(DOUBLES, min_size=1, max_size=20))
def test_a_sum_of_doubles_is_the_nearest_to_the_true_one(values: list[float]) -> None:
    (total,) = doubles_by_group(np.array(values), np.ones(len(values), np.int64), one_group(len(values)))
    try:
        expected = math.fsum(values)
    except OverflowError:
        return
    assert ratio(total, 1 << UNIT) == expected


@settings(deadline=None)
@given(st.lists(DOUBLES, min_size=1, max_size=10), st.integers(1, 1000))
def test_what_is_taken_out_leaves_nothing(values: list[float], weight: int) -> None:
    both = np.array([*values, *values])
    weights = np.array([weight] * len(values) + [-weight] * len(values))
    assert doubles_by_group(both, weights, one_group(len(both))) == [0]
    assert doubles_by_group(both, weights, one_group(len(both)), squared=True) == [0]


@settings(deadline=None)
@given(st.integers(-(2**1500), 2**1500).map(lambda number: number << 64))
def test_a_number_as_bytes(number: int) -> None:
    assert from_bytes(to_bytes(number)) == number


@settings(deadline=None)
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=20))
@example([10**38 - 1, 1])
@example([-(10**38) + 1, -1])
@example([10**38 - 1, 10**37])
def test_a_sum_of_decimals_is_exact(values: list[int]) -> None:
    array = pa.array([Decimal(one) for one in values], pa.decimal128(38, 0))
    limbs = carried([np.array([limb.sum()]) for limb in limbs_of(array, 4)])
    assert numbers_of(limbs) == [sum(values)]
    decimals, wrong = to_decimals(limbs, 0)
    assert bool(wrong[0]) == (abs(sum(values)) >= 10**38)
    if abs(sum(values)) < 10**38:
        assert decimals.to_pylist() == [Decimal(sum(values))]


def test_halves_are_rounded_away_from_zero() -> None:
    assert [half_up(one, 2) for one in (1, -1, 3, -3, 2, 0)] == [1, -1, 2, -2, 1, 0]
