"""Promise: whatever the relation and the changes, after every epoch the result is what recomputing gives."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings

from penstock.plan.relations import Relation, relation_from_json, relation_to_json
from tests.incremental.circuit.harness import Epoch, Harness, check, identical, logs_of, retraction
from tests.incremental.circuit.random_relations import epochs, relations

# Shrinking takes minutes, for each step computes some ten relations; the operators of the relation are printed.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
_SLOW = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck), phases=_PHASES)


@_SLOW
@given(relations(), epochs())
def test_each_epoch_is_what_recomputing_gives(relation: Relation, changes: list[Epoch]) -> None:
    check(relation, changes)


@_SLOW
@given(relations(), epochs())
def test_nothing_is_left_when_all_is_retracted(relation: Relation, changes: list[Epoch]) -> None:
    harness = check(relation, changes, in_bucket=False)
    removes = {name: lambda row: (*row[:-1], True) for name in (*logs_of(relation), "log")}
    harness.run(retraction(harness.history, removes))
    assert sum(harness.state_rows().values()) <= harness.rows_that_stay * 12


@_SLOW
@given(relations(), epochs(most=4))
def test_how_changes_are_cut_into_epochs_does_not_matter(relation: Relation, changes: list[Epoch]) -> None:
    harness = check(relation, changes, in_bucket=False)
    at_once = Harness(relation)
    at_once.run({name: [one for epoch in changes for one in epoch[name]] for name in changes[0]})
    assert identical(at_once.result, harness.result)


@_SLOW
@given(relations())
def test_a_relation_is_written_as_json_and_read_again(relation: Relation) -> None:
    again = relation_from_json(relation_to_json(relation))
    assert again == relation
    assert again.fingerprint == relation.fingerprint
    assert again.schema == relation.schema
