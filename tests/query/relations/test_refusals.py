"""What sql_view() cannot do is refused when it is built, with the clause by its name and what to do."""

from __future__ import annotations

import pytest

from penstock.errors import PipelineError
from penstock.plan.relations import Input
from penstock.query.relations import relation_of
from penstock.schema import Schema

INPUTS = {
    "t": Input(
        "t", Schema("id bigint not null, a bigint, b bigint, s string, x double, ts timestamp, tags array<string>")
    ),
    "u": Input("u", Schema("id bigint not null, a bigint, c bigint not null, s string, n int not null")),
}


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("SELECT 1", "FROM is missing", "SELECT ... FROM name"),
        ("SELECT a FROM nothing", "unknown table 'nothing'", "tables: t, u"),
        ("SELECT z FROM t", "unknown column 'z'", "columns here: id, a, b"),
        ("SELECT t.z FROM t", "table 't' has no column 'z'", "columns: id, a"),
        ("SELECT a FROM t, u", "the column 'a' is ambiguous", "t.a, u.a"),
        ("SELECT * FROM t, u", "SELECT has two columns called 'id'", "AS id_2"),
        ("SELECT t.a FROM t JOIN t ON true", "FROM has two tables called 't'", "t AS t_2"),
        ("SELECT a, b, count(*) AS n FROM t GROUP BY a", "'b' in b is neither an aggregate nor", "group by: a"),
        ("SELECT a FROM t GROUP BY a HAVING x > 1", "'x' in x > 1 is neither an aggregate nor", "group by: a"),
        ("SELECT count(*) AS n FROM t GROUP BY ROLLUP (a)", "GROUP BY ROLLUP is not available", "UNION ALL"),
        (
            "SELECT count(*) AS n FROM t GROUP BY GROUPING SETS ((a), (b))",
            "GROUPING SETS is not available",
            "UNION ALL",
        ),
        ("SELECT a FROM t LIMIT 3", "LIMIT without ORDER BY", "ORDER BY ... LIMIT n"),
        ("SELECT a FROM t ORDER BY a OFFSET 3", "OFFSET without LIMIT", "LIMIT n OFFSET m"),
        ("SELECT row_number() OVER (ORDER BY a) AS rn FROM t", "has no bound", "WHERE rn <= 3"),
        (
            "SELECT id FROM (SELECT id, rank() OVER (ORDER BY a) AS rn FROM t) WHERE rn > 3",
            "has no bound",
            "WHERE rn <= 3",
        ),
        ("SELECT sum(a) OVER (PARTITION BY b) AS n FROM t", "OVER (PARTITION BY b) is not available", "GROUP BY k"),
        ("SELECT id FROM t WHERE b > (SELECT c FROM u)", "could have several rows", "max(...)"),
        ("SELECT id FROM t WHERE b > (SELECT c, n FROM u)", "has 2 columns", "one column"),
        ("SELECT id, (SELECT count(*) FROM u WHERE u.c > t.b) AS n FROM t", "c > b is not an equality", "a join"),
        (
            "SELECT id, (SELECT sum(u.c * t.b) FROM u WHERE u.a = t.a) AS n FROM t",
            "uses a column of the query around",
            "columns of the subquery only",
        ),
        (
            "SELECT id FROM t WHERE b > ALL (SELECT c FROM u)",
            "ALL (SELECT c FROM u) is not available",
            "min() or max()",
        ),
        (
            "SELECT id FROM t WHERE s = 'x' OR EXISTS (SELECT 1 FROM u WHERE u.c > t.b)",
            "EXISTS inside of OR or CASE",
            "a join",
        ),
        (
            "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM u v WHERE v.c = t.b))",
            "'b' in c_2 = b is out of reach",
            "the query right around it",
        ),
        ("SELECT id FROM t WHERE (a, s) NOT IN (SELECT a, s FROM u)", "NOT IN of several columns", "NOT EXISTS"),
        ("SELECT id FROM t WHERE a IN (SELECT s FROM u)", "cannot be compared with the string", "cast"),
        ("SELECT id FROM t NATURAL JOIN u", "NATURAL JOIN is not available", "USING"),
        ("SELECT t.id FROM t, LATERAL (SELECT * FROM u WHERE u.a = t.a)", "LATERAL is not available", "GROUP BY"),
        ("SELECT id FROM t LATERAL VIEW explode(tags) v AS tag", "LATERAL VIEW is not available", "before .view"),
        ("WITH RECURSIVE r AS (SELECT a FROM t) SELECT a FROM r", "WITH RECURSIVE is not available", "its own result"),
        ("SELECT a FROM t UNION SELECT a, s FROM u", "UNION: the left side has 1 columns", "right: a bigint, s string"),
        ("SELECT a FROM t EXCEPT SELECT s FROM u", "EXCEPT: column 1 is bigint", "cast one of them"),
        ("SELECT DISTINCT ON (a) a, b FROM t", "DISTINCT ON is not available", "rn = 1"),
        ("SELECT a FROM t TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not available", "all rows"),
        ("SELECT a FROM t SORT BY a", "SORT BY is not available", "ORDER BY ... LIMIT n"),
        (
            "SELECT window(ts, '1 minute') AS w, count(*) AS n FROM t GROUP BY window(ts, '1 minute')",
            "a window as one column",
            "window.start and window.end",
        ),
        ("SELECT window(ts, '1 minute').start AS s FROM t", "GROUP BY is missing", "GROUP BY window(ts, '1 minute')"),
        ("SELECT count(*) AS n FROM t GROUP BY window(a, '1 minute')", "a window over a, which is bigint", "TIMESTAMP"),
        ("SELECT a FROM tumble(t, ts)", "FROM tumble(t, ts) is not available", "HOP(table, time, slide, size)"),
        ("SELECT first(a) AS f FROM t GROUP BY b", "first(...) depends on the order of arrival", "min_by(a, ts)"),
        ("SELECT upper(s) AS s FROM t", 'a view cannot evaluate "upper(s)"', "in the stream upstream"),
        ("INSERT INTO t SELECT * FROM u", "INSERT is not a query of a view", "SELECT ... FROM name"),
        ("SELECT a FROM t; SELECT a FROM u", "there are 2 statements", "write one SELECT"),
        ("SELECT a FROM db.t", "FROM db.t: tables have no database here", "t=..."),
    ],
)
def test_what_is_not_supported_is_named(query: str, message: str, hint: str) -> None:
    with pytest.raises(PipelineError) as caught:
        relation_of(query, INPUTS)
    assert message in str(caught.value)
    assert hint in str(caught.value.hint)
    assert str(caught.value.node).startswith("sql_view")


def test_tables_that_equalities_connect_are_not_multiplied() -> None:
    query = "SELECT t.id FROM t, u, u AS v WHERE v.c = u.c AND v.a = t.a AND u.s = 'x'"
    joins = [one for one in relation_of(query, INPUTS).operators if one.kind == "join"]
    assert [one.detail for one in joins] == ["inner on a = a_3", "inner on c_2 = c"]


def test_a_table_of_with_is_computed_once_however_often_it_is_read() -> None:
    query = "WITH g AS (SELECT a, sum(b) AS n FROM t GROUP BY a) SELECT x.a FROM g x JOIN g y ON x.a = y.n"
    assert [one.kind for one in relation_of(query, INPUTS).operators].count("aggregate") == 1
