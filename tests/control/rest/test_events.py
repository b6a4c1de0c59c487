"""Events by WebSocket and SSE, with real clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from penstock.control.rest.events import EventTexts, event_texts
from penstock.control.supervisor.event_bus import EventBus
from tests.control.rest.memory_manager import NOW, MemoryManager
from tests.waiting import wait_for


def sockets(api: httpx.Client, query: str = "") -> ClientConnection:
    url = str(api.base_url).replace("http", "ws", 1)
    return connect(f"{url}events{query}", proxy=None)


def received(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(10))
    return found


def test_a_websocket_gets_events_from_its_subscription_on(api: httpx.Client, manager: MemoryManager) -> None:
    with sockets(api) as socket:
        assert received(socket)["kind"] == "subscribed"
        manager.bus.publish_threadsafe("state", "job0001", to="RUNNING", url="kafka://ada:topsecret@a:1")
        event = received(socket)
    assert (event["seq"], event["kind"], event["job"], event["to"]) == (1, "state", "job0001", "RUNNING")
    assert event["at"] == "2026-11-17T10:00:00Z"
    assert event["url"] == "kafka://ada:***@a:1"


def test_a_websocket_gets_the_events_of_one_job_by_its_name(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("a"), manager.add("b")
    with sockets(api, "?job=b") as socket:
        received(socket)
        manager.bus.publish_threadsafe("epoch", "job0001")
        manager.bus.publish_threadsafe("epoch", "job0002")
        assert received(socket)["job"] == "job0002"


def test_recent_events_are_repeated_after_a_number(api: httpx.Client, manager: MemoryManager) -> None:
    for _ in range(3):
        manager.bus.publish("epoch", "job0001")
    with sockets(api, "?after=1") as socket:
        assert [received(socket)["seq"] for _ in range(3)] == [1, 2, 3]


def test_a_client_that_leaves_is_forgotten(api: httpx.Client, manager: MemoryManager) -> None:
    with sockets(api) as socket:
        received(socket)
        assert len(manager.bus) == 1
    wait_for(lambda: len(manager.bus) == 0, "the subscription was kept")


def test_a_websocket_is_closed_when_the_manager_ends(api: httpx.Client, manager: MemoryManager) -> None:
    with sockets(api) as socket:
        received(socket)
        loop = manager.bus._loop
        assert loop is not None
        loop.call_soon_threadsafe(manager.bus.close)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012


@pytest.mark.parametrize(("query", "status"), [("?job=nobody", 404), ("?jbo=a", 403), ("?after=x", 403)])
def test_a_websocket_that_cannot_be_served_is_refused(api: httpx.Client, query: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as refused:
        sockets(api, query)
    assert refused.value.response.status_code == status


def sse(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def test_events_are_streamed_by_sse(api: httpx.Client, manager: MemoryManager) -> None:
    with api.stream("GET", "/events/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = sse(response.iter_lines())
        assert next(events)["kind"] == "subscribed"
        manager.bus.publish_threadsafe("state", "job0001", to="FAILED")
        assert next(events)["to"] == "FAILED"
    wait_for(lambda: len(manager.bus) == 0, "the subscription was kept")


def test_a_browser_that_connects_again_gets_what_it_missed(api: httpx.Client, manager: MemoryManager) -> None:
    for _ in range(3):
        manager.bus.publish("epoch", "job0001")
    with api.stream("GET", "/events/stream", headers={"last-event-id": "2"}) as response:
        lines = response.iter_lines()
        assert [next(lines) for _ in range(1)] == ["id: 2"]
        events = sse(lines)
        assert (next(events)["kind"], next(events)["seq"]) == ("subscribed", 3)


def test_a_stream_of_a_job_that_is_not_there_is_a_problem(api: httpx.Client) -> None:
    assert api.get("/events/stream?job=nobody").status_code == 404


def test_a_client_that_reads_slowly_is_told_how_many_events_it_missed() -> None:
    async def read() -> list[dict[str, Any]]:
        bus = EventBus(now=NOW.timestamp)
        subscription = bus.subscribe()
        subscription.most = 2
        for _ in range(5):
            bus.publish("epoch", "a")
        subscription.close()
        return [json.loads(text) async for _, text in event_texts(subscription, EventTexts(), 0, lambda: NOW)]

    events = asyncio.run(read())
    assert [event["kind"] for event in events] == ["subscribed", "missed", "epoch", "epoch"]
    assert (events[1]["missed"], [event["seq"] for event in events[2:]]) == (3, [4, 5])


def test_an_event_is_encoded_once_for_all_clients() -> None:
    texts, event = EventTexts(), {"seq": 1, "at": NOW.timestamp(), "kind": "epoch", "job": "a"}
    assert texts.text(event) is texts.text(event)
    assert '"state"' in texts.text({**event, "kind": "state"})  # another one, of another manager
    for number in range(2, 1_000):
        texts.text({**event, "seq": number})
    assert len(texts._texts) <= 256
