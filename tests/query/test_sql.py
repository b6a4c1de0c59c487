"""Queries over streams are checked and typed when they are built; what they cannot do is named by its clause."""

from __future__ import annotations

import json

import pytest

import penstock as ps
from penstock.errors import PipelineError, UnknownColumn

T = (
    "id bigint, k string, v bigint, tags array<string>, m map<string,int>, items array<struct<sku:string,n:int>>, "
    "s struct<a:int,b:struct<c:string>>, `order id` string, ts timestamp"
)
UPPER = "u string, x string, n bigint not null"


def streams() -> dict[str, ps.Stream]:
    timed = ps.from_items([], T).named("t").event_time("ts", "5s")
    return {"t": timed, "u": ps.from_items([], "k string, w bigint").named("u")}


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select t.* from t", ps.Schema(T).ddl + " not null"),
        ("SELECT * EXCEPT (tags, m, items, s, ts) FROM t", "id bigint, k string, v bigint, `order id` string"),
        ("SELECT x.k, x.s.a, s.b.c AS cc FROM t x;", "k string, a int, cc string"),
        (
            "WITH a AS (SELECT k, v FROM t), b(y, z) AS (SELECT * FROM a) SELECT y, z + 1 AS n FROM b",
            "y string, n bigint",
        ),
        ("WITH t AS (SELECT k FROM t) SELECT * FROM t", "k string"),
        ("WITH a AS (WITH b AS (SELECT k FROM t) SELECT k AS kk FROM b) SELECT * FROM a", "kk string"),
        ("WITH a AS (SELECT k, v FROM t) SELECT * FROM a UNION ALL SELECT upper(k), v FROM a", "k string, v bigint"),
        ("SELECT k FROM (SELECT k, w FROM u) AS s(k, n) WHERE n > 1", "k string"),
        ("SELECT k, 1 AS one FROM u UNION ALL SELECT k, w FROM u", "k string, one bigint"),
        ("SELECT DISTINCT k, w FROM u", "k string, w bigint"),
        ("SELECT * FROM u UNION SELECT k, w + 1 FROM u", "k string, w bigint"),
        ("SELECT k, count(*) FROM t GROUP BY 1", "k string, `count(*)` bigint not null"),
        ("SELECT k, v % 2 AS odd, sum(v) AS s FROM t GROUP BY ALL", "k string, odd bigint, s bigint"),
        ("SELECT upper(k) AS v, sum(v) AS s FROM t GROUP BY upper(k)", "v string, s bigint"),
        ("SELECT k AS key, count(*) AS k FROM t GROUP BY k HAVING max(v) > 1", "key string, k bigint not null"),
        ("SELECT a.`order id` AS o, count(*) n FROM t a GROUP BY o", "o string, n bigint not null"),
        (
            "SELECT window.start, k, count(*) n FROM t GROUP BY window(ts, '1 minute'), k",
            "window_start timestamp not null, k string, n bigint not null",
        ),
        (
            "SELECT window(ts, '1 minute') AS w, sum(v) AS s FROM t GROUP BY ALL",
            "w struct<start:timestamp,end:timestamp>, s bigint",
        ),
        (
            "SELECT k, window(ts, '1 minute'), sum(v) AS s FROM t GROUP BY k, window(ts, '1 minute')",
            "k string, window struct<start:timestamp,end:timestamp>, s bigint",
        ),
        (
            "SELECT Session_Window(ts, '1 minute'), count(*) AS n FROM t GROUP BY ALL",
            "session_window struct<start:timestamp,end:timestamp>, n bigint not null",
        ),
        (
            "SELECT window(ts, '1 minute').start, (window(ts, '60 seconds')).end, sum(v) AS s FROM t GROUP BY 1, 2",
            "window_start timestamp not null, window_end timestamp not null, s bigint",
        ),
        (
            "SELECT window(ts, '1 minute') AS w, w.start, sum(v) AS s FROM t GROUP BY w",
            "w struct<start:timestamp,end:timestamp>, start timestamp not null, s bigint",
        ),
        (
            "WITH m AS (SELECT window(ts, '1 minute'), sum(v) AS s FROM t GROUP BY ALL) "
            "SELECT window.start, window.end AS e, s FROM m",
            "start timestamp, e timestamp, s bigint",
        ),
        (
            "WITH m AS (SELECT window(ts, '1 minute'), k, sum(v) AS s FROM t GROUP BY ALL) "
            "SELECT window(window, '1 hour').start AS hour, max(s) AS m FROM m GROUP BY ALL",
            "hour timestamp not null, m bigint",
        ),
        (
            "SELECT count(*) AS n, sum(v) / (unix_seconds(window.end) - unix_seconds(window(ts, '1 minute').start)) "
            "AS rate FROM t GROUP BY k, window(ts, '1 minute') HAVING rate > 1",
            "n bigint not null, rate double",
        ),
        ("SELECT upper(k) AS u, concat(u, '!') AS x, count(*) AS n FROM t GROUP BY u HAVING x > 'a'", UPPER),
        ("SELECT k FROM t GROUP BY k", "k string"),
        ("SELECT id, explode(tags) FROM t", "id bigint, col string"),
        ("SELECT posexplode(tags) AS (p, tags), id FROM t", "p int not null, tags string, id bigint"),
        ("SELECT explode_outer(m) FROM t", "key string, value int"),
        ("SELECT x.*, t.id FROM t LATERAL VIEW inline(items) x", "sku string, n int, id bigint"),
        (
            "SELECT tag, key FROM t LATERAL VIEW OUTER posexplode(t.tags) x AS p, tag LATERAL VIEW explode(m) y",
            "tag string, key string not null",
        ),
        ("SELECT x.tags AS one, t.tags FROM t LATERAL VIEW explode(tags) x AS tags", "one string, tags array<string>"),
        ("SELECT v + 1 AS a, a * 2 AS b FROM t", "a bigint, b bigint"),
        ("SELECT transform(tags, x -> upper(x)) AS up FROM t", "up array<string>"),
    ],
)
def test_queries_have_these_columns(query: str, columns: str) -> None:
    stream = ps.sql(query, **streams())
    assert stream.schema.ddl == columns
    pipeline = ps.Pipeline("p", stream.to(ps.console()))
    assert ps.Pipeline.from_json(pipeline.to_json()).explain() == pipeline.explain()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM t LIMIT 3", "LIMIT is not available"),
        ("(SELECT k FROM t) LIMIT 3", "LIMIT is not available"),
        ("SELECT k FROM t UNION ALL SELECT k FROM u ORDER BY k", "ORDER BY is not available"),
        ("SELECT k, count(*) FROM t GROUP BY 3", "GROUP BY 3: SELECT has 2 columns"),
        ("SELECT k, count(*) FROM t GROUP BY 2", r"GROUP BY 2: count\(\*\) is an aggregate"),
        ("SELECT k, sum(v) FROM t GROUP BY CUBE(k)", "GROUP BY CUBE is not available"),
        ("SELECT count(*) FROM t", "GROUP BY is missing"),
        ("SELECT v, count(*) FROM t GROUP BY k", "v is neither an aggregate nor in GROUP BY"),
        ("SELECT k, count(*) FROM t GROUP BY K", "GROUP BY: unknown column 'K'"),
        ("SELECT explode(k) FROM t", 'SELECT: explode.* needs an array or a map, and "k" is string'),
        ("SELECT inline(tags) FROM t", "needs an array of structs"),
        ("SELECT explode(tags), explode(m) FROM t", "two generators"),
        ("SELECT explode(tags) + 1 FROM t", "which makes many rows of one"),
        ("SELECT explode(tags) x, count(*) FROM t GROUP BY k", "beside an aggregate or GROUP BY"),
        ("SELECT x FROM t LATERAL VIEW explode(nope) y AS x", "LATERAL VIEW: unknown column 'nope'"),
        (
            "SELECT x FROM t LATERAL VIEW explode(tags) y AS x, z",
            "LATERAL VIEW: .* makes 1 columns .* 2 names are given",
        ),
        ("SELECT tags FROM t LATERAL VIEW explode(tags) x AS tags", "column 'tags' is ambiguous"),
        ("SELECT t.nope FROM t", "table 't' has no column 'nope'"),
        ("SELECT z.* FROM t", "unknown table 'z'"),
        ("SELECT * EXCEPT (nope) FROM t", r"\* EXCEPT: unknown column 'nope'"),
        ("SELECT k, k FROM t", "two columns called 'k'"),
        ("WITH RECURSIVE a AS (SELECT 1) SELECT * FROM a", "WITH RECURSIVE"),
        ("WITH a AS (SELECT k FROM nope) SELECT * FROM a", "unknown table 'nope'"),
        ("WITH a(x, y) AS (SELECT k FROM t) SELECT * FROM a", "table 'a' has 1 columns, and 2 names"),
        ("SELECT k FROM t WHERE v = :p", "parameters"),
        ("SELECT k FROM t; SELECT k FROM u", "2 statements"),
        (" ", "the query is empty"),
        ("SELECT DISTINCT m FROM t", "'m' is map<string,int>, whose values cannot be compared"),
        ("SELECT k FROM t UNION ALL SELECT k, v FROM t", "UNION: the left side has 1 columns, and the right has 2"),
        ("SELECT k FROM u UNION ALL SELECT w FROM u", "UNION: column 1 is string on the left .* bigint on the right"),
        ("SELECT count(*) n FROM t GROUP BY window(to_timestamp(k), '1 minute')", "windows use the event time"),
        ("SELECT k FROM db.t", "FROM db.t is not available"),
        ("SELECT k FROM t WHERE v IN (SELECT w FROM u)", "a subquery"),
        ("SELECT window.middle, count(*) n FROM t GROUP BY window(ts, '1 minute')", "window.middle: a window has"),
        ("SELECT sum(v) AS s FROM t GROUP BY window(ts, '1 minute').middle", "'1 minute'.*middle: a window has"),
        (
            "SELECT window(ts, '1 minute').start AS a, window(ts, '2 minutes').end AS b, sum(v) s FROM t GROUP BY ALL",
            "GROUP BY has two windows",
        ),
        (
            "SELECT window(ts, '1 minute').start AS a, sum(v) AS s FROM t GROUP BY window(ts, '2 minutes')",
            r"window\(ts, '1 minute'\) is another window than that of GROUP BY, tumbling\(2m\)",
        ),
        (
            "SELECT sum(v) AS s FROM t GROUP BY window(ts, '2 minutes') HAVING window(ts, '1 minute').end > now()",
            "is another window than that of GROUP BY",
        ),
        (
            "SELECT hour(window(ts, '1 minute').start) AS h, sum(v) AS s FROM t GROUP BY ALL",
            "GROUP BY hour.*: a window is grouped by as a whole, or by its start or end",
        ),
        (
            "SELECT sum(v) AS s FROM t GROUP BY window(ts, '1 minute'), concat(k, window.start)",
            "GROUP BY concat.*: a window is grouped by as a whole",
        ),
        ("SELECT window(ts, '1 minute').start AS w, sum(v) AS s FROM t GROUP BY k", "neither an aggregate nor in"),
        ("SELECT window(ts, '1 minute').start FROM t", "GROUP BY is missing: window.* is the window of a group"),
        ("SELECT upper(k) AS v, v + 1 AS x, count(*) AS n FROM t GROUP BY upper(k)", "v . 1 is neither an aggregate"),
        ("SELECT k FROM t JOIN u ON t.k = u.k", "JOIN is not available"),
        ("SELECT 1", "FROM is missing"),
    ],
)
def test_what_cannot_be_is_named_by_its_clause(query: str, words: str) -> None:
    with pytest.raises(PipelineError, match=words) as refused:
        ps.sql(query, **streams())
    assert refused.value.node
    assert refused.value.hint


