"""`penstock group`, on Penstock's own log and on Apache Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer

Penstock = Callable[..., Any]


@pytest.fixture
def group(log: Penstock, send: Penstock, topic: str) -> str:
    """A group that has printed two of the three records of a topic."""
    send(topic, 1, 2, 3)
    said = log("consume", topic, "--group", f"group-{topic}", "--max", 2)
    assert said.code == 0, said.err
    return f"group-{topic}"


@contextmanager
def member(broker: str, group: str, topic: str) -> Iterator[None]:
    names = {"group.id": group, "client.id": "test"}
    consumer = Consumer({"bootstrap.servers": broker, "enable.auto.commit": False, **names})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    try:
        yield
    finally:
        consumer.close()


def described(log: Penstock, group: str) -> dict[str, Any]:
    said = log("group", "describe", group, "--json")
    assert said.code == 0, said.err
    return dict(json.loads(said.out))


def committed(log: Penstock, group: str) -> dict[int, int]:
    return {each["partition"]: each["committed"] for each in described(log, group)["partitions"]}


def test_a_group_shows_what_it_committed_and_how_far_behind_it_is(log: Penstock, group: str, topic: str) -> None:
    assert {"group": group, "state": "empty"} in json.loads(log("group", "list", "--json").out)
    assert f"{group}  " in log("group", "list").out
    found = described(log, group)
    assert (found["state"], found["members"]) == ("empty", [])
    first = {"topic": topic, "partition": 0, "committed": 2, "end": 3, "lag": 1, "member": None}
    assert found["partitions"][0] == first
    assert log("group", "describe", group).out.startswith(f"group {group}: empty, 0 members\ntopic ")


def test_members_are_shown_with_their_partitions(log: Penstock, broker: str, group: str, topic: str) -> None:
    with member(broker, group, topic):
        found = described(log, group)
        assert "test" in log("group", "describe", group).out
    assert found["state"] == "stable"
    (one,) = found["members"]
    assert one["client"] == "test"
    assert [each["member"] for each in found["partitions"]] == [one["member"]] * 2


def test_reset_shows_what_it_would_do_and_does_it_on_request(log: Penstock, group: str, topic: str) -> None:
    before = committed(log, group)
    said = log("group", "reset", group, "--topic", topic, "--to", "beginning")
    assert said.out.endswith("nothing was changed; add --execute to do it\n")
    assert f"{topic}          0          2    0\n" in said.out
    assert committed(log, group) == before
    assert log("group", "reset", group, "--topic", topic, "--to", "beginning", "--execute").code == 0
    assert committed(log, group) == {0: 0, 1: 0}
    assert log("consume", topic, "--group", group, "--format", "raw").out == "1\n2\n3\n"


@pytest.mark.parametrize(
    ("to", "options", "expected"),
    [("end", [], 3), ("1", ["--partition", 0], 1), ("2026-01-01T00:00:00Z", [], 0), ("2999-01-01T00:00:00Z", [], 3)],
)
def test_reset_goes_to_any_place(
    log: Penstock, group: str, topic: str, to: str, options: list[object], expected: int
) -> None:
    said = log("group", "reset", group, "--topic", topic, "--to", to, "--execute", *options)
    assert said.code == 0, said.err
    assert committed(log, group)[0] == expected


def test_reset_prepares_a_group_that_is_not_there_yet(log: Penstock, group: str, topic: str) -> None:
    new = f"new-{group}"
    assert log("group", "reset", new, "--topic", topic, "--to", "end", "--execute").code == 0
    assert log("consume", topic, "--group", new).out == ""


def test_a_group_with_members_is_neither_moved_nor_deleted(log: Penstock, broker: str, group: str, topic: str) -> None:
    with member(broker, group, topic):
        reset = log("group", "reset", group, "--topic", topic, "--to", "end", "--execute")
        delete = log("group", "delete", group)
    for said in (reset, delete):
        assert said.code == 2
        assert said.err.startswith(f"BrokerRefused: group '{group}' has 1 active member: test at ")
        assert said.err.endswith("stop them first; nothing was changed\n")
    assert committed(log, group)[0] == 2


def test_a_deleted_group_is_gone_and_an_unknown_one_is_named(log: Penstock, group: str) -> None:
    assert log("group", "delete", group).out == f"deleted group {group}\n"
    said = log("group", "describe", group)
    assert said.code == 2
    assert said.err.startswith(f"UnknownGroup: there is no group '{group}' at ")


def test_a_group_outlives_its_topic(log: Penstock, group: str, topic: str) -> None:
    log("topic", "delete", topic)
    deadline = time.monotonic() + 30
    while log("topic", "describe", topic).code == 0:
        assert time.monotonic() < deadline
    # Kafka forgets the offsets of a deleted topic, and then perhaps the group.
    said = log("group", "describe", group)
    assert said.code == 0 or said.err.startswith("UnknownGroup")
