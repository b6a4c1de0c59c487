"""Events reach every subscriber in order; a slow one loses its oldest and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.control.supervisor.event_bus import EventBus, Subscription


def bus() -> EventBus:
    return EventBus(lambda: 1.0)


def drain(subscription: Subscription) -> list[Mapping[str, Any]]:
    async def collect() -> list[Mapping[str, Any]]:
        subscription.close()
        return [event async for event in subscription]

    return asyncio.run(collect())


def test_every_subscriber_gets_every_event_in_order() -> None:
    one = bus()
    first, second = one.subscribe(), one.subscribe()
    for number in range(3):
        one.publish("epoch", "job-1", number=number)
    assert [event["number"] for event in drain(first)] == [0, 1, 2]
    assert [event["seq"] for event in drain(second)] == [1, 2, 3]


def test_a_subscriber_of_one_job_gets_its_events_and_those_of_the_manager() -> None:
    one = bus()
    mine = one.subscribe("job-1")
    one.publish("state", "job-1")
    one.publish("state", "job-2")
    one.publish("leader")
    assert [event["job"] for event in drain(mine)] == ["job-1", None]


def test_a_slow_subscriber_loses_its_oldest_events_and_can_count_them() -> None:
    one = bus()
    slow, other = one.subscribe(), one.subscribe()
    slow.most = 2
    for number in range(5):
        one.publish("epoch", "job-1", number=number)
    assert [event["number"] for event in drain(slow)] == [3, 4]
    assert slow.missed == 3
    assert len(drain(other)) == 5


def test_recent_events_are_repeated_after_a_number() -> None:
    one = bus()
    for number in range(4):
        one.publish("epoch", "job-1", number=number)
    assert [event["seq"] for event in drain(one.subscribe(after=2))] == [3, 4]


def test_a_closed_subscription_is_forgotten() -> None:
    one = bus()
    subscription = one.subscribe()
    subscription.close()
    assert len(one) == 0


def test_detail_goes_to_subscribers_of_one_job_and_while_they_wait_only_the_newest_is_kept() -> None:
    one = bus()
    mine, everything = one.subscribe("job-1"), one.subscribe()
    for number in range(3):
        one.publish("epoch", "job-1", detail={"nodes": {"a": {"in": number}}}, number=number)
    assert ["nodes" in event for event in drain(everything)] == [False, False, False]
    found = drain(mine)
    assert [event["number"] for event in found] == [0, 1, 2]
    assert [event.get("nodes") for event in found] == [None, None, {"a": {"in": 2}}]