@pytest.mark.parametrize(
    ("items", "window"),
    [
        ("k, window(ts, '1 minute').start AS w, sum(v) AS s", "window(ts, '1 minute')"),
        (
            "window(ts, '1 minute').start AS a, k, window(ts, '60 seconds').end AS b, sum(v) AS s",
            "window(ts, '1 minute')",
        ),
        ("window(ts, '2 minutes', '1 minute').end AS b, k, sum(v) AS s", "window(ts, '2 minutes', '1 minute')"),
        ("session_window(ts, '1 minute').start AS a, k, sum(v) AS s", "session_window(ts, '1 minute')"),
        ("window(ts, '1 minute').start AS a, k, concat(k, a) AS label, sum(v) AS s", "window(ts, '1 minute')"),
        ("(window(ts, '1 minute')).start AS a, a AS b, k", "window(ts, '1 minute')"),
    ],
)
@pytest.mark.parametrize("having", ["", " HAVING window.start > timestamp'2026-01-01'"])
def test_group_by_all_finds_the_window_in_its_bounds(items: str, window: str, having: str) -> None:
    group_all, named, bound = (
        ps.Pipeline("p", ps.sql(f"SELECT {items} FROM t GROUP BY {group}{having}", **streams()).to(ps.console()))
        for group in ("ALL", f"k, {window}", f"k, {window}.start")
    )
    assert group_all.to_json() == named.to_json() == bound.to_json()


