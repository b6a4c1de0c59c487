"""Queries of the console over known rows."""

from __future__ import annotations

import pytest

from penstock.errors import BadExpression, ExpressionFailed, PipelineError, UnknownColumn
from tests.sql_console.console import TRADES, lines, rows

START = "2026-01-01T00:00:00.000000Z"
NEXT = "2026-01-01T00:01:00.000000Z"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT symbol, price * size AS value FROM trades WHERE size < 3", [("A", 10), ("B", 40)]),
        ("SELECT count(*) AS n, sum(size) AS s, avg(price) AS a FROM trades", [(4, 10, 44 / 3)]),
        ("SELECT count(*) AS n FROM trades WHERE size > 99", [(0,)]),
        ("SELECT symbol, sum(size) AS s FROM trades GROUP BY symbol ORDER BY symbol", [("A", 8), ("B", 2)]),
        ("SELECT sum(size) AS s FROM trades GROUP BY symbol ORDER BY s DESC", [(8,), (2,)]),
        ("SELECT symbol FROM trades GROUP BY symbol HAVING count(*) > 1", [("A",)]),
        ("SELECT DISTINCT symbol FROM trades ORDER BY 1 DESC", [("B",), ("A",)]),
        ("SELECT size FROM trades ORDER BY price", [(4,), (1,), (3,), (2,)]),
        ("SELECT size FROM trades ORDER BY price DESC NULLS FIRST LIMIT 2", [(4,), (2,)]),
        ("SELECT size FROM trades ORDER BY size LIMIT 2 OFFSET 1", [(2,), (3,)]),
        ("SELECT symbol, count(*) AS n FROM trades GROUP BY symbol ORDER BY count(*)", [("B", 1), ("A", 3)]),
        (
            "SELECT symbol FROM trades WHERE size = 1 UNION ALL SELECT symbol FROM trades WHERE size = 2",
            [("A",), ("B",)],
        ),
        ("WITH big AS (SELECT * FROM trades WHERE size > 2) SELECT max(size) AS m FROM big", [(4,)]),
        ("SELECT avg(n) AS a FROM (SELECT symbol, count(*) AS n FROM trades GROUP BY symbol) t", [(2,)]),
        ("SELECT size, t FROM trades LATERAL VIEW explode(tags) e AS t", [(1, "x"), (1, "y"), (3, "z")]),
        (
            "SELECT size, p, t FROM trades LATERAL VIEW OUTER posexplode(tags) e AS p, t WHERE size > 1",
            [(2, None, None), (3, 0, "z"), (4, None, None)],
        ),
        ("SELECT max_by(price, size) AS last, min(price) AS low FROM trades WHERE symbol = 'A'", [(None, 10)]),
        ("SELECT percentile(price, 0.5) AS p, count(DISTINCT symbol) AS n FROM trades", [(14, 2)]),
        ("SELECT upper(symbol) AS u, try_divide(price, 0) AS d FROM trades LIMIT 1", [("A", None)]),
        ("SELECT CASE WHEN price IS NULL THEN '-' ELSE '{}' END AS c FROM trades ORDER BY size DESC LIMIT 1", [("-",)]),
    ],
)
def test_a_query_gives_known_rows(sql: str, expected: list[tuple[object, ...]]) -> None:
    assert rows(sql) == expected


def test_windows_are_those_of_a_job() -> None:
    sql = "SELECT symbol, window.start AS s, sum(price * size) / sum(size) AS vwap FROM trades"
    found = rows(f"{sql} GROUP BY symbol, window(ts, '1 minute') ORDER BY s, symbol")
    assert found == [("A", START, 52 / 4), ("B", START, 20), ("A", NEXT, None)]


def test_sliding_windows_hold_each_row_several_times() -> None:
    sql = "SELECT window.start AS s, count(*) AS n FROM trades GROUP BY window(ts, '1 minute', '30 seconds') ORDER BY s"
    assert [n for _, n in rows(sql)] == [1, 3, 3, 1]


