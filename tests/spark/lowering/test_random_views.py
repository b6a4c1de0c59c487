"""Promise: whatever the relation and the rows, a view on Spark is what recomputing gives, after every epoch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings

import penstock as ps
from penstock.plan.operators.views import ViewInput
from penstock.plan.relations import Relation
from penstock.settings import Settings
from penstock.testing import EOF, run_to_end
from tests.incremental.circuit.as_streams import as_rows, as_views
from tests.incremental.circuit.harness import Epoch, Harness, inputs_of
from tests.incremental.circuit.judge import differences, recomputed
from tests.incremental.circuit.random_relations import LOG, epochs, relations

_PHASES = [Phase.explicit, Phase.generate]
_SHORT: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck), "phases": _PHASES}


def view_of(relation: Relation) -> ps.View:
    """Return a view over streams of the names that the relation has."""
    view = as_views(relation)
    names = inputs_of(view)
    streams = {name: ps.from_items([], LOG.schema).named(name) for name in names}
    return ps.View(view, tuple(ViewInput(name, stream.node) for name, stream in streams.items()))


def check(relation: Relation, changes: list[Epoch], where: Settings) -> None:
    view = view_of(relation)
    inputs = {stream.name: _items(stream.name, changes) for stream in view.streams}
    out = run_to_end(ps.Pipeline("p", view.changes().to(ps.collect())), inputs, settings=where)
    harness, found = Harness(relation), []
    versions = iter(out.epochs["collect"].values())
    for epoch in (one for one in changes if any(one.get(name) for name in inputs)):
        for name, some in epoch.items():
            harness.history.setdefault(name, []).extend(some)
        expected = recomputed(relation, harness.contents())
        for _ in inputs:
            # An epoch that changes nothing emits nothing; the rows of several sources may come in as many epochs.
            if differences(found, expected):
                found = _applied(found, next(versions, []), view.unique)
        wrong = differences(found, expected)
        assert not wrong, "\n".join(wrong)
    assert list(versions) == []


def _items(name: str, changes: list[Epoch]) -> list[Any]:
    items: list[Any] = []
    for epoch in changes:
        items += [*as_rows(name, epoch), EOF]
    return items[:-1]


def _applied(before: list[Any], changes: list[dict[str, Any]], unique: tuple[str, ...] | None) -> list[Any]:
    after = list(before)
    for change in sorted(changes, key=lambda row: row["_change"] != "delete"):
        names = [name for name in change if name != "_change"]
        row = tuple(change[name] for name in names)
        if change["_change"] == "update":
            places = [names.index(name) for name in unique or ()]
            mine = [one for one in after if [str(one[n]) for n in places] == [str(row[n]) for n in places]]
            assert len(mine) == 1, f"{row} is an update of {mine}"
            after.remove(mine[0])
        if change["_change"] == "delete":
            after.remove(next(one for one in after if str(one) == str(row)))
        else:
            after.append(row)
    return after


def test_random_relations_in_short(settings: Settings) -> None:
    run(2, settings)


@pytest.mark.slow
def test_random_relations(settings: Settings) -> None:
    run(40, settings)


def run(examples: int, where: Settings) -> None:
    @hypothesis_settings(max_examples=examples, **_SHORT)
    @given(relations(depth=3), epochs(most=3))
    def each(relation: Relation, changes: list[Epoch]) -> None:
        check(relation, changes, where)

    each()
