"""Laws of the assignors: everything is assigned once, to those who subscribe, evenly, and with few moves."""

from __future__ import annotations

from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.log.groups.consumer.assignors import ASSIGNORS, Target, assign_ranges, assign_uniformly

TOPICS = [UUID(int=number) for number in range(1, 5)]
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})
NAMES = st.sampled_from("abcdefgh")
SUBSCRIPTIONS = st.dictionaries(NAMES, st.frozensets(st.sampled_from(TOPICS)), max_size=8)
Subscriptions = dict[str, frozenset[UUID]]
Counts = dict[UUID, int]


def _everything(subscriptions: Subscriptions, counts: Counts) -> set[tuple[UUID, int]]:
    return {(topic, index) for topic in frozenset().union(*subscriptions.values()) for index in range(counts[topic])}


# The first property test of a run also pays for the start of hypothesis, a second on a busy machine.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(SUBSCRIPTIONS, SUBSCRIPTIONS, COUNTS, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_goes_to_one_subscriber(
    before: Subscriptions, after: Subscriptions, counts: Counts, name: str
) -> None:
    assign = ASSIGNORS[name]
    target = assign(after, counts, assign(before, counts, {}))
    assert target.keys() == after.keys()
    assigned = [each for partitions in target.values() for each in partitions]
    assert sorted(assigned) == sorted(_everything(after, counts))
    assert all({topic for topic, _ in target[id]} <= topics for id, topics in after.items())


@given(st.frozensets(NAMES, min_size=1), st.frozensets(NAMES, min_size=1), COUNTS)
def test_members_with_the_same_topics_get_equally_many_and_lose_only_what_others_need(
    before: frozenset[str], after: frozenset[str], counts: Counts
) -> None:
    topics = frozenset(TOPICS)
    old = assign_uniformly(dict.fromkeys(sorted(before), topics), counts, {})
    new = assign_uniformly(dict.fromkeys(sorted(after), topics), counts, old)
    sizes = {len(partitions) for partitions in new.values()}
    assert max(sizes) - min(sizes) <= 1
    most = max(sizes)
    for id in before & after:
        moved = old[id] - new[id]
        assert not moved or len(new[id]) >= min(most - 1, len(old[id])), "it gave away more than it had to"
    assert assign_uniformly(dict.fromkeys(sorted(after), topics), counts, new) == new


@given(SUBSCRIPTIONS, COUNTS)
def test_no_move_between_two_subscribers_of_a_topic_would_make_it_more_even(
    subscriptions: Subscriptions, counts: Counts
) -> None:
    target = assign_uniformly(subscriptions, counts, {})
    for id, partitions in target.items():
        for topic in {topic for topic, _ in partitions}:
            readers = [other for other, topics in subscriptions.items() if topic in topics]
            assert all(len(partitions) - len(target[other]) <= 1 for other in readers), id


@given(SUBSCRIPTIONS, COUNTS)
def test_ranges_of_equal_topics_are_equal(subscriptions: Subscriptions, counts: Counts) -> None:
    same = dict.fromkeys(subscriptions, frozenset(TOPICS))
    target = assign_ranges(same, dict.fromkeys(counts, 5), {})
    for partitions in target.values():
        indexes = {topic: sorted(index for each, index in partitions if each == topic) for topic in TOPICS}
        assert len({tuple(found) for found in indexes.values()}) == 1
        assert all(found == list(range(found[0], found[-1] + 1)) for found in indexes.values() if found)


def test_an_empty_group_has_an_empty_target() -> None:
    nothing: Target = {}
    assert [assign({}, {}, {}) for assign in ASSIGNORS.values()] == [nothing, nothing]
