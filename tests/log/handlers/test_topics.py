"""Requests about topics that make no sense: the codes are those that Apache Kafka 4.2 answered to the same requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.log.errors import ErrorCode
from tests.log.groups.broker_fixture import Still, play
from tests.log.groups.test_handlers import client

NO_ID = UUID(int=0)


def topic(name: str, *brokers: int, **more: Any) -> dict[str, Any]:
    assigned = [{"partition_index": at, "broker_ids": [broker]} for at, broker in enumerate(brokers)]
    count = -1 if brokers else 1
    made = {"name": name, "num_partitions": count, "replication_factor": count, "assignments": assigned, "configs": []}
    return made | more


def test_a_topic_that_is_named_twice_is_neither_created_nor_deleted(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        ask = client(broker)
        made = await ask("create_topics", 7, topics=[topic("twice"), topic("once"), topic("twice")], timeout=1000)
        assert {each.name: each.error_code for each in made.topics} == {
            "once": ErrorCode.none,
            "twice": ErrorCode.invalid_request,
        }
        assert "twice" not in broker.store.topics
        id = broker.store.topic("once").id
        named = [{"name": "once", "topic_id": NO_ID}, {"name": None, "topic_id": id}]
        gone = await ask("delete_topics", 6, topics=named, timeout=1000)
        assert [each.error_code for each in gone.responses] == [ErrorCode.invalid_request]
        assert "once" in broker.store.topics

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("new", 1, 1), ErrorCode.none),
        (topic("new", 1, 99), ErrorCode.invalid_replica_assignment),
        (topic("new", 1, num_partitions=1), ErrorCode.invalid_request),
        (topic("new", 1, replication_factor=1), ErrorCode.invalid_request),
        (
            topic("new", 1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
            ErrorCode.invalid_replica_assignment,
        ),
        (
            topic("new", 1, assignments=[{"partition_index": 0, "broker_ids": [1, 1]}]),
            ErrorCode.invalid_replica_assignment,
        ),
    ],
)
def test_replicas_can_be_assigned_to_this_broker_alone(tmp_path: Path, asked: dict[str, Any], code: ErrorCode) -> None:
    async def story(broker: Still) -> None:
        (made,) = (await client(broker)("create_topics", 7, topics=[asked], timeout=1000)).topics
        assert (made.error_code, made.num_partitions) == (code, -1 if code else 2)
        assert ("new" in broker.store.topics) == (not code)

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("brokers", "code"),
    [
        ([[1], [1]], ErrorCode.none),
        ([[1]], ErrorCode.invalid_replica_assignment),
        ([[1], [99]], ErrorCode.invalid_replica_assignment),
        (None, ErrorCode.none),
    ],
)
def test_partitions_are_added_with_an_assignment_for_each(
    tmp_path: Path, brokers: list[list[int]] | None, code: ErrorCode
) -> None:
    async def story(broker: Still) -> None:
        broker.store.create_topic("wide", 1, {})
        assigned = None if brokers is None else [{"broker_ids": each} for each in brokers]
        asked = [{"name": "wide", "count": 3, "assignments": assigned}]
        (made,) = (await client(broker)("create_partitions", 3, topics=asked, timeout=1000)).results
        assert (made.error_code, broker.store.topic("wide").partitions) == (code, 1 if code else 3)

    play(tmp_path, story)


def test_a_name_that_no_topic_can_have_is_invalid_and_not_unknown(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        wanted = [{"name": name, "topic_id": NO_ID} for name in ("bad name", "missing")]
        found = await client(broker)("metadata", 12, topics=wanted, allow_auto_topic_creation=False)
        assert {each.name: each.error_code for each in found.topics} == {
            "bad name": ErrorCode.invalid_topic_exception,
            "missing": ErrorCode.unknown_topic_or_partition,
        }

    play(tmp_path, story)


def test_sizes_are_told_of_the_partitions_that_are_asked_for(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        broker.store.create_topic("sized", 3, {})
        wanted = [{"topic": "sized", "partitions": [2, 9]}, {"topic": "missing", "partitions": [0]}]
        (disk,) = (await client(broker)("describe_log_dirs", 4, topics=wanted)).results
        assert [(one.name, [each.partition_index for each in one.partitions]) for one in disk.topics] == [
            ("sized", [2])
        ]
        (disk,) = (await client(broker)("describe_log_dirs", 4, topics=None)).results
        assert {one.name: len(one.partitions) for one in disk.topics}["sized"] == 3

    play(tmp_path, story)
