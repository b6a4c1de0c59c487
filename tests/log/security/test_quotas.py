"""Quotas, with a clock that the test turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.security.quotas import DEFAULT, FETCH, LONGEST_MS, PRODUCE, Bucket, Entity, Quotas, choose_rule


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas(tmp_path: Path, clock: Clock) -> Quotas:
    return Quotas(tmp_path, clock)


def test_without_a_quota_nobody_waits(quotas: Quotas) -> None:
    assert quotas.charge(PRODUCE, "User:alice", "app", 10**12) == 0


def test_who_sends_more_than_the_rate_waits_until_it_is_kept(quotas: Quotas, clock: Clock) -> None:
    quotas.change(Entity(user="alice"), {PRODUCE: 1000.0})
    assert quotas.charge(PRODUCE, "User:alice", "app", 1000) == 0  # one second at once
    assert quotas.charge(PRODUCE, "User:alice", "app", 500) == 500
    clock.now += 0.5
    assert quotas.charge(PRODUCE, "User:alice", "app", 100) == 100
    assert quotas.charge(FETCH, "User:alice", "app", 10**6) == 0
    assert quotas.charge(PRODUCE, "User:bob", "app", 10**6) == 0


def test_a_huge_debt_is_paid_in_several_waits(quotas: Quotas, clock: Clock) -> None:
    quotas.change(Entity(user="alice"), {PRODUCE: 1000.0})
    assert quotas.charge(PRODUCE, "User:alice", "app", 101_000) == LONGEST_MS
    clock.now += LONGEST_MS / 1000
    assert quotas.charge(PRODUCE, "User:alice", "app", 0) == LONGEST_MS
    clock.now += 70
    assert quotas.charge(PRODUCE, "User:alice", "app", 0) == 0


def test_a_users_clients_share_the_users_rate(quotas: Quotas) -> None:
    quotas.change(Entity(user="alice"), {PRODUCE: 1000.0})
    assert quotas.charge(PRODUCE, "User:alice", "one", 1000) == 0
    assert quotas.charge(PRODUCE, "User:alice", "other", 1000) == 1000


def test_a_default_gives_each_user_a_rate_of_their_own(quotas: Quotas) -> None:
    quotas.change(Entity(user=DEFAULT), {PRODUCE: 1000.0})
    assert quotas.charge(PRODUCE, "User:alice", "app", 1000) == 0
    assert quotas.charge(PRODUCE, "User:bob", "app", 1000) == 0
    assert quotas.charge(PRODUCE, "User:bob", "app", 1000) == 1000


def test_the_rule_that_names_most_counts() -> None:
    order = [
        Entity("alice", "app"),
        Entity("alice", DEFAULT),
        Entity("alice"),
        Entity(DEFAULT, "app"),
        Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT),
        Entity(None, "app"),
        Entity(None, DEFAULT),
    ]
    rules = {entity: {PRODUCE: float(place + 1)} for place, entity in enumerate(order)}
    for place, entity in enumerate(order):
        chosen = choose_rule(rules, PRODUCE, "alice", "app")
        assert chosen is not None
        assert chosen[1] == place + 1
        del rules[entity]
    assert choose_rule(rules, PRODUCE, "alice", "app") is None


def test_quotas_survive_a_restart_and_can_be_removed(quotas: Quotas, tmp_path: Path, clock: Clock) -> None:
    quotas.change(Entity("alice", "app"), {PRODUCE: 1000.0, FETCH: 10.0})
    quotas.change(Entity("alice", "app"), {FETCH: None})
    again = Quotas(tmp_path, clock)
    assert again.rules == {Entity("alice", "app"): {PRODUCE: 1000.0}}
    again.change(Entity("alice", "app"), {PRODUCE: None})
    assert Quotas(tmp_path, clock).rules == {}
    assert again.charge(PRODUCE, "User:alice", "app", 10**9) == 0


def test_client_ids_without_end_cost_no_memory_without_end_and_no_debt_is_forgotten(quotas: Quotas) -> None:
    quotas.change(Entity(user="alice"), {PRODUCE: 1000.0})
    quotas.change(Entity(None, DEFAULT), {PRODUCE: 1000.0})
    quotas.charge(PRODUCE, "User:alice", "first", 5000)
    for number in range(11_000):
        quotas.charge(PRODUCE, "User:eve", f"client-{number}", 0)
    assert len(quotas._buckets) <= 10_001
    assert quotas.charge(PRODUCE, "User:alice", "last", 0) == 4000


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 3)), min_size=1, max_size=30))
def test_who_waits_as_told_never_exceeds_the_rate_by_more_than_one_burst_and_one_request(
    steps: list[tuple[int, float]],
) -> None:
    bucket, now, sent = Bucket(1000.0, 1000.0, 0.0), 0.0, 0
    for size, pause in steps:
        wait = bucket.take(size, now)
        sent += size
        assert sent - size <= 1000.0 * now + 1000.0 + 1e-6
        now += wait + pause
