"""Partials made natively and merged by Spark give what Spark's own aggregates give."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ExpressionFailed
from penstock.native.translate import program
from penstock.plan.physical.lanes import Prefix, split_lanes
from penstock.schema import Schema
from tests.conftest import at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = Schema("k string, x double, i int, v bigint, n smallint, p decimal(20,4), b boolean, s string, ts timestamp")
AGGREGATES = [
    *("count(*)", "count(1)", "count(x)", "count_if(s = 'it''s {x}')", "count_if(b)", "count_if(x > 1)"),
    *(f"sum({c})" for c in "xivnp"),
    *(f"avg({c})" for c in "xivn"),
    *(f"{name}({c})" for name in ("min", "max") for c in ("x", "i", "v", "n", "p", "b", "s", "ts")),
    *(f"{name}({pair})" for name in ("min_by", "max_by") for pair in ("s, i", "x, i", "k, i", "p, i + 1", "i, ts")),
    *(f"{name}({c})" for name in ("variance", "var_samp", "var_pop", "stddev", "std", "stddev_pop") for c in "in"),
    *("stddev_samp(i)", "bool_and(b)", "every(i > 2)", "bool_or(b)", "some(x > 5)", "any(b)"),
    *("sum(v) FILTER (WHERE b)", "max_by(s, i) FILTER (WHERE NOT b)", "avg(n) FILTER (WHERE s > 'b')"),
    *("variance(i) FILTER (WHERE b)", "count(*) FILTER (WHERE b IS NULL)", "sum(p) FILTER (WHERE x < 0)"),
    *("sum(x * v) / sum(v)", "round(avg(x), 2)", "CASE WHEN max(i) > 50 THEN 'high' ELSE max(s) END", "-sum(i) % 7"),
    *("cast(sum(v) AS string)", "max(x) - min(x) > 3", "concat(max(s), '{}')", "max(s) = 'it''s'"),
]


def rows() -> pa.Table:
    """Groups of every size, values of every odd kind, each `i` once so that no order is a tie."""
    cycle = {
        "k": [None, "a", "b", "a", "c", "a"],
        "x": [None, 0.0, -0.0, 1.5, -2.25, 7.0, 1e-300],
        "v": [None, 5, -7, 10**12, 0],
        "n": [None, 3, -3, 7, 30_000],
        "p": [None, Decimal("1.0001"), Decimal("-9999999999999999.9999"), Decimal("0.5")],
        "b": [True, None, False],
        "s": ["b", "a", None, "é", "", "it's {x}"],
    }
    made = []
    for number, values in enumerate(itertools.islice(zip(*map(itertools.cycle, cycle.values()), strict=False), 200)):
        row = dict(zip(cycle, values, strict=True))
        row |= {"i": None if number % 11 == 3 else number * 7 - 300, "ts": at(number)}
        made.append(row)
    odd = [math.nan, math.inf, -math.inf, math.nan]
    made += [{"k": "odd", "x": x, "i": number, "s": str(x), "v": 1, "ts": at(number)} for number, x in enumerate(odd)]
    made += [{"k": "nulls"}, {"k": "nulls"}, {"k": "one", "i": 5, "n": -1, "x": 3.0}]
    return pa.Table.from_pylist(made, schema=SCHEMA.arrow)


def split(*aggregates: str) -> tuple[Prefix, Any]:
    stream = ps.from_items([], SCHEMA.ddl).named("rows").key_by("k")
    wanted = {f"a{number}": sql for number, sql in enumerate(aggregates)}
    graph = ps.Pipeline("p", stream.aggregate(**wanted).to(ps.collect())).graph
    lanes = split_lanes(graph)
    (prefix,) = lanes.prefixes.values()
    assert prefix.split is not None, lanes.reasons
    return prefix, program(prefix, graph.names)


def test_every_aggregate_merges_to_what_spark_gives(spark: SparkSession) -> None:
    prefix, native = split(*AGGREGATES)
    assert prefix.split is not None
    table = rows()
    pieces = [table.slice(0, 31), table.slice(31, 100), table.slice(131)]
    batches = [batch for piece in pieces for batch in native.start(0).batches(iter(piece.to_batches()))]
    partials = spark.createDataFrame(pa.Table.from_batches(batches))
    merges = partials.groupBy("k").agg(*(_named(sql, name) for name, sql in prefix.split.merges))
    merged = merges.select("k", *(_named(sql, name) for name, sql in prefix.split.finals)).toArrow()
    direct = spark.createDataFrame(table).groupBy("k").agg(*(_named(sql, f"a{n}") for n, sql in enumerate(AGGREGATES)))
    expected = direct.toArrow()
    assert merged.schema.types == expected.schema.types
    ours, theirs = _by_key(merged), _by_key(expected)
    assert ours.keys() == theirs.keys()
    for key, number in itertools.product(theirs, range(len(AGGREGATES))):
        mine, other = ours[key][f"a{number}"], theirs[key][f"a{number}"]
        like = pytest.approx(other, rel=1e-12, nan_ok=True) if isinstance(other, float) else other
        assert mine == like, (AGGREGATES[number], key)


def test_a_variance_is_exact_where_squares_would_cancel() -> None:
    """Values near two thousand millions that differ by one: sums of squares in floats would lose it all."""
    _, native = split("var_pop(i)")
    made = [{"k": "a", "i": 2_000_000_000 + number % 2} for number in range(1000)]
    (batch,) = native.start(0).batches(iter(pa.Table.from_pylist(made, schema=SCHEMA.arrow).to_batches()))
    (found,) = batch.to_pylist()
    count, total, squares = (int(found[f"__penstock_p{number}"]) for number in range(3))
    assert count * squares - total**2 == count**2 // 4


def test_a_sum_that_overflows_is_an_error_that_names_the_aggregate() -> None:
    _, native = split("sum(v)")
    table = pa.Table.from_pylist([{"k": "a", "v": 2**63 - 1}, {"k": "a", "v": 1}], schema=SCHEMA.arrow)
    with pytest.raises(ExpressionFailed, match="aggregate 'aggregate'"):
        list(native.start(0).batches(iter(table.to_batches())))


@pytest.mark.parametrize(("us", "shown"), [(2**63 - 1, r"\+294247-01-10T"), (-(2**60), "-34565-")])
def test_a_failure_shows_its_row_with_a_time_that_python_does_not_have(us: int, shown: str) -> None:
    stream = ps.from_items([], SCHEMA.ddl).named("rows").with_columns(y="i div n").named("divided")
    graph = ps.Pipeline("p", stream.to(ps.collect())).graph
    (prefix,) = split_lanes(graph).prefixes.values()
    table = pa.Table.from_pylist([{"i": 1, "n": 0}], schema=SCHEMA.arrow)
    far = pa.array([us]).cast(SCHEMA.arrow.field("ts").type)
    table = table.set_column(table.schema.get_field_index("ts"), SCHEMA.arrow.field("ts"), far)
    with pytest.raises(ExpressionFailed, match=rf"'divided'(.|\n)*'ts': '{shown}"):
        list(program(prefix, graph.names).start(0).batches(iter(table.to_batches())))


@pytest.mark.parametrize("given", [[], [{"k": "a", "v": -1}]])
def test_no_row_makes_no_partial(given: list[dict[str, Any]]) -> None:
    stream = ps.from_items([], SCHEMA.ddl).named("rows").filter("v > 0").key_by("k").aggregate(n="count(*)")
    graph = ps.Pipeline("p", stream.to(ps.collect())).graph
    (prefix,) = split_lanes(graph).prefixes.values()
    run = program(prefix, graph.names).start(0)
    batches = list(run.batches(iter(pa.Table.from_pylist(given, schema=SCHEMA.arrow).to_batches())))
    assert sum(batch.num_rows for batch in batches) == 0
    assert run.counts.get("filter", {}).get("filtered", 0) == len(given)


def test_nulls_are_one_key() -> None:
    _, native = split("count(*)")
    table = pa.Table.from_pylist([{"k": None}, {"k": None}, {"k": "a"}], schema=SCHEMA.arrow)
    found = [row for batch in native.start(0).batches(iter(table.to_batches())) for row in batch.to_pylist()]
    assert sorted((row["k"] or "", row["__penstock_p0"]) for row in found) == [("", 2), ("a", 1)]


def _named(sql: str, name: str) -> Any:
    from pyspark.sql import functions as F

    return F.expr(sql).alias(name)


def _by_key(table: pa.Table) -> dict[Any, dict[str, Any]]:
    return {row["k"]: row for row in table.to_pylist()}
