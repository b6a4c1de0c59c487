"""Groups of slots, and the n smallest values of a group, against dictionaries and sorted lists."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.incremental.graph.members import Members
from penstock.incremental.graph.tournament import NOTHING, Tournament
from tests.incremental.edge_values import law

MOVES = st.lists(st.dictionaries(st.integers(0, 40), st.integers(-1, 5), max_size=20), max_size=12)
VALUES = st.none() | st.integers(-5, 5) | st.sampled_from([2**63 - 1, -(2**63)])
BATCHES = st.lists(
    st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 700)), VALUES, max_size=30), min_size=1, max_size=8
)


@law
@given(MOVES)
def test_members_are_those_that_moved_in_last(batches: list[dict[int, int]]) -> None:
    members, model = Members(), {}
    for batch in batches:
        members.move(np.array(list(batch), np.int64), np.array(list(batch.values()), np.int64))
        model.update(batch)
        groups = np.array([5, 0, 3])
        slots, counts = members.of(groups)
        expected = [sorted(slot for slot, group in model.items() if group == one) for one in groups]
        assert counts.tolist() == [len(one) for one in expected]
        assert slots.tolist() == [slot for one in expected for slot in one]
        known = np.array(list(model), np.int64)
        assert members.group_of(known).tolist() == list(model.values())


def test_runs_stay_few_and_forget_who_left() -> None:
    members = Members()
    slots = np.arange(100)
    for number in range(1000):
        members.move(slots, np.full(100, number % 7))
    assert len(members.runs) <= 3
    assert sum(map(len, members.runs)) <= 300


@law
@example([{(0, 0): 0}, {(0, 0): None, (0, 16): None}], 1, True)
@given(BATCHES, st.integers(1, 20), st.booleans())
def test_the_tree_has_the_smallest_values(
    batches: list[dict[tuple[int, int], int | None]], n: int, total: bool
) -> None:
    tree = Tournament(n, total=total)
    model: dict[tuple[int, int], int] = {}
    for raw in batches:
        batch = {(0 if total else group, place): value for (group, place), value in raw.items()}
        groups, places = (np.array([one[side] for one in batch], np.int64) for side in (0, 1))
        tree.update(groups, places, np.array([NOTHING if v is None else v for v in batch.values()], np.int64))
        for place, value in batch.items():
            if value is None:
                model.pop(place, None)
            else:
                model[place] = value
        for group, found in enumerate(tree.best(np.arange(5)).tolist()):
            values = sorted(value for (one, _), value in model.items() if one == group)
            assert found == (values + [NOTHING] * n)[:n]
