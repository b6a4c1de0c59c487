"""Nexmark's queries as views and as SQL over all rows so far, and the rows of both inputs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    import penstock as ps

AUCTIONS = "id bigint, category bigint, seller bigint, opens timestamp, expires timestamp"
BIDS = "bid bigint, auction bigint, bidder bigint, channel string, price bigint, bid_at timestamp"
# Of so many events one is an auction.
_EVERY = 15
_START = "TIMESTAMPTZ '2026-01-01 00:00:00+00'"


@dataclass(frozen=True)
class Query:
    """A query: as a view of auctions and bids, as SQL, its inputs and its key; `spark` if PySpark can stream it."""

    view: Callable[[ps.View, ps.View], ps.View]
    sql: str
    inputs: tuple[str, ...] = ("bids",)
    unique: tuple[str, ...] = ()
    spark: bool = False


_VALID = "auctions JOIN bids ON id = auction AND bid_at BETWEEN opens AND expires"
_COUNTS = {
    "total": "count(*)",
    "low": "count_if(price < 10000)",
    "middle": "count_if(price >= 10000 AND price < 1000000)",
    "high": "count_if(price >= 1000000)",
    "bidders": "count(DISTINCT bidder)",
    "auctions": "count(DISTINCT auction)",
}
_COUNTS_SQL = ", ".join(f"{sql} AS {name}" for name, sql in _COUNTS.items())


def _valid(auctions: ps.View, bids: ps.View) -> ps.View:
    return auctions.join(bids, on={"id": "auction"}, condition="bid_at BETWEEN opens AND expires")


QUERIES = {
    "q4": Query(
        lambda a, b: (
            _valid(a, b)
            .group_by("id", "category")
            .aggregate(final="max(price)")
            .group_by("category")
            .aggregate(price="avg(final)")
        ),
        f"SELECT category, avg(final) AS price FROM (SELECT id, category, max(price) AS final FROM {_VALID} "
        "GROUP BY id, category) GROUP BY category",
        ("auctions", "bids"),
        ("category",),
    ),
    "q9": Query(
        lambda a, b: _valid(a, b).group_by("id").top(1, by=["price", "bid_at asc", "bid asc"]),
        f"SELECT * EXCLUDE n FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_at, bid) AS n "
        f"FROM {_VALID}) WHERE n = 1",
        ("auctions", "bids"),
        ("id",),
    ),
    "q15": Query(
        lambda a, b: b.group_by(day="cast(bid_at AS date)").aggregate(_COUNTS),
        f"SELECT cast(bid_at AS date) AS day, {_COUNTS_SQL} FROM bids GROUP BY day",
        unique=("day",),
    ),
    "q16": Query(
        lambda a, b: b.group_by("channel", day="cast(bid_at AS date)").aggregate(_COUNTS),
        f"SELECT channel, cast(bid_at AS date) AS day, {_COUNTS_SQL} FROM bids GROUP BY channel, day",
        unique=("channel", "day"),
    ),
    "q18": Query(
        lambda a, b: b.group_by("bidder", "auction").top(1, by=["bid_at", "bid"]),
        "SELECT * EXCLUDE n FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction "
        "ORDER BY bid_at DESC, bid DESC) AS n FROM bids) WHERE n = 1",
        unique=("bidder", "auction"),
    ),
    "q19": Query(
        lambda a, b: b.group_by("auction").top(10, by=["price", "bid"], rank="place"),
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bid DESC)::INT AS place "
        "FROM bids) WHERE place <= 10",
        unique=("auction", "place"),
    ),
    "q20": Query(
        lambda a, b: b.join(a.filter("category = 10"), on={"auction": "id"}),
        "SELECT bids.*, auctions.* FROM bids JOIN auctions ON auction = id WHERE category = 10",
        ("auctions", "bids"),
        spark=True,
    ),
}


@dataclass(frozen=True)
class Nexmark:
    """Auctions and bids, a Parquet file of each for every epoch."""

    folder: Path
    epochs: int
    rows: int

    def prepare(self) -> None:
        """Write the files, unless they are there."""
        if self.folder.is_dir():
            return
        partial = self.folder.with_name(f"{self.folder.name}.partial-{os.getpid()}")
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            for name in ("auctions", "bids"):
                (partial / name).mkdir(parents=True, exist_ok=True)
                for number in range(self.epochs):
                    first, last = number * self.rows, (number + 1) * self.rows
                    query = (_auctions if name == "auctions" else _bids)(first, last)
                    db.execute(f"COPY ({query}) TO '{partial / name}/{number:04}.parquet'")
        partial.rename(self.folder)


def _auctions(first: int, last: int) -> str:
    opens = f"{_START} + to_milliseconds(i * 10)"
    return f"""SELECT i // {_EVERY} AS id, 10 + (hash(i) % 5)::BIGINT AS category,
        (hash(i + 1) % 1000)::BIGINT AS seller, {opens} AS opens,
        {opens} + to_seconds(10 + (hash(i + 2) % 60)::INT) AS expires
        FROM range({first}, {last}) t(i) WHERE i % {_EVERY} = 0"""


def _bids(first: int, last: int) -> str:
    """Bids for the auctions of the last hundred; prices are spread over three powers of ten."""
    auction = f"greatest(i // {_EVERY} - (hash(i + 3) % 100)::BIGINT, 0)"
    price = "(pow(10, 3 + (hash(i + 5) % 4000) / 1000.0))::BIGINT"
    return f"""SELECT i AS bid, {auction} AS auction, (hash(i + 4) % 2000)::BIGINT AS bidder,
        'channel-' || (hash(i + 6) % 20) AS channel, {price} AS price, {_START} + to_milliseconds(i * 10) AS bid_at
        FROM range({first}, {last}) t(i) WHERE i % {_EVERY} > 0"""
