"""Relations are checked and typed when they are built: an error names the operator, the mistake and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock.errors import PipelineError
from penstock.plan.relations import (
    Aggregate,
    Distinct,
    Except,
    Filter,
    Input,
    Intersect,
    Join,
    Latest,
    Project,
    Relation,
    Top,
    Union,
    relation_from_json,
    relation_to_json,
)
from penstock.schema import Schema

BIDS = Input("bids", Schema("auction bigint not null, bidder string, price decimal(10,2), tags map<string,int>"))
PLAIN = Project(BIDS, (("auction", "auction"), ("bidder", "bidder"), ("price", "price")))
AUCTIONS = Latest(Input("auctions", Schema("id bigint, seller string, gone boolean")), ("id",), ("seller",), "gone")

MISTAKES: dict[str, tuple[Callable[[], Relation], str]] = {
    "column": (lambda: Filter(BIDS, "prise > 1"), "filter: unknown column 'prise'.*\n.*did you mean 'price'"),
    "condition": (lambda: Filter(BIDS, "auction"), "filter: a condition must be boolean"),
    "translation": (lambda: Project(BIDS, (("x", "soundex(bidder)"),)), "project 'x': a view cannot evaluate"),
    "aggregate in a row": (lambda: Project(BIDS, (("x", "sum(auction)"),)), "project 'x': sum.* is an aggregate"),
    "no column": (lambda: Project(BIDS, ()), "project: no column is given"),
    "key of a map": (lambda: Latest(BIDS, ("tags",)), "latest: the key 'tags' is map"),
    "key and value": (lambda: Latest(BIDS, ("auction",), ("auction",)), "latest: 'auction' is both"),
    "latest of a relation": (lambda: Latest(AUCTIONS, ("id",)), "latest: the rows of latest have no order"),
    "bag of maps": (lambda: Latest(BIDS), "latest: column 'tags' is map"),
    "distinct maps": (lambda: Distinct(BIDS), "distinct: column 'tags' is map"),
    "types of keys": (lambda: Join(BIDS, AUCTIONS, (("bidder", "id"),)), "join: the keys .* different types"),
    "kind of join": (lambda: Join(BIDS, AUCTIONS, (), "outer"), "join: how='outer'"),  # type: ignore[arg-type]
    "key of the right": (
        lambda: Join(BIDS, AUCTIONS, (("auction", "idd"),)),
        "join: unknown column 'idd' on the ri",
    ),
    "suffix": (lambda: Join(PLAIN, PLAIN, (), suffix=""), "join: two columns of the result"),
    "aggregates": (lambda: Aggregate(BIDS, (), ()), "aggregate: neither a key nor an aggregate"),
    "which aggregate": (lambda: Aggregate(BIDS, (), (("x", "corr(auction, price)"),)), "aggregate 'x': corr"),
    "many values": (lambda: Aggregate(BIDS, (), (("x", "sum(auction) + auction"),)), "aggregate 'x': column 'auction'"),
    "sum of text": (lambda: Aggregate(BIDS, (), (("x", "sum(bidder)"),)), "aggregate 'x'"),
    "n": (lambda: Top(PLAIN, (), 0, ()), "top: n=0"),
    "ties": (lambda: Top(PLAIN, (), 1, (), None, "first"), "top: ties='first'"),  # type: ignore[arg-type]
    "rank": (lambda: Top(PLAIN, (), 1, (), "price"), "top: the rows have a column 'price'"),
    "columns of a union": (lambda: Union((PLAIN, AUCTIONS)), "union: the relations have different columns"),
    "columns of a set": (lambda: Except(PLAIN, AUCTIONS), "except: the relations have different columns"),
    "internal names": (lambda: Project(BIDS, (("__penstock_x", "auction"),)), "project: .* reserved"),
    "no name": (lambda: Input("", Schema("a int")), "input '': the name of an input is empty"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_when_the_relation_is_built(name: str) -> None:
    build, message = MISTAKES[name]
    with pytest.raises(PipelineError, match=message) as found:
        build()
    assert found.value.node is not None
    assert found.value.hint


def test_a_key_of_one_name_is_one_column_and_of_two_names_two() -> None:
    other = Project(AUCTIONS, (("auction", "id"), ("bidder", "seller")))
    assert Join(PLAIN, other, (("auction", "auction"),)).schema.names == ("auction", "bidder", "price", "bidder_right")
    assert Join(PLAIN, AUCTIONS, (("auction", "id"),)).schema.names == ("auction", "bidder", "price", "id", "seller")
    assert Join(PLAIN, AUCTIONS, (("auction", "id"),), "anti").schema == PLAIN.schema


def test_a_side_without_a_partner_may_be_null() -> None:
    left = Join(PLAIN, AUCTIONS, (("auction", "id"),), "left").schema
    assert not left.field("auction").nullable
    assert left.field("id").nullable
    assert Join(PLAIN, AUCTIONS, (("auction", "id"),), "full").schema.field("auction").nullable


def test_which_columns_are_unique_is_followed_through_operators() -> None:
    totals = Aggregate(PLAIN, ("bidder",), (("n", "count(*)"),))
    assert AUCTIONS.keys_unique == ("id",)
    assert Project(AUCTIONS, (("a", "id"),)).keys_unique == ("a",)
    assert Project(AUCTIONS, (("a", "seller"),)).keys_unique is None
    assert Filter(AUCTIONS, "id > 1").keys_unique == ("id",)
    assert totals.keys_unique == ("bidder",)
    assert Aggregate(PLAIN, (), (("n", "count(*)"),)).keys_unique == ()
    assert PLAIN.keys_unique is None
    assert Distinct(PLAIN).keys_unique == ("auction", "bidder", "price")
    assert Join(AUCTIONS, totals, (("seller", "bidder"),)).keys_unique == ("id",)
    assert Join(PLAIN, AUCTIONS, (("auction", "id"),)).keys_unique is None
    assert Top(PLAIN, ("bidder",), 1, ()).keys_unique == ("bidder",)
    assert Top(PLAIN, ("bidder",), 2, (), "r").keys_unique == ("bidder", "r")
    assert Top(PLAIN, ("bidder",), 2, (), "r", "rank").keys_unique is None
    assert Union((AUCTIONS, AUCTIONS)).keys_unique is None
    assert Intersect(PLAIN, PLAIN).keys_unique == ("auction", "bidder", "price")


def test_a_relation_that_is_used_twice_is_written_once() -> None:
    maxima = Aggregate(PLAIN, ("auction",), (("top", "max(price)"),))
    joined = Join(PLAIN, maxima, (("auction", "auction"),), "left", "price >= top")
    written = json.dumps(relation_to_json(joined))
    again = relation_from_json(json.loads(written))
    assert again == joined
    assert hash(again) == hash(joined)
    assert again.fingerprint == joined.fingerprint != maxima.fingerprint
    assert [one.kind for one in joined.operators] == ["input", "project", "aggregate", "join"]


def test_what_is_not_a_relation_is_refused() -> None:
    with pytest.raises(PipelineError, match="this is not a relation"):
        relation_from_json([{"kind": "nonsense"}])
