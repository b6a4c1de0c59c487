"""Both engines fail on the same rows, for the same reasons; what is taken for safe never fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.native import fallible_expressions as native
from penstock.native import translate as planning
from penstock.native.engine import connection, share_subexpressions
from penstock.native.translate import expression
from penstock.plan.translation.fallibility import can_fail, probes
from penstock.schema import Schema
from tests.native.expressions import CASES, FAR_US, SCHEMA, edges, far_edges, random_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = [sql for cases in CASES.values() for sql in cases]
FALLIBLE = ("arithmetic", "numbers", "logic", "casts")
# Parts that stand twice in an expression, or in two, which engines like to compute once, outside of the attempt.
SHARED = ["d / e + d / e", "d / e + 1", "CAST(k AS INT) + CAST(k AS INT)", "nullif(d / e, 1)", "d / e BETWEEN 0 AND 1"]
Reasons = list[str | None]


@pytest.mark.parametrize("group", CASES)
def test_what_is_taken_for_safe_fails_on_no_row(group: str) -> None:
    rows = pa.concat_tables([edges(), far_edges()])
    for sql in CASES[group]:
        reasons = in_duckdb([sql], rows, always=True)[0]
        assert can_fail(sql, SCHEMA) or not any(reasons), sql


@pytest.mark.parametrize("unit", ["microsecond", "hour", "day", "week", "year"])
def test_a_time_near_the_ends_is_cut_as_any_other_or_fails(unit: str) -> None:
    sql, schema, first = f"date_trunc('{unit}', ts)", Schema("ts timestamp"), -9_223_372_022_400_000_000
    given = [-(2**63), -(2**63) + 1, first - 3_600_000_000, first - 1, first + 40_000_000_000_000, 0, 2**63 - 1]
    rows = pa.table({"ts": pa.array(given, pa.int64()).cast(pa.timestamp("us", "UTC"))})
    connection().register("rows", rows)
    found = connection().sql(f"SELECT epoch_us(TRY({expression(sql, schema)})) AS x FROM rows").fetchall()
    cut = [x for (x,) in found]
    assert [x is None for x in cut] == [True, True, True, True, False, False, True]
    assert all(0 <= us - x < 366 * 86_400_000_000 for us, x in zip(given, cut, strict=True) if x is not None)
    assert can_fail(sql, schema)


@pytest.mark.parametrize(("function", "per_unit"), [("unix_seconds", 10**6), ("unix_millis", 1000)])
def test_units_since_1970_are_rounded_down_from_the_first_time_on(function: str, per_unit: int) -> None:
    # DuckDB takes the second and the last one for infinity, of which a field is null.
    given = [*(us for us in FAR_US if us not in (None, 1 - 2**63, 2**63 - 1)), -1, 0, 1]
    rows = pa.table({"ts": pa.array(given, pa.int64()).cast(pa.timestamp("us", "UTC"))})
    connection().register("rows", rows)
    sql = expression(f"{function}(ts)", Schema("ts timestamp"))
    found = connection().sql(f"SELECT {sql} FROM rows").fetchall()
    assert [x for (x,) in found] == [us // per_unit for us in given]


@pytest.mark.parametrize("group", FALLIBLE)
def test_the_same_rows_fail_for_the_same_reasons(spark: SparkSession, group: str) -> None:
    agree(spark, CASES[group], edges())


def test_a_part_that_stands_twice_is_attempted_too(spark: SparkSession) -> None:
    agree(spark, SHARED, edges())


@pytest.mark.slow
@settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(group=st.sampled_from(FALLIBLE), seed=st.integers(0, 2**32))
def test_random_rows_fail_for_the_same_reasons(spark: SparkSession, group: str, seed: int) -> None:
    # Random rows need not have one on which an expression fails.
    agree(spark, CASES[group], random_rows(seed), some_fail=False)


def agree(spark: SparkSession, cases: list[str], rows: pa.Table, *, some_fail: bool = True) -> None:
    risky = [sql for sql in dict.fromkeys(cases) if can_fail(sql, SCHEMA)]
    ours, theirs = in_duckdb(risky, rows), in_spark(spark, risky, rows)
    assert not some_fail or any(map(any, ours))
    for sql, mine, other in zip(risky, ours, theirs, strict=True):
        assert mine == other, sql


def in_duckdb(cases: list[str], rows: pa.Table, *, always: bool = False) -> list[Reasons]:
    """The reason of each row, for each expression by itself."""
    numbered = rows.append_column("row_number", pa.array(range(rows.num_rows)))
    connection().register("rows", numbered)
    share_subexpressions(False)
    try:
        return [_in_duckdb(sql, rows.num_rows, always) for sql in cases]
    finally:
        share_subexpressions(True)


def _in_duckdb(sql: str, count: int, always: bool) -> Reasons:
    tried = (
        [planning._attempt(native.TRIED, sql, SCHEMA)] if always else list(planning.attempts([sql], SCHEMA).values())
    )
    found = connection().sql(native.failed_rows(tried, "rows")).to_arrow_table()
    texts = native.reasons(tried)
    reasons: Reasons = [None] * count
    for number, why in zip(found["row_number"].to_pylist(), found[native.WHY].to_pylist(), strict=True):
        reasons[number] = texts[why]
    return reasons


def in_spark(spark: SparkSession, cases: list[str], rows: pa.Table) -> list[Reasons]:
    """The same by Spark, all expressions side by side in one query."""
    from pyspark.sql import functions as F

    from penstock.spark.lowering.fallible_expressions import Reasons as SparkReasons
    from penstock.spark.lowering.fallible_expressions import attempt

    frame = spark.createDataFrame(rows)
    names = {sql: f"tried{number}" for number, sql in enumerate(cases)}
    tried = frame.select("*", *(attempt(F.expr(sql), spark).alias(name) for sql, name in names.items()))
    each = [SparkReasons(tried, {sql: name}, SCHEMA) for sql, name in names.items()]
    numbers = [
        F.when(F.col(name).isNull(), one.number).alias(f"w{name}")
        for name, one in zip(names.values(), each, strict=True)
    ]
    found = tried.select(*numbers).toArrow()
    return [
        [None if why is None else one.texts[why] for why in column.to_pylist()]
        for one, column in zip(each, found.columns, strict=True)
    ]


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("a / b", ["a / b"]),
        ("CASE WHEN b <> 0 THEN a / b END", ["a / b"]),
        ("coalesce(CAST(s AS INT), a div b)", ["CAST(s AS INT)", "a div b"]),
        ("a / nullif(b, 0)", []),
        ("try_divide(a, b)", []),
        ("try_cast(s AS INT)", []),
        ("a * 2.5D", []),
        ("m + m", []),
        ("s = 'x' OR upper(s) LIKE 'A%'", []),
        ("ts > '2026-01-01'", []),
        ("ts > DATE '2026-01-01'", []),
        ("ts > to_date(ts)", ["ts > to_date(ts)"]),
        ("CAST(to_date(ts) AS timestamp)", ["CAST(to_date(ts) AS timestamp)"]),
        ("date_trunc('week', ts)", ["date_trunc('week', ts)"]),
        ("+s", ["+s"]),
        ("+a", []),
        ("-m", []),
        ("-cast(m AS decimal(38,2))", ["-cast(m AS decimal(38,2))"]),
        ("a / 1e-400", ["a / 1e-400"]),
        ("a / 1e-300", []),
        ("try_parse_url(s, 'QUERY', 'q')", []),
        ("try_parse_url(s, 'QUERY', '(')", ["try_parse_url(s, 'QUERY', '(')"]),
        ("try_parse_url(s, 'QUERY', s)", ["try_parse_url(s, 'QUERY', s)"]),
        ("try_variant_get(try_parse_json(s), '$.a[0]', 'int')", []),
        ("try_variant_get(try_parse_json(s), s, 'int')", ["try_variant_get(try_parse_json(s), s, 'int')"]),
        ("transform(l, x -> x / 0)", ["transform(l, x -> x / 0)"]),
    ],
)
def test_probes_are_the_parts_that_can_fail(sql: str, parts: list[str]) -> None:
    schema = Schema("a bigint, b bigint, s string, m decimal(10,2), ts timestamp, l array<int>")
    named = [probe.reason.split('"')[1] for probe in probes(sql, schema)]
    assert [one.lower() for one in named] == [one.lower() for one in parts]


def test_an_expression_of_many_parts_has_one_reason() -> None:
    sql = " + ".join(["CAST(s AS INT)"] * 20)
    assert can_fail(sql, Schema("s string"))
    assert probes(sql, Schema("s string")) == ()