def test_session_windows_end_after_their_gap() -> None:
    sql = "SELECT session_window.start AS s, session_window.end AS e, count(*) AS n FROM trades"
    found = rows(f"{sql} GROUP BY session_window(ts, '29 seconds') ORDER BY s")
    # Rows exactly a gap apart are together.
    assert [(s[11:19], e[11:19], n) for s, e, n in found] == [("00:00:01", "00:01:29", 4)]
    found = rows(f"{sql} GROUP BY session_window(ts, '28 seconds') ORDER BY s")
    assert [(s[11:19], e[11:19], n) for s, e, n in found] == [
        ("00:00:01", "00:00:29", 1),
        ("00:00:30", "00:00:58", 1),
        ("00:00:59", "00:01:28", 2),
    ]


def test_the_columns_have_sparks_types() -> None:
    head = lines("SELECT symbol, count(*) AS n, sum(price) AS s, max(ts) AS t FROM trades GROUP BY symbol")[0]
    kinds = {each["name"]: each["type"] for each in head["columns"]}
    assert kinds == {"symbol": "string", "n": "bigint", "s": "double", "t": "timestamp"}


def test_the_answer_has_the_plan_and_the_code_of_a_job() -> None:
    head = lines("SELECT symbol, price FROM trades WHERE size > 1 ORDER BY price LIMIT 5")[0]
    assert "filter 'filter'" in head["explain"]
    assert "without ORDER BY and LIMIT" in head["explain"]
    assert "# without ORDER BY and LIMIT" in head["python"]
    compile(head["python"], "job.py", "exec")


def test_what_cannot_be_a_job_says_why() -> None:
    head = lines("SELECT count(*) AS n FROM trades")[0]
    assert "GROUP BY is missing" in head["explain"]
    assert "aggregate" in head["explain"]


def test_what_duckdb_computes_in_its_own_way_is_named() -> None:
    assert lines("SELECT symbol FROM trades")[0]["warnings"] == []
    assert "upper(symbol)" in lines("SELECT upper(symbol) AS u FROM trades")[0]["warnings"][0]


def test_an_answer_is_cut_at_its_limit() -> None:
    many = [{"x": number} for number in range(250)]
    _, *chunks, end = lines("SELECT x FROM many", limit=120, many=many)
    assert [len(chunk["rows"]) for chunk in chunks] == [100, 20]
    assert (end["rows"], end["truncated"], end["scanned"]) == (120, True, 250)
    assert lines("SELECT x FROM many LIMIT 120", limit=120, many=many)[-1]["truncated"] is False
    assert lines("SELECT x FROM many", limit=250, many=many)[-1]["truncated"] is False


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("SELECT pirce FROM trades", UnknownColumn, "did you mean 'price'"),
        ("SELECT symbol FROM trades ORDER BY pirce", UnknownColumn, "did you mean 'price'"),
        ("SELECT symbol FROM trades ORDER BY 7", BadExpression, "SELECT has 1 columns"),
        ("SELECT symbol FROM trades LIMIT 1 + 1", BadExpression, "whole number"),
        ("SELECT", PipelineError, "sql"),
        ("SELECT 1 FROM trades; SELECT 2 FROM trades", BadExpression, "2 statements"),
        ("SELECT price / (size - 1) AS x FROM trades", ExpressionFailed, "Division by zero"),
        ("SELECT soundex(symbol) AS s FROM trades", BadExpression, "needs Spark"),
        ("SELECT a.symbol FROM trades a JOIN trades b ON a.symbol = b.symbol", BadExpression, "JOIN"),
    ],
)
def test_a_mistake_is_explained(sql: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        lines(sql)


def test_rows_with_odd_names_are_read() -> None:
    assert rows("SELECT `a b`, `x{y` FROM odd", odd=[{"a b": 1, "x{y": 2}]) == [(1, 2)]


def test_the_rows_are_those_of_the_table() -> None:
    assert [row[0] for row in rows("SELECT symbol FROM trades")] == [row["symbol"] for row in TRADES]
