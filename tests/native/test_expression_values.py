"""What runs natively gives Spark's values, to the bit, and fails on the rows on which Spark fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.plan.translation import supported_forms, translate, why_not
from tests.native.comparing import Native, bits, in_spark, spark_fails
from tests.native.expressions import CASES, SCHEMA, edges, random_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = [sql for cases in CASES.values() for sql in cases]


def test_every_expression_here_runs_natively() -> None:
    assert {sql: reason for sql in ALL if (reason := why_not(sql, SCHEMA))} == {}


def test_every_form_on_the_list_has_a_case_here() -> None:
    used: set[str] = set()
    for sql in ALL:
        made = translate(sql, SCHEMA)
        made.whole()
        used |= made.used
    assert supported_forms() - used == set()


@pytest.mark.parametrize("group", CASES)
def test_edges_give_the_same_bits(spark: SparkSession, group: str) -> None:
    agree(spark, CASES[group], edges())


# A failure is not shrunk: each try is a Spark query of a hundred columns.
@settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(group=st.sampled_from(sorted(CASES)), seed=st.integers(0, 2**32))
def test_random_rows_give_the_same_bits(spark: SparkSession, group: str, seed: int) -> None:
    agree(spark, CASES[group], random_rows(seed))


# Each is a query of Spark's, so that in short some stand for the others; test_fallible_expressions.py has them all.
@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("group", ["arithmetic", "numbers", "logic", "casts"])
def test_rows_that_fail_here_fail_in_spark(spark: SparkSession, group: str, step: int) -> None:
    rows = edges()
    failing = [(sql, row) for sql in CASES[group] for row in Native(sql, rows).failing(rows)[:1]]
    assert failing
    assert [(sql, row) for sql, row in failing[::step] if not spark_fails(spark, sql, row)] == []


def agree(spark: SparkSession, cases: list[str], rows: pa.Table) -> None:
    natives = [Native(sql, rows) for sql in cases]
    theirs = in_spark(spark, natives, rows)
    for native, column in zip(natives, theirs.columns, strict=True):
        assert native.column.type == column.type, native.sql
        assert bits(native.column) == bits(column.filter(native.ok)), native.sql