def test_having_names_a_bound_by_its_alias() -> None:
    query = (
        "SELECT window(ts, '1 minute').start AS w, sum(v) AS s FROM t GROUP BY ALL HAVING {} > timestamp'2026-01-01'"
    )
    by_alias, by_bound = (ps.sql(query.format(name), **streams()).to(ps.console()) for name in ("w", "(window.start)"))
    assert ps.Pipeline("p", by_alias).to_json() == ps.Pipeline("p", by_bound).to_json()


def test_a_key_that_hides_a_column_does_not_change_what_is_aggregated() -> None:
    """`sum(v)` was that of the key, where the key was called v."""
    stream = ps.sql("SELECT upper(k) AS v, sum(v) AS s FROM t GROUP BY 1", **streams())
    assert stream.node.key == ("v",)
    with pytest.raises(UnknownColumn):
        ps.sql("SELECT upper(k) AS x, sum(x) AS s FROM u GROUP BY nope", **streams())


def test_texts_keep_their_quotes() -> None:
    stream = ps.sql("SELECT k FROM u WHERE k = 'it''s'", **streams())
    assert "it\\'s" in ps.Pipeline("p", stream.to(ps.console())).explain()


def test_distinct_and_explode_say_where_they_run_and_what_they_keep() -> None:
    stream = ps.sql("SELECT DISTINCT tag FROM t LATERAL VIEW explode(tags) AS tag", **streams())
    pipeline = ps.Pipeline("p", stream.to(ps.console()))
    text = pipeline.explain()
    assert "explode(tags) as tag" in text
    assert "lane spark (explode is Spark's)" in text
    assert "warning: all different rows are stored in the state forever" in text
    assert "forever" in json.loads(pipeline.to_json())["warnings"]["distinct"]
    counts = ps.sql("SELECT DISTINCT k, count(*) AS n FROM u GROUP BY k", **streams())
    assert counts.node.kind == "aggregate"


