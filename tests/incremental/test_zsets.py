"""Promise: Z-sets are a group under `add`, and the canonical form depends on nothing but the content."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadSchema, BadValue
from penstock.incremental import zsets
from penstock.incremental.zsets import WEIGHT, add, consolidate, content, distinct, equal, from_rows, negate
from tests.incremental.edge_values import columns, contents, law, row, same, table

Rows = list[tuple[tuple[Any, ...], int]]


@st.composite
def zset_rows(draw: st.DrawFn, count: int = 1) -> tuple[list[pa.DataType], list[Rows]]:
    kinds = draw(columns())
    pairs = st.lists(st.tuples(row(kinds), st.integers(-3, 3)), max_size=12)
    return kinds, [draw(pairs) for _ in range(count)]


def zset(kinds: list[pa.DataType], rows: Rows) -> pa.Table:
    return from_rows(table(kinds, [one for one, _ in rows]), np.array([weight for _, weight in rows], np.int64))


def counted(found: pa.Table) -> dict[tuple[Any, ...], int]:
    sums: Counter[tuple[Any, ...]] = Counter()
    for one in contents(found):
        sums[one[:-1]] += one[-1]
    return {one: weight for one, weight in sums.items() if weight}


@law
@given(zset_rows())
def test_consolidated_has_each_row_once_with_the_sum_of_its_weights(given: tuple[Any, list[Rows]]) -> None:
    kinds, (rows,) = given
    expected: Counter[Any] = Counter()
    for one, weight in rows:
        expected[same(one)] += weight
    found = contents(consolidate(zset(kinds, rows)))
    assert {one[:-1]: one[-1] for one in found} == {one: weight for one, weight in expected.items() if weight}
    assert len(found) == len({one[:-1] for one in found})


@law
@given(zset_rows(), st.randoms(use_true_random=False), st.integers(0, 12))
def test_the_same_content_has_the_same_bytes(given: tuple[Any, list[Rows]], random: Any, cut: int) -> None:
    """However it is ordered, split, sliced or cancelled out."""
    kinds, (rows,) = given
    one = zset(kinds, rows)
    shuffled = random.sample(rows, len(rows))
    other = add(zset(kinds, shuffled[:cut]), zset(kinds, rows), zset(kinds, shuffled[cut:]), negate(one))
    padded = zset(kinds, [*rows[:1], *shuffled, *rows[:1]]).slice(min(len(rows), 1), len(rows))
    assert content(one) == content(other) == content(padded)
    assert consolidate(one).schema.equals(consolidate(other).schema, check_metadata=True)
    assert content(consolidate(one)) == content(one)


@law
@given(zset_rows(2))
def test_other_content_has_other_bytes(given: tuple[Any, list[Rows]]) -> None:
    kinds, (left, right) = given
    one, other = zset(kinds, left), zset(kinds, right)
    alike = counted(one) == counted(other)
    assert equal(one, other) == alike == (content(one) == content(other))


@law
@given(zset_rows(3))
def test_zsets_are_a_commutative_group(given: tuple[Any, list[Rows]]) -> None:
    kinds, parts = given
    a, b, c = (zset(kinds, rows) for rows in parts)
    nothing = zsets.empty(zsets.rows_of(a).schema)
    assert equal(add(a, add(b, c)), add(add(a, b), c))
    assert equal(add(a, b), add(b, a))
    assert equal(add(a, nothing), a)
    assert equal(add(a, negate(a)), nothing)
    assert equal(negate(negate(a)), a)
    assert consolidate(add(a, negate(a))).num_rows == 0


@law
@given(zset_rows())
def test_distinct_has_what_is_positive_once(given: tuple[Any, list[Rows]]) -> None:
    kinds, (rows,) = given
    one = zset(kinds, rows)
    assert counted(distinct(one)) == {key: 1 for key, weight in counted(one).items() if weight > 0}
    assert content(distinct(distinct(one))) == content(distinct(one))


def test_dictionaries_and_views_are_the_same_as_plain_columns() -> None:
    plain = from_rows(pa.table({"a": ["x", None, "x"]}))
    coded = from_rows(pa.table({"a": plain.column("a").dictionary_encode()}))
    viewed = from_rows(pa.table({"a": plain.column("a").cast(pa.string_view())}))
    assert equal(plain, coded)
    assert equal(plain, viewed)


def test_rows_without_columns_are_equal() -> None:
    found = consolidate(pa.table({WEIGHT: [2, 3]}))
    assert found.to_pylist() == [{WEIGHT: 5}]


def test_a_table_without_weights_is_refused() -> None:
    with pytest.raises(BadSchema, match="not a Z-set"):
        consolidate(pa.table({"a": [1]}))


def test_a_type_without_an_order_is_refused() -> None:
    fixed = pa.array([[1, 2]], pa.list_(pa.int64(), 2))
    with pytest.raises(BadSchema, match="fixed_size_list"):
        consolidate(from_rows(pa.table({"a": fixed})))


def test_a_weight_that_does_not_fit_is_refused() -> None:
    most = 2**63 - 1
    with pytest.raises(BadValue, match="beyond"):
        consolidate(pa.table({"a": [1, 1], WEIGHT: [most, 1]}))
    assert consolidate(pa.table({"a": [1, 2], WEIGHT: [most, 1]})).num_rows == 2
