"""Promise: a relation counts as one that only gains rows where no change of its inputs can take a row out of it."""

from __future__ import annotations

import pytest

from penstock.plan.relations import Aggregate, Distinct, Except, Filter, Input, Join, Latest, Relation, Top, Union
from penstock.plan.relations.append_only import append_only
from penstock.schema import Schema

BIDS = Latest(Input("bids", Schema("auction bigint, price bigint")))
AUCTIONS = Latest(Input("auctions", Schema("id bigint, seller bigint")))
ON = (("auction", "id"),)
GROWING: dict[str, Relation] = {
    "rows": BIDS,
    "filter": Filter(BIDS, "price > 1"),
    "join": Join(BIDS, AUCTIONS, ON),
    "semi join": Join(BIDS, AUCTIONS, ON, "semi"),
    "union": Union((BIDS, BIDS)),
    "distinct": Distinct(BIDS),
}
CHANGING: dict[str, Relation] = {
    "last row of a key": Latest(Input("bids", BIDS.schema), ("auction",)),
    "rows that are removed": Latest(Input("bids", BIDS.schema), remove="price = 0"),
    "left join": Join(BIDS, AUCTIONS, ON, "left"),
    "anti join": Join(BIDS, AUCTIONS, ON, "anti"),
    "aggregate": Aggregate(BIDS, ("auction",), (("best", "max(price)"),)),
    "top": Top(BIDS, ("auction",), 1, (("price", "desc", "last"),)),
    "except": Except(BIDS, BIDS, all=True),
    "filter of a top": Filter(Top(BIDS, ("auction",), 1, (("price", "desc", "last"),)), "price > 1"),
}


@pytest.mark.parametrize("name", GROWING)
def test_it_only_gains_rows(name: str) -> None:
    assert append_only(GROWING[name], {"bids", "auctions"})


@pytest.mark.parametrize("name", CHANGING)
def test_it_may_lose_rows(name: str) -> None:
    assert not append_only(CHANGING[name], {"bids", "auctions"})


def test_an_input_that_may_lose_rows_decides() -> None:
    assert not append_only(GROWING["join"], {"bids"})
