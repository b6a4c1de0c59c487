"""Views on Spark: after every epoch they are what DuckDB computes from all rows so far."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.testing import EOF, Crash, run_to_end
from tests.conftest import at_parallelism
from tests.spark.view_oracle import Feed, check

BIDS = "bid bigint, auction bigint, price bigint, gone boolean"
AUCTIONS = "id bigint, category bigint, seller string, gone boolean"


def bids(seed: int = 1, epochs: int = 4, rows: int = 12) -> Feed:
    """Bids that come, change their price and auction, and are withdrawn."""
    chance = random.Random(seed)
    feed = Feed("bids", BIDS, ("bid",))
    for _ in range(epochs):
        feed.epochs.append(
            [
                {
                    "bid": chance.randrange(15),
                    "auction": chance.randrange(5),
                    "price": chance.randrange(100),
                    "gone": chance.random() < 0.3,
                }
                for _ in range(rows)
            ]
        )
    return feed


def auctions(seed: int = 2, epochs: int = 4, rows: int = 4) -> Feed:
    """Auctions that begin, change and end."""
    chance = random.Random(seed)
    feed = Feed("auctions", AUCTIONS, ("id",))
    for _ in range(epochs):
        feed.epochs.append(
            [
                {
                    "id": chance.randrange(5),
                    "category": chance.randrange(3),
                    "seller": chance.choice("xyz"),
                    "gone": chance.random() < 0.2,
                }
                for _ in range(rows)
            ]
        )
    return feed


def view_of(feed: Feed) -> ps.View:
    stream = ps.from_items([], feed.ddl).named(feed.name)
    names = [name for name in stream.schema.names if name not in (*feed.key, "gone")]
    return stream.view(feed.key, names, remove="gone")


def run(view: ps.View, feeds: list[Feed], settings: Settings, *, between: Any = EOF) -> dict[int, list[Any]]:
    inputs = {feed.name: feed.items(between=between if feed is feeds[0] else EOF) for feed in feeds}
    return run_to_end(ps.Pipeline("p", view.to(ps.collect())), inputs, settings=settings).epochs["collect"]


BEST = "SELECT auction, max(price) AS best, count(*) AS n FROM bids GROUP BY auction"


def test_a_view_follows_inserts_updates_and_deletes(settings: Settings) -> None:
    feed = bids()
    view = view_of(feed).group_by("auction").aggregate(best="max(price)", n="count(*)")
    check(run(view, [feed], settings), BEST, [feed], ["auction"])


def joined() -> tuple[ps.View, list[Feed], str]:
    feeds = [bids(), auctions()]
    both = view_of(feeds[1]).join(view_of(feeds[0]), on={"id": "auction"})
    final = both.group_by("id", "category").aggregate(final="max(price)")
    view = final.group_by("category").aggregate(price="avg(final)")
    query = """SELECT category, avg(final) AS price FROM (
        SELECT id, category, max(price) AS final FROM auctions JOIN bids ON id = auction GROUP BY id, category
    ) GROUP BY category"""
    return view, feeds, query


def test_the_average_of_maxima_of_a_join_survives_crashes(settings: Settings) -> None:
    view, feeds, query = joined()
    check(run(view, feeds, settings, between=Crash()), query, feeds, ["category"])


RELATIONS: dict[str, tuple[Any, str]] = {
    "filter": (
        lambda a, b: b.filter("price > 50").select("bid", twice="price * 2"),
        "SELECT bid, price * 2 AS twice FROM bids WHERE price > 50",
    ),
    "left join": (
        lambda a, b: a.join(b, on={"id": "auction"}, how="left").select("id", "category", "bid", "price"),
        "SELECT id, category, bid, price FROM auctions LEFT JOIN bids ON id = auction",
    ),
    "full join": (
        lambda a, b: a.join(b, on={"id": "auction"}, how="full").select("id", "seller", "auction", "price"),
        "SELECT id, seller, auction, price FROM auctions FULL JOIN bids ON id = auction",
    ),
    "semi join": (
        lambda a, b: a.join(b.filter("price > 80"), on={"id": "auction"}, how="semi"),
        "SELECT * FROM auctions WHERE EXISTS (SELECT 1 FROM bids WHERE id = auction AND price > 80)",
    ),
    "anti join": (
        lambda a, b: a.join(b, on={"id": "auction"}, how="anti"),
        "SELECT * FROM auctions WHERE NOT EXISTS (SELECT 1 FROM bids WHERE id = auction)",
    ),
    "distinct": (
        lambda a, b: b.select("auction", high="price > 50").distinct(),
        "SELECT DISTINCT auction, price > 50 AS high FROM bids",
    ),
    "union and except": (
        lambda a, b: a.select(n="id").union(b.select(n="auction")).except_(b.filter("price < 20").select(n="auction")),
        "(SELECT id AS n FROM auctions UNION ALL SELECT auction FROM bids) EXCEPT "
        "SELECT auction FROM bids WHERE price < 20",
    ),
    "top": (
        lambda a, b: b.group_by("auction").top(2, by=["price", "bid"], rank="place"),
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bid DESC)::INT AS place "
        "FROM bids) WHERE place <= 2",
    ),
    "count distinct and percentiles": (
        lambda a, b: b.group_by("auction").aggregate(kinds="count(DISTINCT price)", low="min(price)"),
        "SELECT auction, count(DISTINCT price) AS kinds, min(price) AS low FROM bids GROUP BY auction",
    ),
    "one row": (
        lambda a, b: b.aggregate(n="count(*)", total="sum(price)"),
        "SELECT count(*) AS n, sum(price)::BIGINT AS total FROM bids",
    ),
}


@pytest.mark.parametrize("name", RELATIONS)
def test_every_operator_equals_a_recomputation_after_every_epoch(name: str, settings: Settings) -> None:
    build, query = RELATIONS[name]
    feeds = [bids(), auctions()]
    view = build(view_of(feeds[1]), view_of(feeds[0]))
    used = [feed for feed in feeds if feed.name in [stream.name for stream in view.streams]]
    check(run(view, used, settings), query, used, view.unique)


def test_a_self_join_never_mixes_two_epochs(settings: Settings) -> None:
    """Promise: an epoch is one version. The sum over auctions always equals the sum over all bids."""
    feed = bids(seed=5, epochs=6)
    each = view_of(feed).group_by("auction").aggregate(total="sum(price)").aggregate(parts="sum(total)")
    whole = view_of(feed).aggregate(all="sum(price)")
    both = each.join(whole, on=[], how="inner")
    query = "SELECT sum(price)::DECIMAL(38,0) AS parts, sum(price)::BIGINT AS all FROM bids"
    epochs = run(both, [feed], settings)
    for rows in epochs.values():
        assert all(row["parts"] == row["all"] for row in rows)
    assert epochs
    assert query


@pytest.mark.parametrize("parallelism", [1, 3])
def test_parallelism_does_not_matter(parallelism: int, settings: Settings) -> None:
    view, feeds, query = joined()
    check(run(view, feeds, at_parallelism(settings, parallelism)), query, feeds, ["category"])


def test_the_order_of_a_key_is_that_of_the_source_in_several_arrow_batches(settings: Settings) -> None:
    small = replace(settings, spark={**settings.spark, "spark.sql.execution.arrow.maxRecordsPerBatch": "7"})
    feed = bids(seed=9, epochs=3, rows=60)
    view = view_of(feed)
    check(run(view, [feed], small), "SELECT * FROM bids", [feed], ["bid"])
