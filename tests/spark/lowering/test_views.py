"""Views on Spark: after every epoch they are what DuckDB computes from all rows so far."""

from __future__ import annotations

import random
from typing import Any

import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.testing import EOF, AdvanceTime, Crash, Results, run_to_end
from tests.conftest import at, at_parallelism
from tests.spark.view_oracle import Feed, check

BIDS = "bid bigint, auction bigint, price bigint, gone boolean"
AUCTIONS = "id bigint, category bigint, seller string, gone boolean"


def bids(seed: int = 1, epochs: int = 3, rows: int = 12) -> Feed:
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


def auctions(seed: int = 2, epochs: int = 3, rows: int = 4) -> Feed:
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


@pytest.mark.slow
def test_a_view_follows_inserts_updates_and_deletes(settings: Settings) -> None:
    feed = bids()
    view = view_of(feed).group_by("auction").aggregate(best="max(price)", n="count(*)")
    check(run(view, [feed], settings), BEST, [feed], ["auction"])


def joined(epochs: int = 2) -> tuple[ps.View, list[Feed], str]:
    feeds = [bids(epochs=epochs), auctions(epochs=epochs)]
    both = view_of(feeds[1]).join(view_of(feeds[0]), on={"id": "auction"})
    final = both.group_by("id", "category").aggregate(final="max(price)")
    view = final.group_by("category").aggregate(price="avg(final)")
    query = """SELECT category, avg(final) AS price FROM (
        SELECT id, category, max(price) AS final FROM auctions JOIN bids ON id = auction GROUP BY id, category
    ) GROUP BY category"""
    return view, feeds, query


def test_the_average_of_maxima_of_a_join_survives_crashes_at_parallelism_3(settings: Settings) -> None:
    view, feeds, query = joined()
    check(run(view, feeds, at_parallelism(settings, 3), between=Crash()), query, feeds, ["category"])


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


def both_feeds() -> list[Feed]:
    """Two epochs: the second one changes what the first one left. More are in tests/incremental."""
    return [bids(epochs=2, rows=20), auctions(epochs=2, rows=6)]


# In short one of each kind of node; every one of them is in tests/incremental.
SHORT = ("full join", "union and except", "top", "one row")


@pytest.fixture(scope="module")
def every_relation(settings: Settings, request: pytest.FixtureRequest) -> Results:
    """Each relation as an output of one pipeline."""
    feeds = both_feeds()
    chosen = RELATIONS if request.config.getoption("--slow") else SHORT
    views = {name: RELATIONS[name][0](view_of(feeds[1]), view_of(feeds[0])) for name in chosen}
    outputs = [view.to(ps.collect()).named(_output(name)) for name, view in views.items()]
    return run_to_end(ps.Pipeline("p", *outputs), {feed.name: feed.items() for feed in feeds}, settings=settings)


def _output(name: str) -> str:
    return name.replace(" ", "-")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.slow) for name in RELATIONS]
)
def test_every_operator_equals_a_recomputation_after_every_epoch(name: str, every_relation: Results) -> None:
    build, query = RELATIONS[name]
    feeds = both_feeds()
    view = build(view_of(feeds[1]), view_of(feeds[0]))
    check(every_relation.epochs[_output(name)], query, feeds, view.unique)


def test_a_self_join_never_mixes_two_epochs(settings: Settings) -> None:
    """Promise: an epoch is one version. The sum over auctions always equals the sum over all bids."""
    feed = bids(seed=5, epochs=2)
    each = view_of(feed).group_by("auction").aggregate(total="sum(price)").aggregate(parts="sum(total)")
    whole = view_of(feed).aggregate(all="sum(price)")
    both = each.join(whole, on=[], how="inner")
    query = 'SELECT sum(price)::BIGINT AS parts, sum(price)::BIGINT AS "all" FROM bids'
    versions = check(run(both, [feed], settings), query, [feed], ())
    assert len(versions) == 2
    assert all(dict(row)["parts"] == dict(row)["all"] for version in versions for row in version)


