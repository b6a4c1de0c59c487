"""Promise: what is evaluated without an attempt, because it cannot fail, fails on no row."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import PipelineError
from penstock.plan.sql_expressions import functions
from penstock.plan.sql_expressions.expression import scalar
from penstock.plan.translation.fallibility import can_fail
from tests.plan.sql_expressions.test_types_agree_with_spark import INPUT, SCALARS, _listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark converts a value here without being asked to, or an argument of a function that tries does not fit.
CONVERTING = """
array(i, s) | array('a', 1) | array(arr, words) | concat(arr, words) | coalesce(words, arr) | nvl(arr, words)
case when flag then arr else words end | if(flag, s, i) | get(arr, s) | get(arr, big) | hex(d) | hex(wide)
try_element_at(arr, i) | try_to_date(s, s) | try_to_timestamp(s, 'Q!t') | s + 1 | s = 1 | s in (1, 2)
s between 1 and 2 | i > s | greatest(s, i) | day = s | date_add(s, 1) | year(s) | date_trunc('day', s) | ts - s
s * span | arr[s] | m[s] = s and abs(s) > 1 | sqrt(s) | pow(d, s) | round(s) | element_at(arr, s) | isnan(s)
struct(big / d as x).x | named_struct('a', big div i).a | size(filter(arr, z -> 10 div z > 1))
struct(transform(arr, z -> big div z)) | isnull(transform(words, w -> cast(w as int))) | substring(s, s) | repeat(s, s)
"""
TIME, LAST = datetime(2026, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
FIELDS: dict[str, Any] = {
    **{"tiny": 1, "small": 1, "i": 1, "big": 1, "f": 1.0, "d": 1.0, "dec": Decimal(1), "wide": Decimal(1)},
    **{"whole": Decimal(1), "s": "1", "flag": True, "bin": b"a", "day": date(2026, 1, 1), "ts": TIME},
    **{"ntz": TIME.replace(tzinfo=None), "span": timedelta(days=1), "arr": [1], "words": ["a"], "deep": [[1]]},
    **{"m": {"a": 1.0}, "st": (1, "a", (1.0,)), "rows": [(1, "a")], "order id": 1, "key": "k"},
}
LEAST = {
    **{"tiny": -128, "small": -(2**15), "i": -(2**31), "big": -(2**63), "f": float("-inf"), "d": float("nan")},
    **{"dec": Decimal("-99999999.99"), "wide": -Decimal(10**20 - 1), "whole": Decimal(-99999), "day": date(1, 1, 1)},
    **{"span": timedelta(days=-106751990)},
}
MOST = {
    **{"tiny": 127, "small": 2**15 - 1, "i": 2**31 - 1, "big": 2**63 - 1, "f": 3e38, "d": float("inf")},
    **{"dec": Decimal("99999999.99"), "wide": Decimal(10**20 - 1), "whole": Decimal(99999)},
    **{"day": date(9999, 12, 31), "ts": LAST, "ntz": LAST.replace(tzinfo=None), "s": "\\"},
    **{"span": timedelta(days=106751990)},
}
EMPTY = {"s": "", "i": 0, "big": 0, "d": 0.0, "dec": Decimal(0), "arr": [], "words": [], "m": {}, "bin": b""}
ROWS = [
    FIELDS,
    FIELDS | {"s": "x", "words": ["x"], "bin": b"\xff\xfe", "arr": [0], "key": "%"},
    FIELDS | EMPTY,
    FIELDS | LEAST,
    FIELDS | MOST,
    dict.fromkeys(FIELDS) | {"s": "x"},
]
# Their results can be as large as an argument says.
LARGE = ("repeat", "space", "lpad", "rpad", "sequence", "array_repeat", "randstr")


def safe(cases: Iterable[str]) -> list[str]:
    """Those that are not refused, and are evaluated without an attempt."""
    found = []
    for sql in dict.fromkeys(cases):
        try:
            scalar(sql, INPUT, node="select")
        except PipelineError:
            continue
        if not can_fail(sql, INPUT):
            found.append(sql)
    return found


def failing(spark: SparkSession, cases: list[str]) -> list[str]:
    """Those that fail on a row; without those that Spark refuses, for their jobs do not start."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    from penstock.spark.lowering.fallible_expressions import attempt

    frame = spark.createDataFrame([tuple(row[name] for name in INPUT.names) for row in ROWS], INPUT.ddl).coalesce(1)
    try:
        tried = [attempt(F.expr(sql), spark).isNull().alias(f"c{number}") for number, sql in enumerate(cases)]
        found = frame.select(*tried).collect()
    except (AnalysisException, ParseException):
        half = len(cases) // 2
        return [*failing(spark, cases[:half]), *failing(spark, cases[half:])] if half else []
    return [sql for number, sql in enumerate(cases) if any(row[number] for row in found)]


def test_a_conversion_that_spark_adds_can_fail() -> None:
    assert safe(_listed(CONVERTING)) == []


def test_what_is_taken_for_safe_fails_on_no_row(spark: SparkSession) -> None:
    cases = safe(_listed(SCALARS))
    assert len(cases) > 100
    assert failing(spark, cases) == []


@pytest.mark.slow
def test_no_function_or_operator_that_is_taken_for_safe_fails_on_values_of_any_types(spark: SparkSession) -> None:
    values = ["i", "d", "dec", "s", "flag", "bin", "day", "ts", "arr", "words", "m", "'x'", "1"]
    names = [name for name in functions.names() if name not in LARGE]
    plain = [name for name in names if not (functions.is_aggregate(name) or functions.is_window(name))]
    signs = ["+", "-", "*", "/", "%", "div", "=", "<", "<=>", "&", "||", "<<", "like", "rlike", "and", "or"]
    cases = [f"{name}({one})" for name in plain for one in values if functions.accepts(name, 1)]
    pairs = list(itertools.product(values, values))
    cases += [
        f"{name}({a}, {b})" for name in plain if functions.accepts(name, 2) for a, b in pairs[:: len(pairs) // 24]
    ]
    cases += [f"{a} {sign} {b}" for sign in signs for a, b in pairs]
    shapes = ("{0}[{1}]", "{0} in (1, {1})", "case when flag then {0} else {1} end", "case {0} when {1} then 1 end")
    cases += [shape.format(a, b) for shape in (*shapes, "coalesce({0}, {1})", "array({0}, {1})") for a, b in pairs]
    found = safe(cases)
    bad = [failing(spark, found[start : start + 60]) for start in range(0, len(found), 60)]
    assert list(itertools.chain(*bad)) == []
