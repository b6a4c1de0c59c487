"""Promise: whatever the relation and the changes, after every epoch the result is what recomputing gives."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from penstock.incremental.circuit import top
from penstock.incremental.circuit.changes import consolidated, joined, negated
from penstock.incremental.circuit.row_identity import Keys
from penstock.plan.relations import Input, Join, Relation, relation_from_json, relation_to_json
from penstock.schema import Schema
from tests.incremental.circuit.harness import Epoch, Harness, check, identical, retraction, table
from tests.incremental.circuit.random_relations import epochs, relations

# Shrinking takes minutes, for each step computes some ten relations; the operators of the relation are printed.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
_FEW = settings(deadline=None, max_examples=10, suppress_health_check=list(HealthCheck), phases=_PHASES)
_SOME = settings(_FEW, max_examples=20)
_MANY = settings(_FEW, max_examples=300)


@pytest.mark.slow
@_MANY
@given(relations(), epochs())
def test_each_epoch_of_many_is_what_recomputing_gives(relation: Relation, changes: list[Epoch]) -> None:
    harness = check(relation, changes)
    harness.run(retraction(harness.history, {"log": lambda row: (*row[:-1], True)}))
    assert harness.rows_that_stay or sum(harness.state_rows().values()) == 0


@_SOME
@given(relations(), epochs())
def test_each_epoch_is_what_recomputing_gives_and_nothing_is_left_when_all_is_retracted(
    relation: Relation, changes: list[Epoch]
) -> None:
    harness = check(relation, changes)
    harness.folder = None
    harness.run(retraction(harness.history, {"log": lambda row: (*row[:-1], True)}))
    # An aggregate without keys has a row of no rows, which those downstream of it count.
    assert harness.rows_that_stay or sum(harness.state_rows().values()) == 0


@_SOME
@given(relations(), epochs(most=4))
def test_how_changes_are_cut_into_epochs_does_not_matter(relation: Relation, changes: list[Epoch]) -> None:
    harness = check(relation, changes, in_bucket=False)
    at_once = Harness(relation)
    at_once.run({name: [one for epoch in changes for one in epoch[name]] for name in changes[0]})
    assert identical(at_once.result, harness.result)


@_SOME
@given(relations(), epochs())
def test_inputs_that_only_grow_need_less_state(relation: Relation, changes: list[Epoch]) -> None:
    check(relation, [_additions(epoch) for epoch in changes], append_only=True)


@pytest.mark.slow
@_MANY
@given(relations(), epochs())
def test_many_relations_of_inputs_that_only_grow(relation: Relation, changes: list[Epoch]) -> None:
    check(relation, [_additions(epoch) for epoch in changes], append_only=True)


def _additions(epoch: Epoch) -> Epoch:
    return {name: [(row, weight) for row, weight in rows if weight > 0] for name, rows in epoch.items()}


@pytest.fixture
def small_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of three rows have a tree."""
    monkeypatch.setattr(top, "_LEAF", 1)
    monkeypatch.setattr(top, "_LARGE_LEAF", 2)


@pytest.mark.usefixtures("small_trees")
@_FEW
@given(relations(), epochs())
def test_trees_of_any_depth_give_the_same(relation: Relation, changes: list[Epoch]) -> None:
    harness = check(relation, changes, in_bucket=False)
    harness.run(retraction(harness.history, {"log": lambda row: (*row[:-1], True)}))
    assert harness.rows_that_stay or sum(harness.state_rows().values()) == 0


@pytest.fixture
def collisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are four hashes only."""
    hashes = Keys.hashes
    monkeypatch.setattr(Keys, "hashes", lambda self: hashes(self) & 3)


@pytest.mark.usefixtures("collisions")
@_FEW
@given(relations(), epochs())
def test_rows_of_inputs_that_only_grow_with_the_same_hash(relation: Relation, changes: list[Epoch]) -> None:
    check(relation, [_additions(epoch) for epoch in changes], append_only=True)


@pytest.mark.usefixtures("collisions")
@_FEW
@given(relations(), epochs())
def test_rows_with_the_same_hash_are_not_confused(relation: Relation, changes: list[Epoch]) -> None:
    check(relation, changes)


@pytest.mark.usefixtures("collisions")
def test_a_right_join_has_its_rows_in_one_order_if_rows_that_it_takes_back_have_the_same_hash() -> None:
    left, right = Input("a", Schema("k int, s string")), Input("b", Schema("k int, n bigint"))
    relation = Join(left, right, (("k", "k"),), "right")
    for numbers in combinations(range(6), 2):
        # Both sides come in one epoch: each row of the right is added without a partner, and taken back.
        epoch: Epoch = {"a": [((k, "s"), 1) for k in numbers], "b": [((k, k), 1) for k in numbers]}
        check(relation, [epoch], in_bucket=False, append_only=True)


@pytest.mark.usefixtures("collisions")
def test_the_order_of_changes_does_not_depend_on_rows_that_cancel_each_other() -> None:
    given = Input("a", Schema("n bigint, s string"))
    values = [(0, "a"), (0, None), (None, "a"), (1, "b"), (-1, "b"), (2, "")]
    for numbers in combinations(range(len(values)), 3):
        some = table(given, [(values[number], 1) for number in numbers])
        others = table(given, [(row, 1) for number, row in enumerate(values) if number not in numbers])
        assert identical(consolidated(joined([others, some, negated(others)])), consolidated(some))


@_SOME
@given(relations())
def test_a_relation_is_written_as_json_and_read_again(relation: Relation) -> None:
    again = relation_from_json(relation_to_json(relation))
    assert again == relation
    assert again.fingerprint == relation.fingerprint
    assert again.schema == relation.schema
