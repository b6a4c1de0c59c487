"""Promise: a query over streams gives what Spark gives for the same text over the same rows as a table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.testing import Crash, run_to_end
from tests.conftest import at, at_parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPE = (
    "id bigint, k string, v bigint, tags array<string>, m map<string,int>, "
    "items array<struct<sku:string,n:int>>, s struct<a:int,b:struct<c:string>>, `order id` string, ts timestamp"
)
STATELESS = {
    "with": "WITH a AS (SELECT id, k, v FROM t WHERE v > 2), b(i, kk) AS (SELECT id, k FROM a) "
    "SELECT a.* FROM a UNION ALL SELECT i, upper(kk), -1L FROM b",
    "shadow": "WITH t AS (SELECT id, t.s.b.c FROM t) SELECT id + 1 AS next, next * 2 AS twice, c FROM t;",
    "items": "SELECT id, explode(tags) AS tag FROM t -- a comment",
    "places": "SELECT posexplode_outer(tags) AS (place, tags), `order id` FROM t",
    "views": "SELECT t.id, x.tags, y.key, value FROM t LATERAL VIEW OUTER explode(t.tags) x AS tags "
    "LATERAL VIEW explode(m) y WHERE x.tags IS NULL OR x.tags <> 'it''s'",
    "inlined": "select * except (tags, m, items, s, ts) from t lateral view outer inline(items) as sku, n",
}
STATEFUL = {
    "different": "SELECT DISTINCT k, v % 2 AS odd FROM t",
    "either": "SELECT k FROM t UNION SELECT tag FROM t LATERAL VIEW explode(tags) AS tag",
    "windows": "SELECT window.start AS began, k, sum(v) AS s, concat(k, '!') AS kk FROM t "
    "GROUP BY window(ts, '20 seconds'), 2 HAVING count(*) FILTER (WHERE v > 0) > 0",
    "bounds": "SELECT k, window(ts, '20 seconds').start AS began, window(ts, '20 seconds').end AS ended, "
    "window(ts, '20 seconds'), concat(k, window(ts, '20 seconds').start) AS label, sum(v) AS s FROM t GROUP BY ALL "
    "HAVING began > timestamp'2026-01-01 00:00:00Z' AND label IS NOT NULL",
    "rates": "SELECT k, sum(v) / (unix_seconds(window.end) - 1) + max(id) AS rate, count(*) AS n FROM t "
    "GROUP BY k, window(ts, '20 seconds') HAVING rate > 9",
    "whole": "SELECT window(ts, '30 seconds', '15 seconds') AS w, v % 3 AS v, count(*) AS n FROM t GROUP BY ALL",
}
UPDATED = {
    "numbers": "SELECT upper(k) AS v, sum(v) AS total, max(v) AS most FROM t GROUP BY 1 HAVING total > 3",
    "counted": "SELECT tag, count(*) AS n FROM (SELECT DISTINCT tag, id FROM t LATERAL VIEW explode(tags) AS tag) "
    "GROUP BY tag",
}

SHORT = ("with", "views", "inlined", "windows", "numbers")


def rows() -> list[dict[str, Any]]:
    made = []
    for n in range(40):
        tags = [None, [], ["x"], ["x", "y", "x"], ["it's", None]][n % 5]
        made.append(
            {
                "id": n,
                "k": "abc"[n % 3] if n % 7 else None,
                "v": n % 6,
                "tags": tags,
                "m": [None, {}, {"p": n % 4, "q": 1}][n % 3],
                "items": [None, [], [{"sku": "s", "n": n}, {"sku": None, "n": 1}]][n % 3],
                "s": {"a": n, "b": {"c": f"c{n % 2}"}} if n % 4 else None,
                "order id": f"o{n}",
                "ts": at(n * 2),
            }
        )
    return made


def as_text(row: dict[str, Any]) -> str:
    return json.dumps(row, default=lambda value: value.isoformat(), sort_keys=True)


def batch(spark: SparkSession, given: list[dict[str, Any]], query: str) -> list[str]:
    import pyarrow as pa

    spark.createDataFrame(pa.Table.from_pylist(given, schema=ps.Schema(SHAPE).arrow)).createOrReplaceTempView("t")
    return sorted(map(as_text, spark.sql(query.rstrip(";")).toArrow().to_pylist()))


def check(
    queries: dict[str, str], settings: Settings, spark: SparkSession, updated: frozenset[str], between: list[Any]
) -> None:
    stream = ps.from_items([], SHAPE).named("t").event_time("ts", "1s")
    outputs = [ps.sql(q, t=stream).to(ps.collect()).named(name) for name, q in queries.items()]
    outputs = [
        replace(one, node=replace(one.node, input=named(one.node.input, f"{one.node.name}-state"))) for one in outputs
    ]
    given = rows()
    items = [*given[:20], *between, *given[20:]]
    out = run_to_end(ps.Pipeline("sql", *outputs), {"t": items}, settings=settings)
    for name, query in queries.items():
        found = out[name]
        if name in updated:
            (key,) = outputs[list(queries).index(name)].node.input.key
            found = list({row[key]: row for row in found}.values())
        assert sorted(map(as_text, found)) == batch(spark, given, query), name


def named(node: Any, name: str | None) -> Any:
    """Name the state of each query after its output."""
    if not hasattr(node, "input"):
        return node
    inner = named(node.input, f"{name}-in" if node.stateful else name)
    return replace(node, input=inner, name=name if node.stateful else None)


ALL = {**STATELESS, **STATEFUL, **UPDATED}


# The short form is one epoch: the operators have tests of their own for state over epochs and crashes.
@pytest.mark.parametrize(
    ("lane", "parallelism", "names", "between"),
    [
        ("auto", 2, SHORT, []),
        pytest.param("auto", 2, SHORT, [Crash()], marks=pytest.mark.slow),
        pytest.param("spark", 3, tuple(ALL), [Crash()], marks=pytest.mark.slow),
    ],
    ids=["auto", "auto-crash", "spark-crash"],
)
def test_queries_are_what_spark_gives(
    lane: Any, parallelism: int, names: tuple[str, ...], between: list[Any], settings: Settings, spark: SparkSession
) -> None:
    chosen = replace(at_parallelism(settings, parallelism), lane=lane)
    check({name: ALL[name] for name in names}, chosen, spark, frozenset(UPDATED), between)
