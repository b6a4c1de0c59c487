"""Views of SQL queries on Spark: DuckDB runs the same text after every epoch."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import BadValue
from penstock.settings import Settings
from penstock.testing import Crash, Results, run_to_end
from tests.spark.lowering.test_views import both_feeds, view_of
from tests.spark.view_oracle import Feed, check

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


def views() -> tuple[dict[str, ps.View], list[Feed]]:
    feeds = both_feeds()
    inputs = {feed.name: view_of(feed) for feed in feeds}
    return {name: ps.sql_view(query, **inputs) for name, query in QUERIES.items()}, feeds


# In short without the one that test_views.py has as a view.
SHORT = tuple(QUERIES)[1:]


@pytest.fixture(scope="module")
def every_query(settings: Settings, request: pytest.FixtureRequest) -> Results:
    """All queries in one pipeline, which dies after each epoch."""
    made, feeds = views()
    chosen = QUERIES if request.config.getoption("--slow") else SHORT
    outputs = [made[name].to(ps.collect()).named(name.replace(" ", "-")) for name in chosen]
    inputs = {feed.name: feed.items(between=Crash()) for feed in feeds}
    return run_to_end(ps.Pipeline("p", *outputs), inputs, settings=settings)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.slow) for name in QUERIES]
)
def test_a_query_is_what_duckdb_finds_after_every_epoch(name: str, every_query: Results) -> None:
    made, feeds = views()
    check(every_query.epochs[name.replace(" ", "-")], QUERIES[name], feeds, made[name].unique)


def test_an_input_that_is_no_view_is_refused() -> None:
    with pytest.raises(BadValue, match="not a view"):
        ps.sql_view("SELECT * FROM t", t=ps.from_items([], "a bigint"))  # type: ignore[arg-type]
