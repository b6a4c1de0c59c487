"""Auctions as they happen: Nexmark's queries 4, 9 and 19 as views, from topics to PostgreSQL, with withdrawn bids.

Bids come, are changed and are withdrawn; after every epoch each table is what its query would return over all rows so
far. A second job reads the average prices as a view, through a topic.

    export PENSTOCK_CONNECTIONS=warehouse=postgresql://user:password@127.0.0.1:5432/database
    penstock log serve  # in a terminal of its own
    penstock topic create auctions
    penstock topic create bids
    penstock produce auctions --file examples/auctions.jsonl
    penstock produce bids --file examples/bids.jsonl
    penstock run examples/live_auction.py:auctions --until drained
    penstock run examples/live_auction.py:dearest --until drained
    penstock view live-auction --name winning

Without `--until drained` a job runs on; `penstock view ... --watch` follows it from another terminal. Withdraw a bid:

    penstock view live-auction --name winning --key 6 --watch
    echo '{"bid": 71, "auction": 6, "withdrawn": true}' | penstock produce bids
"""

import penstock as ps

AUCTIONS = "id bigint, category bigint, seller bigint, opens timestamp, expires timestamp, withdrawn boolean"
BIDS = "bid bigint, auction bigint, bidder bigint, price bigint, at timestamp, withdrawn boolean"


def auctions(connection: str = "warehouse") -> ps.Pipeline:
    """Read auctions and bids; keep the average price of each category, the winning bids and the ten best bids."""
    auction = ps.read_topic("auctions", schema=AUCTIONS).view(
        "id", ["category", "seller", "opens", "expires"], remove="withdrawn"
    )
    bid = ps.read_topic("bids", schema=BIDS).view("bid", ["auction", "bidder", "price", "at"], remove="withdrawn")
    valid = auction.join(bid, on={"id": "auction"}, condition="at BETWEEN opens AND expires")
    # Query 4: the average over the auctions of a category of their highest bid.
    final = valid.group_by("id", "category").aggregate(final="max(price)")
    average = final.group_by("category").aggregate(price="avg(final)", auctions="count(*)").named("average")
    # Query 9: the highest bid of each auction, the first of those that are equal.
    winning = valid.group_by("id").top(1, by=["price", "at asc"]).named("winning")
    # Query 19: the ten highest bids of each auction.
    ranked = bid.group_by("auction").top(10, by=["price", "at asc"], rank="place").named("ranked")
    return ps.Pipeline(
        "live-auction",
        average.to(ps.table("average_price", connection=connection, mode="upsert")),
        winning.to(ps.table("winning_bid", connection=connection, mode="upsert")),
        ranked.to(ps.table("ranked_bid", connection=connection, mode="upsert")),
        average.to(ps.topic("average-prices")),
    )


def dearest(connection: str = "warehouse") -> ps.Pipeline:
    """Read the averages of the other job as a view; keep the three dearest categories."""
    top = ps.read_view("average-prices").top(3, by="price", rank="place").named("dearest")
    return ps.Pipeline("dearest", top.to(ps.table("dearest_category", connection=connection, mode="upsert")))
