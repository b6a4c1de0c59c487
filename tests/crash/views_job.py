"""A job with views whose driver is killed: the tables have the epoch then, and the checkpoint does not."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.connectors.files.sink import FileSink
from penstock.contracts import Epoch

BIDS, AUCTIONS = 4_000, 400


class Deadly(FileSink):
    """Kills its driver with -9 when the epochs in DEADLY_EPOCHS, counted from 0, are to be committed."""

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Die, the first time of each."""
        died = Path(f"{self._given}-died-{epoch.number}")
        if str(epoch.number) in os.environ["DEADLY_EPOCHS"].split() and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(epoch, tokens)


def bids() -> list[dict[str, Any]]:
    """Bids that come, change and are withdrawn."""
    chance = random.Random(11)
    return [
        {
            "bid": chance.randrange(BIDS // 4),
            "auction": chance.randrange(AUCTIONS // 4),
            "price": chance.randrange(1_000),
            "gone": chance.random() < 0.25,
        }
        for _ in range(BIDS)
    ]


def auctions() -> list[dict[str, Any]]:
    """Auctions that begin, change and end."""
    chance = random.Random(12)
    return [
        {"id": chance.randrange(AUCTIONS // 4), "category": chance.randrange(9), "gone": chance.random() < 0.2}
        for _ in range(AUCTIONS)
    ]


def job(folder: str) -> ps.Pipeline:
    """Write averages of maxima and the best bids to tables and a file."""
    offers = ps.from_items(bids(), "bid bigint, auction bigint, price bigint, gone boolean").named("bids")
    sales = ps.from_items(auctions(), "id bigint, category bigint, gone boolean").named("auctions")
    bid = offers.view("bid", ["auction", "price"], remove="gone")
    auction = sales.view("id", "category", remove="gone")
    both = auction.join(bid, on={"id": "auction"})
    final = both.group_by("id", "category").aggregate(final="max(price)")
    average = final.group_by("category").aggregate(price="avg(final)", n="count(*)").named("average")
    best = bid.group_by("auction").top(3, by=["price", "bid"], rank="place").named("best")
    lite = f"sqlite:///{folder}/views.db"
    return ps.Pipeline(
        "views",
        average.to(ps.table("average", connection=lite, mode="upsert")),
        best.to(ps.table("best", connection=lite, mode="upsert")),
        best.to(ps.files(f"{folder}/best"), whole=True).named("best-file"),
        offers.to(Deadly(f"{folder}/raw")),
    )