def test_state_inside_of_a_query_is_named_after_its_table() -> None:
    query = """
        WITH minutes AS (SELECT k, window.start, count(*) AS n FROM t GROUP BY k, window(ts, '1 minute'))
        SELECT window.start, max(n) AS most FROM minutes GROUP BY window(window_start, '1 hour')
    """
    both = ps.sql(query, **streams())
    pipeline = ps.Pipeline("p", both.to(ps.console()))
    assert {pipeline.graph.name(node) for node in pipeline.graph.stateful} == {"minutes", "aggregate"}
    parts = """
        WITH a AS (SELECT DISTINCT k FROM (SELECT DISTINCT k, v FROM t) AS inner_rows), b AS (SELECT DISTINCT k FROM u)
        SELECT * FROM a UNION SELECT * FROM b
    """
    pipeline = ps.Pipeline("p", ps.sql(parts, **streams()).to(ps.console()))
    assert {pipeline.graph.name(node) for node in pipeline.graph.stateful} == {"a", "b", "inner_rows", "distinct"}
    single = ps.sql("WITH a AS (SELECT k, count(*) AS n FROM u GROUP BY k) SELECT * FROM a WHERE n > 1", **streams())
    assert {node.name for node in ps.Pipeline("p", single.to(ps.console())).graph.stateful} == {None}
