"""Each form of query that sql_view() takes: as a view it is what DuckDB finds, on nulls, duplicates and empty groups.

Two ways are compared with the query itself: the relation as one statement, and the view after changes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from penstock.query.relations import relation_of
from penstock.schema import Schema
from tests.query.relations.oracle import REMOVED, Epoch, Oracle, Tables, assert_same, emptied, rows_of, run
from tests.query.relations.recomputed import statement_of

SCHEMAS = {
    "t": Schema("id bigint not null, a bigint, b bigint, s string, x double, ts timestamp"),
    "u": Schema("id bigint not null, a bigint, c bigint not null, s string, n int not null"),
    "w": Schema("id bigint not null, c bigint, flag boolean"),
}
KEYS = dict.fromkeys(SCHEMAS, ("id",))
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

QUERIES = """
SELECT * FROM t
SELECT t.* EXCLUDE (x) FROM t                              -> SELECT t.* EXCEPT (x) FROM t
SELECT id, a + 1 AS b1, CASE WHEN a > 2 THEN 'many' WHEN a IS NULL THEN 'none' ELSE 'few' END AS word FROM t
SELECT DISTINCT a, s FROM t WHERE b > 1 OR s = 'x'
SELECT count(*) AS n, count(a) AS m, sum(a) AS total, min(s) AS least, avg(x) AS mean FROM t
SELECT count(*) AS n FROM t WHERE a > 1000
SELECT a, count(*) AS n, sum(b) AS total FROM t GROUP BY a
SELECT a AS key, s, max(x) - min(x) AS spread FROM t GROUP BY a, s HAVING count(*) > 1 AND max(b) < 5
SELECT a % 2 AS odd, count(DISTINCT b) AS bs, count(*) FILTER (WHERE s = 'x') AS xs FROM t GROUP BY 1
SELECT s, count(*) AS n FROM t GROUP BY s HAVING sum(b) > 3
SELECT a + b AS ab, count(*) AS n FROM t GROUP BY ab
SELECT b + 1 AS b FROM t GROUP BY b
SELECT n, count(*) AS groups FROM (SELECT a, count(*) AS n FROM t GROUP BY a) g GROUP BY n
SELECT t.id, u.id AS other, t.s FROM t JOIN u ON t.a = u.a
SELECT t.id, u.id AS other FROM t, u WHERE t.a = u.a AND t.b < u.c AND u.s = 'x'
SELECT t.id, u.id AS other, w.id AS third FROM t, u, w WHERE w.c = u.c AND u.a = t.a AND t.b > 0
SELECT t.id, w.id AS third FROM t, w WHERE t.b < w.c AND t.s = 'x'
SELECT t.id, u.id AS other FROM t LEFT JOIN u ON t.a = u.a AND u.s = 'x' AND t.b > 1
SELECT t.id, u.id AS other FROM t LEFT JOIN u ON t.a = u.a WHERE u.id IS NULL AND t.b > 0
SELECT t.id, u.id AS other FROM t RIGHT JOIN u ON t.a = u.a AND t.b > 1 WHERE u.c > 1
SELECT t.id, u.id AS other FROM t FULL JOIN u ON t.a = u.a AND t.b < u.c
SELECT t.id, u.c, w.flag FROM t LEFT JOIN u ON t.a = u.a LEFT JOIN w ON u.c = w.c
SELECT a, t.s, u.s AS us FROM t JOIN u USING (a)
SELECT a, t.id, u.id AS other FROM t FULL JOIN u USING (a)
SELECT a, t.id, u.id AS other FROM t RIGHT JOIN u USING (a) WHERE c > 1
SELECT t.id FROM t SEMI JOIN u ON t.a = u.a                -> SELECT t.id FROM t LEFT SEMI JOIN u ON t.a = u.a
SELECT t.id FROM t ANTI JOIN u ON t.a = u.a AND u.c > t.b  -> SELECT t.id FROM t LEFT ANTI JOIN u ON t.a = u.a AND u.c > t.b
SELECT x.id, y.id AS other FROM t x JOIN t y ON x.a = y.b
SELECT t.id, w.id AS third FROM t CROSS JOIN w WHERE w.flag
SELECT t.id FROM t JOIN (u JOIN w ON u.c = w.c) ON t.a = u.a
SELECT id FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a)
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c > t.b)
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM w WHERE flag)
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM w WHERE flag AND c > 100)
SELECT id FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.a = t.a)
SELECT id FROM t WHERE EXISTS (SELECT c FROM u WHERE u.a = t.a GROUP BY c HAVING count(*) > 1)
SELECT id FROM t WHERE a = 1 OR EXISTS (SELECT 1 FROM u WHERE u.a = t.b)
SELECT id, EXISTS (SELECT 1 FROM w WHERE w.c = t.a) AS known FROM t
SELECT id FROM t WHERE a IN (SELECT c FROM w)
SELECT id FROM t WHERE a NOT IN (SELECT c FROM w)
SELECT id FROM t WHERE a NOT IN (SELECT c FROM w WHERE c > 1000)
SELECT id FROM t WHERE a NOT IN (SELECT c FROM u)
SELECT id FROM t WHERE a NOT IN (SELECT c FROM w WHERE c IS NOT NULL)
SELECT id FROM u WHERE c NOT IN (SELECT n FROM u WHERE s = 'x')
SELECT id FROM t WHERE a IN (SELECT a FROM u WHERE u.s = t.s)
SELECT id FROM t WHERE b NOT IN (SELECT a FROM u WHERE u.s = t.s)
SELECT id FROM t WHERE a IN (SELECT a FROM u WHERE u.c > t.b)
SELECT id FROM t WHERE (a IN (SELECT c FROM w)) IS NULL
SELECT id, CASE WHEN a IN (SELECT c FROM w) THEN 1 WHEN a NOT IN (SELECT c FROM w) THEN 2 ELSE 3 END AS is_in FROM t
SELECT id FROM t WHERE NOT (a IN (SELECT c FROM w) AND b = 1)
SELECT id FROM t WHERE (a, s) IN (SELECT a, s FROM u)
SELECT id FROM t WHERE a = ANY (SELECT c FROM w)           -> SELECT id FROM t WHERE a IN (SELECT c FROM w)
SELECT id FROM t WHERE a IN (SELECT a FROM u GROUP BY a HAVING count(*) > 1)
SELECT id FROM t WHERE a IN (SELECT max(c) FROM u)
SELECT id FROM t WHERE a IN (SELECT c FROM w UNION SELECT a FROM u)
SELECT id FROM t WHERE x > (SELECT avg(x) FROM t)
SELECT id, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t
SELECT id, (SELECT count(*) + 1 FROM u WHERE u.a = t.a AND u.s = 'x') * 2 AS n FROM t
SELECT id, (SELECT sum(c) FROM u WHERE u.a = t.a) AS n FROM t
SELECT id FROM t WHERE b >= (SELECT max(c) FROM u WHERE u.a = t.a)
SELECT id FROM t WHERE 0 = (SELECT count(*) FROM u WHERE u.a = t.a)
SELECT id, (SELECT c FROM u WHERE u.a = t.a ORDER BY c DESC, id LIMIT 1) AS best FROM t
SELECT id, (SELECT c FROM u WHERE u.id = t.a) AS same FROM t
SELECT id, (SELECT max(c) FROM u) AS most, (SELECT min(c) FROM w) AS least FROM t
SELECT a, sum(b) AS total FROM t GROUP BY a HAVING sum(b) > (SELECT avg(c) FROM u)
SELECT a, count(*) AS n FROM t GROUP BY a HAVING EXISTS (SELECT 1 FROM u WHERE u.a = t.a)
SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) AS other FROM t GROUP BY a
SELECT id FROM t WHERE a IN (SELECT a FROM u WHERE c IN (SELECT c FROM w WHERE w.flag))
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND NOT EXISTS (SELECT 1 FROM w WHERE w.c = u.c))
WITH g AS (SELECT a, sum(b) AS total FROM t GROUP BY a) SELECT x.a, y.total FROM g x JOIN g y ON x.total = y.total
WITH g (k, v) AS (SELECT a, b FROM t), h AS (SELECT k FROM g WHERE v > 1) SELECT k, count(*) AS n FROM h GROUP BY k
SELECT a FROM t UNION ALL SELECT c FROM u
SELECT a, s FROM t UNION SELECT c, s FROM u
SELECT a FROM t EXCEPT SELECT a FROM u
SELECT a FROM t EXCEPT ALL SELECT a FROM u
SELECT a, s FROM t INTERSECT SELECT a, s FROM u
SELECT a FROM t INTERSECT ALL SELECT a FROM u
SELECT a FROM t UNION ALL SELECT a FROM u INTERSECT SELECT c FROM w
SELECT a, x FROM t UNION ALL SELECT n, c FROM u
SELECT a, id FROM t ORDER BY a DESC NULLS LAST, id LIMIT 3
SELECT id FROM t ORDER BY b NULLS FIRST, x DESC NULLS LAST, id LIMIT 4
SELECT id FROM t ORDER BY 1 LIMIT 2 OFFSET 3
SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY count(*) DESC, a NULLS FIRST LIMIT 2
SELECT a, id FROM t UNION ALL SELECT a, id FROM u ORDER BY id DESC, a NULLS LAST LIMIT 4
SELECT a, id FROM t ORDER BY id
SELECT * FROM (SELECT id, a, row_number() OVER (PARTITION BY a ORDER BY x DESC NULLS LAST, id) AS rn FROM t) r WHERE rn <= 2
SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY a ORDER BY x DESC NULLS LAST, id) AS rn FROM t) r WHERE rn = 1
SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY a ORDER BY x DESC NULLS LAST, id) AS rn FROM t) r WHERE rn = 2
SELECT id, k FROM (SELECT id, rank() OVER (PARTITION BY a ORDER BY b NULLS LAST) AS k FROM t) r WHERE k < 3
SELECT id, k FROM (SELECT id, dense_rank() OVER (PARTITION BY s ORDER BY b NULLS LAST) AS k FROM t) r WHERE k BETWEEN 1 AND 2
SELECT a, n FROM (SELECT a, count(*) AS n, row_number() OVER (ORDER BY count(*) DESC, a NULLS LAST) AS rn FROM t GROUP BY a) r WHERE rn <= 2
WITH r AS (SELECT *, row_number() OVER (PARTITION BY a ORDER BY id) AS rn FROM t) SELECT a, avg(b) AS m FROM r WHERE rn <= 3 GROUP BY a
SELECT id, row_number() OVER (PARTITION BY a ORDER BY id DESC) AS rn FROM t QUALIFY rn <= 2
SELECT time_bucket(INTERVAL 10 SECOND, ts) AS start, s, count(*) AS n FROM t WHERE ts IS NOT NULL GROUP BY ALL -> SELECT window.start, s, count(*) AS n FROM t GROUP BY window(ts, '10 seconds'), s
SELECT time_bucket(INTERVAL 10 SECOND, ts) + INTERVAL 10 SECOND AS e, sum(b) AS n FROM t WHERE ts IS NOT NULL GROUP BY 1 HAVING count(*) > 1 -> SELECT window(ts, '10 seconds').end AS e, sum(b) AS n FROM t GROUP BY window(ts, '10 seconds') HAVING count(*) > 1
SELECT w, count(*) AS n FROM (SELECT time_bucket(INTERVAL 3 SECOND, ts) - to_seconds(back) AS w, ts FROM t, range(0, 12, 3) AS r(back)) WHERE w + INTERVAL 10 SECOND > ts GROUP BY w -> SELECT window.start AS w, count(*) AS n FROM t GROUP BY window(ts, '10 seconds', '3 seconds')
SELECT s, a, count(*) AS n, min(ts) AS b, max(ts) + INTERVAL 4 SECOND AS e FROM (SELECT *, sum(starts) OVER (PARTITION BY s, a ORDER BY ts RANGE UNBOUNDED PRECEDING) AS g FROM (SELECT *, CASE WHEN ts <= lag(ts) OVER (PARTITION BY s, a ORDER BY ts) + INTERVAL 4 SECOND THEN 0 ELSE 1 END AS starts FROM t WHERE ts IS NOT NULL)) GROUP BY s, a, g -> SELECT s, a, count(*) AS n, session_window.start AS b, session_window.end AS e FROM t GROUP BY s, a, session_window(ts, '4 seconds')
"""
CASES = [line.split("->") for line in QUERIES.strip().splitlines()]
PAIRS = [(case[-1].strip(), case[0].strip()) for case in CASES]


def random_row(name: str, number: int, chance: Random) -> dict[str, Any]:
    draw = {
        "id": lambda: number,
        "a": lambda: chance.choice([None, 1, 2, 3, 4]),
        "b": lambda: chance.choice([None, 0, 1, 2, 3]),
        "c": lambda: chance.choice([1, 2, 3, 4, 5] + ([None] if name == "w" and chance.random() < 0.3 else [])),
        "n": lambda: chance.choice([1, 2, 3]),
        "s": lambda: chance.choice([None, "", "x", "y"]),
        "x": lambda: chance.choice([None, 0.5, 1.25, -3.0, 8.0]),
        "ts": lambda: chance.choice([None, BEGIN + timedelta(seconds=chance.randrange(40))]),
        "flag": lambda: chance.choice([None, True, False]),
    }
    return {column: draw[column]() for column in SCHEMAS[name].names}


def random_epochs(seed: int, count: int = 5) -> list[Epoch]:
    """Rows of few values; each epoch inserts, replaces and removes some."""
    chance = Random(seed)
    sizes = {"t": 24, "u": 14, "w": 6}
    epochs = []
    for _ in range(count):
        numbers = {name: chance.sample(range(size), size // 3) for name, size in sizes.items()}
        epochs.append(
            {
                name: [{**random_row(name, one, chance), REMOVED: chance.random() < 0.3} for one in chosen]
                for name, chosen in numbers.items()
                if chance.random() < 0.8
            }
        )
    return epochs


@pytest.mark.parametrize(("query", "for_duckdb"), PAIRS, ids=[query for query, _ in PAIRS])
def test_a_query_as_a_view_is_what_duckdb_finds(query: str, for_duckdb: str) -> None:
    tables = Tables(SCHEMAS, KEYS)
    oracle = Oracle(query, tables, for_duckdb)
    # The first epoch is empty: a view of nothing is what a query of nothing is.
    run([oracle], tables, [{name: [] for name in SCHEMAS}, *random_epochs(len(query))])
    run([oracle], tables, [emptied(tables)])


@pytest.mark.slow
@pytest.mark.parametrize(("query", "for_duckdb"), PAIRS, ids=[query for query, _ in PAIRS])
def test_a_query_as_a_view_is_what_duckdb_finds_on_more_data(query: str, for_duckdb: str) -> None:
    for seed in range(12):
        tables = Tables(SCHEMAS, KEYS)
        oracle = Oracle(query, tables, for_duckdb)
        run([oracle], tables, random_epochs(seed, count=8))


def test_the_relations_as_statements_are_the_queries() -> None:
    tables = Tables(SCHEMAS, KEYS)
    for epoch in random_epochs(7, count=8):
        tables.apply(epoch)
    for query, for_duckdb in PAIRS:
        found = tables.database.sql(statement_of(relation_of(query, tables.relations))).to_arrow_table()
        assert_same(rows_of(found), rows_of(tables.database.sql(for_duckdb).to_arrow_table()))
