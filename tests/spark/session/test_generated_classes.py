"""Promise: what Spark compiled for a pipeline is kept, so that the next epoch compiles nothing again."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.settings import Settings
from penstock.testing import EOF, run_to_end
from tests.conftest import at

SPARKS_DEFAULT = 100


def compiled_so_far(spark: SparkSession) -> int:
    count: int = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount()  # type: ignore[union-attr, operator]
    return count


@pytest.mark.slow
def test_a_pipeline_of_many_branches_is_compiled_once(settings: Settings, spark: SparkSession) -> None:
    rows = ps.from_items([], "k string, v bigint, ts timestamp").named("rows").event_time("ts", "1s")
    windows = [rows.key_by("k").window(ps.tumbling(f"{size}s")) for size in range(1, 9)]
    aggregates = [one.aggregate(**{f"n{n}": "count(DISTINCT v)", f"m{n}": "max(v)"}) for n, one in enumerate(windows)]
    outputs = [one.named(f"a{n}").to(ps.collect()).named(f"to-a{n}") for n, one in enumerate(aggregates)]
    given = [{"k": "a", "v": 1, "ts": at(1)}, EOF, {"k": "b", "v": 2, "ts": at(20)}]
    before = compiled_so_far(spark)
    run_to_end(ps.Pipeline("p", *outputs), {"rows": given}, settings=settings)
    once = compiled_so_far(spark)
    assert once - before > SPARKS_DEFAULT, "too few classes to tell"
    run_to_end(ps.Pipeline("p", *outputs), {"rows": given}, settings=settings)
    assert compiled_so_far(spark) == once
