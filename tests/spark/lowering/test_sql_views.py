"""Views of SQL queries on Spark: DuckDB runs the same text after every epoch."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import BadValue
from penstock.settings import Settings
from penstock.testing import Crash
from tests.spark.lowering.test_views import auctions, bids, run, view_of
from tests.spark.view_oracle import check

QUERIES = {
    "average of maxima": """
        SELECT category, avg(final) AS price, count(*) AS auctions
        FROM (SELECT id, category, max(price) AS final FROM auctions, bids WHERE id = auction GROUP BY id, category) m
        GROUP BY category""",
    "ranks and a value of all rows": """
        SELECT auction, bid, price
        FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bid) AS rn FROM bids) r
        WHERE rn <= 2 AND price >= (SELECT avg(price) FROM bids)""",
    "correlated": """
        SELECT id, seller, (SELECT count(*) FROM bids b WHERE b.auction = a.id AND b.price > 20) AS n
        FROM auctions a
        WHERE NOT EXISTS (SELECT 1 FROM bids b WHERE b.auction = a.id AND b.price > 90)""",
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_what_duckdb_finds_after_every_epoch(name: str, settings: Settings) -> None:
    feeds = [bids(), auctions()]
    view = ps.sql_view(QUERIES[name], bids=view_of(feeds[0]), auctions=view_of(feeds[1]))
    used = [feed for feed in feeds if feed.name in [stream.name for stream in view.streams]]
    check(run(view, used, settings, between=Crash()), QUERIES[name], used, view.unique)


def test_an_input_that_is_no_view_is_refused() -> None:
    with pytest.raises(BadValue, match="not a view"):
        ps.sql_view("SELECT * FROM t", t=ps.from_items([], "a bigint"))  # type: ignore[arg-type]