@pytest.mark.parametrize("parallelism", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_parallelism_does_not_matter(parallelism: int, settings: Settings) -> None:
    view, feeds, query = joined()
    check(run(view, feeds, at_parallelism(settings, parallelism)), query, feeds, ["category"])


@pytest.mark.parametrize("streams", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_the_last_row_of_a_key_is_that_of_the_source_in_several_arrow_batches(
    streams: int, settings: Settings, small_batches: int
) -> None:
    feeds = [bids(seed=9, epochs=2, rows=3 * small_batches), auctions(epochs=2)][:streams]
    view = view_of(feeds[0])
    if streams == 2:
        view = view.join(view_of(feeds[1]).select(auction="id"), on="auction", how="semi")
    query = "SELECT bid, auction, price FROM bids" + (" WHERE auction IN (SELECT id FROM auctions)" * (streams - 1))
    check(run(view, feeds, settings), query, feeds, ["bid"])


def test_rows_leave_a_view_when_their_time_to_live_has_passed(settings: Settings) -> None:
    """Promise: with a ttl the state is bounded: what has expired is retracted from every level."""
    stream = ps.from_items([], "k string, v bigint, ts timestamp").named("rows").event_time("ts", "0s")
    view = stream.view("k", ttl="10s").aggregate(n="count(*)", total="sum(v)")
    given: list[Any] = [
        {"k": "a", "v": 1, "ts": at(0)},
        {"k": "b", "v": 2, "ts": at(5)},
        {"k": "a", "v": 3, "ts": at(8)},
        AdvanceTime(at(16)),
        {"k": "c", "v": 4, "ts": at(20)},
        AdvanceTime(at(60)),
        {"k": "d", "v": 5, "ts": at(61)},
        {"k": "e", "v": 6, "ts": at(1)},
    ]
    out = run_to_end(ps.Pipeline("p", view.to(ps.collect())), {"rows": given}, settings=settings)
    found = [(row["n"], row["total"]) for row in out["collect"]]
    # b leaves at 15, a, which came again at 8, after 18, c after 30; e is too old when it comes.
    assert found[0] == (2, 5)
    assert (1, 3) in found
    assert (0, None) in found
    assert found[-1] == (1, 5)
    counts = out.counts["view"]
    assert (counts.rows_in, counts.used, counts.filtered) == (6, 5, 1)


def test_rows_without_a_key_leave_one_by_one(settings: Settings) -> None:
    stream = ps.from_items([], "v bigint, ts timestamp").named("rows").event_time("ts", "0s")
    view = stream.view((), "v", ttl="10s").group_by("v").aggregate(n="count(*)")
    given = [{"v": 7, "ts": at(second)} for second in (0, 0, 5, 8)]
    items = [*given, AdvanceTime(at(12)), {"v": 1, "ts": at(12)}, AdvanceTime(at(100)), {"v": 2, "ts": at(100)}]
    out = run_to_end(ps.Pipeline("p", view.to(ps.collect())), {"rows": items}, settings=settings)
    state: dict[int, int] = {}
    for row in out["collect"]:
        if row["_change"] == "delete":
            del state[row["v"]]
        else:
            state[row["v"]] = row["n"]
    assert state == {2: 1}
    assert [row["n"] for row in out["collect"] if row["v"] == 7][:2] == [4, 2]


def test_a_view_follows_the_final_results_of_windows(settings: Settings) -> None:
    rows = ps.from_items([], "k string, v bigint, ts timestamp").named("rows").event_time("ts", "0s")
    windows = rows.key_by("k").window(ps.tumbling("10s")).aggregate(total="sum(v)")
    view = windows.view(["k", "window_start"], "total").group_by("k").aggregate(best="max(total)", n="count(*)")
    given = [{"k": "ab"[n % 2], "v": n, "ts": at(n)} for n in range(40)]
    out = run_to_end(
        ps.Pipeline("p", view.to(ps.collect())), {"rows": [*given[:25], EOF, *given[25:]]}, settings=settings
    )
    last = {row["k"]: (row["best"], row["n"]) for row in out["collect"]}
    assert last == {"a": (30 + 32 + 34 + 36 + 38, 4), "b": (31 + 33 + 35 + 37 + 39, 4)}


def test_a_view_of_a_stream_with_event_time_needs_no_watermark(settings: Settings) -> None:
    rows = ps.from_items([], "k string, v bigint, ts timestamp").named("rows").event_time("ts", "0s")
    late = [{"k": "a", "v": 1, "ts": at(100)}, EOF, {"k": "a", "v": 2, "ts": at(0)}]
    out = run_to_end(ps.Pipeline("p", rows.view("k", "v").to(ps.collect())), {"rows": late}, settings=settings)
    assert [(row["v"], row["_change"]) for row in out["collect"]] == [(1, "insert"), (2, "update")]
    assert out.counts["view"].rows_in == 2


def test_changes_are_a_stream_like_any_other(settings: Settings) -> None:
    feed = bids(epochs=2)
    best = view_of(feed).group_by("auction").aggregate(best="max(price)").named("best")
    again = best.changes().view("auction", "best", remove="_change = 'delete'").aggregate(total="sum(best)")
    query = "SELECT sum(best)::BIGINT AS total FROM (SELECT auction, max(price) AS best FROM bids GROUP BY auction)"
    check(run(again, [feed], settings), query, [feed], ())
