"""Promise: a key has the same bucket in both lanes, in every run and version: by Spark's xxhash64, to the bit."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from penstock.native.key_buckets import KeyBuckets, even_numbers
from penstock.native.key_hash import key_hashes
from penstock.plan.operators.node import BUCKETS
from penstock.plan.translation import KEY_TYPES
from penstock.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

chance = random.Random(7)
TEXTS = ["", "a", "é", "日本", "😀", "\0", "\0\0", "a\0", "\u007f\u0080", "ÿ" * 16, "x" * 4096]
# Every length around the ends of rounds (1, 4, 8 and 32 bytes), twice, and texts of several bytes a letter.
TEXTS += ["".join(chance.choices("abcz09-", k=length)) for length in (*range(100), *range(100))]
TEXTS += ["".join(chance.choices("aéß日😀", k=length)) for length in range(60)]
EDGES = [0, 1, -1, 127, 128, 255, 256, -128, 2**31 - 1, -(2**31)]
VALUES: dict[str, list[Any]] = {
    "string": TEXTS,
    "int": [*EDGES, *(chance.randrange(-(2**31), 2**31) for _ in range(200))],
    "bigint": [*EDGES, 2**32, 2**63 - 1, -(2**63), *(chance.randrange(-(2**63), 2**63) for _ in range(200))],
    "boolean": [True, False],
    "date": [date(1970, 1, 1), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31), date(2026, 2, 28)],
    "timestamp": [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(9999, 12, 30, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1, UTC),
    ],
}
NAMES = {kind: f"c_{kind}" for kind in VALUES}
SCHEMA = Schema(", ".join(f"{NAMES[kind]} {kind}" for kind in VALUES))


def rows(nulls: float) -> pa.Table:
    """As many rows as there are texts, with the values of the other columns by turns."""
    columns = []
    for kind, field in zip(VALUES, SCHEMA.arrow, strict=True):
        values = [VALUES[kind][number % len(VALUES[kind])] for number in range(len(TEXTS))]
        columns.append(pa.array([None if chance.random() < nulls else value for value in values], field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA.arrow)


def of(table: pa.Table, names: list[str]) -> list[int]:
    found: list[int] = key_hashes([table.column(name).combine_chunks() for name in names]).tolist()
    return found


@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_hashes_are_those_of_spark(nulls: float, spark: SparkSession) -> None:
    table = rows(nulls)
    keys = [[name] for name in NAMES.values()]
    keys += [list(NAMES.values()), list(NAMES.values())[::-1], ["c_string", "c_string"], ["c_int", "c_string"]]
    calls = [f"xxhash64({', '.join(names)}) AS h{number}" for number, names in enumerate(keys)]
    theirs = spark.createDataFrame(table).selectExpr(*calls).toArrow()
    for number, names in enumerate(keys):
        assert of(table, names) == theirs.column(f"h{number}").to_pylist(), names


def test_buckets_are_those_of_spark(spark: SparkSession) -> None:
    table = rows(0.1)
    theirs = spark.createDataFrame(table).selectExpr(f"pmod(xxhash64(c_string, c_bigint), {BUCKETS}) AS b").toArrow()
    columns = [table.column(name).combine_chunks() for name in ("c_string", "c_bigint")]
    ours = KeyBuckets(BUCKETS, even=False).of(columns, table.num_rows)
    assert ours.tolist() == theirs.column("b").to_pylist()
    assert len(set(ours.tolist())) > BUCKETS // 2


def test_a_key_has_the_bucket_that_it_had_in_the_first_version() -> None:
    """Golden values: stored state is found by them."""
    texts = {
        "": -7444071767201028348,
        "a": -8582455328737087284,
        "order-1": -8857238006990297597,
        "x" * 40: -5348608777870439244,
        None: 42,
    }
    ints = {0: 3614696996920510707, 1: -6698625589789238999, -1: 2017008487422258757}
    longs = {0: -5252525462095825812, 1: -7001672635703045582, -1: 3858142552250413010}
    for golden, kind in ((texts, pa.string()), (ints, pa.int32()), (longs, pa.int64())):
        assert key_hashes([pa.array(list(golden), kind)]).tolist() == list(golden.values())


def test_all_types_that_the_planner_packs_are_compared_here() -> None:
    assert set(VALUES) == KEY_TYPES


@given_settings(deadline=None)
@given(texts=st.lists(st.one_of(st.none(), st.text(max_size=80)), max_size=30), start=st.integers(0, 30))
def test_a_slice_has_the_hashes_of_its_rows(texts: list[str | None], start: int) -> None:
    column = pa.array(texts, pa.string())
    assert key_hashes([column.slice(start)]).tolist() == key_hashes([column]).tolist()[start:]


@given_settings(deadline=None)
@given(texts=st.lists(st.text(max_size=80), min_size=1, max_size=30))
def test_a_text_has_its_hash_whatever_is_beside_it(texts: list[str]) -> None:
    alone = [key_hashes([pa.array([text])]).tolist()[0] for text in texts]
    assert key_hashes([pa.array(texts)]).tolist() == alone


def test_no_rows_have_no_hashes() -> None:
    for field in SCHEMA.arrow:
        assert key_hashes([pa.array([], field.type)]).tolist() == []
    assert key_hashes([pa.nulls(3, pa.string())]).tolist() == [42] * 3
    assert key_hashes([pa.array(["a"])]).dtype == np.int64


@pytest.mark.parametrize("count", [1, 12, 64, 6000])
def test_tasks_of_spark_have_as_many_buckets_each(count: int, spark: SparkSession) -> None:
    numbers = even_numbers(count)
    assert len(set(numbers.tolist())) == count
    frame = spark.createDataFrame(pa.table({"n": pa.array(numbers, pa.int32())}))
    for tasks in (2, 3, 4, 7, 10, 16):
        placed = frame.selectExpr(f"pmod(hash(n), {tasks}) AS task").groupBy("task").count().toArrow()
        counts = placed.column("count").to_pylist()
        assert max(counts) - (min(counts) if len(counts) == tasks else 0) <= 1
