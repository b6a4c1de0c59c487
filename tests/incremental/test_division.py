"""Promise: a view that is divided over buckets gives what one bucket gives."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, Phase, assume, given, settings

from penstock.incremental.circuit.changes import consolidated, joined
from penstock.incremental.circuit.circuit import Circuit
from penstock.incremental.circuit.row_identity import keys_of
from penstock.incremental.circuit.state import MemoryState
from penstock.incremental.view_changes import named_changes
from penstock.plan.operators.view_partitioning import OneBucket, divided
from penstock.plan.relations import Aggregate, Input, Join, Latest, Project, Relation, Top, Union
from penstock.schema import Schema
from tests.incremental.circuit.as_streams import as_table, as_views
from tests.incremental.circuit.harness import Epoch, identical
from tests.incremental.circuit.random_relations import epochs, relations

BUCKETS = 5
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
_MANY = settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck), phases=_PHASES)


@_MANY
@given(relations(depth=3), epochs(most=4))
def test_buckets_together_give_what_one_gives(relation: Relation, changes: list[Epoch]) -> None:
    view = as_views(relation)
    division = divided(view)
    assume(not isinstance(division, OneBucket))
    assert isinstance(division, dict)
    circuit, whole, parts = Circuit(view), MemoryState(), [MemoryState() for _ in range(BUCKETS)]
    for epoch in changes:
        given_rows = {name: as_table(name, epoch) for name in circuit.inputs}
        expected = circuit.step(given_rows, whole)
        found = [circuit.step(_of_bucket(given_rows, division, n), state) for n, state in enumerate(parts)]
        assert identical(consolidated(joined(found)), expected)
        if view.keys_unique is not None:
            # Both rows of an update come from one bucket.
            names = [_named(one, view.keys_unique) for one in (*found, expected)]
            assert sorted(name for part in names[:-1] for name in part) == sorted(names[-1])


def _of_bucket(rows: dict[str, pa.Table], division: dict[str, tuple[str, ...]], number: int) -> dict[str, pa.Table]:
    made = {}
    for name, table in rows.items():
        hashes = keys_of([table.column(one) for one in division[name]], table.num_rows).hashes()
        made[name] = table.filter(pa.array(hashes % BUCKETS == number))
    return made


def _named(changes: pa.Table, unique: tuple[str, ...]) -> list[str]:
    return [str([*row.values()]) for row in named_changes(changes, unique, "change", "order").to_pylist()]


BIDS = Latest(Input("bids", Schema("bid bigint, auction bigint, price bigint")), ("bid",))
BAG = Latest(Input("bids", Schema("bid bigint, auction bigint, price double")))
AUCTIONS = Latest(Input("auctions", Schema("id bigint, category bigint")), ("id",))


def test_a_division_is_followed_back_to_every_input() -> None:
    best = Aggregate(BAG, ("auction",), (("best", "max(price)"),))
    assert divided(best) == {"bids": ("auction",)}
    assert divided(Join(AUCTIONS, best, (("id", "auction"),))) == {"auctions": ("id",), "bids": ("auction",)}
    renamed = Project(BAG, (("a", "auction"), ("p", "price")))
    assert divided(Top(renamed, ("a",), 2, ())) == {"bids": ("auction",)}


def test_what_stands_in_the_way_is_said() -> None:
    assert divided(Aggregate(BAG, (), (("n", "count(*)"),))) == OneBucket("aggregate count(*) as n has no key")
    by_auction = divided(Aggregate(BIDS, ("auction",), (("n", "count(*)"),)))
    assert isinstance(by_auction, OneBucket)
    assert by_auction.why == "latest by bid is not by auction"
    computed = Aggregate(Project(BAG, (("half", "auction % 2"),)), ("half",), (("n", "count(*)"),))
    assert divided(computed) == OneBucket("half is computed inside of the view")
    assert isinstance(divided(Union((Top(BAG, ("auction",), 1, ()), Top(BAG, ("bid",), 1, ())))), OneBucket)
