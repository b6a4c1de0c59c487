"""Promise: what a request asks for in many elements is answered once, with all that they ask for.

tests/log/network/test_frames.py has the reason: the memory that a request takes.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.kafka.records import Record, build_batch
from penstock.log.errors import ErrorCode
from penstock.log.handlers.fetch import fetch
from penstock.log.network.connection import Connection
from penstock.log.protocol.apis import BY_NAME
from penstock.log.request_context import Call
from tests.log.groups.broker_fixture import Still, offset, play
from tests.log.groups.test_handlers import client, newest

GROUP, TOPIC = 32, 2


def test_a_topic_is_described_once_whatever_ids_stand_beside_its_name(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        own = broker.store.topic("trades").id
        asked = [{"name": "trades", "topic_id": UUID(int=number)} for number in range(1, 4)]
        asked += [{"name": None, "topic_id": own}, {"name": "new", "topic_id": own}, {"name": None, "topic_id": None}]
        reply = await client(broker)("metadata", 13, topics=asked, allow_auto_topic_creation=False)
        assert [(topic.name, len(topic.partitions), topic.error_code) for topic in reply.topics] == [
            ("trades", 4, ErrorCode.none),
            ("new", 0, ErrorCode.unknown_topic_or_partition),
            (None, 0, ErrorCode.unknown_topic_id),
        ]

    play(tmp_path, story)


def test_a_group_that_is_named_twice_gets_the_offsets_of_both(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        await broker.groups.commit("g", {("trades", index): offset(index) for index in range(4)})

        async def fetched(*asked: list[int] | None) -> list[list[int]]:
            topics = [None if one is None else [{"name": "trades", "partition_indexes": one}] for one in asked]
            groups = [{"group_id": "g", "member_epoch": at, "topics": one} for at, one in enumerate(topics)]
            reply = await client(broker)("offset_fetch", 9, groups=groups)
            return [[each.partition_index for topic in one.topics for each in topic.partitions] for one in reply.groups]

        assert await fetched([0, 1], [3, 1]) == [[0, 1, 3]]
        assert await fetched([2], None, None) == [[0, 1, 2, 3]]

    play(tmp_path, story)


def test_a_resource_that_is_named_twice_has_the_configs_of_both(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        async def described(*keys: list[str] | None) -> list[list[str]]:
            asked = [{"resource_type": TOPIC, "resource_name": "trades", "configuration_keys": one} for one in keys]
            reply = await client(broker)("describe_configs", newest("describe_configs"), resources=asked)
            return [[config.name for config in result.configs] for result in reply.results]

        assert await described(["retention.ms"], ["cleanup.policy", "no.such"]) == [["cleanup.policy", "retention.ms"]]
        (everything,) = await described(["retention.ms"], None)
        assert len(everything) > 30

    play(tmp_path, story)


def test_a_partition_has_its_producers_described_once(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        batch = build_batch([Record(b"k", b"v")], producer_id=5, producer_epoch=0, base_sequence=0)
        broker.append(broker.store.partition("trades", 0), batch)
        asked = [{"name": "trades", "partition_indexes": [0, index]} for index in range(3)]
        reply = await client(broker)("describe_producers", 0, topics=asked)
        assert [(one.name, [len(each.active_producers) for each in one.partitions]) for one in reply.topics] == [
            ("trades", [1, 0, 0])
        ]

    play(tmp_path, story)


def test_the_last_entry_of_a_partition_is_fetched_as_in_kafka(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        partition = broker.store.partition("trades", 0)
        for _ in range(3):
            await broker.write("trades", 0, build_batch([Record(b"k", b"v")]))
        wanted = b"".join(struct.pack(">iqi", 0, at, 1 << 20) for at in (0, 1, 2))
        frame = struct.pack(">iiiibih", -1, 0, 0, 1 << 20, 1, 1, 6) + b"trades" + struct.pack(">i", 3) + wanted
        pieces: list[Any] = []
        connection = Connection(broker, "10.0.0.1", None)
        fetch(Call(connection, BY_NAME["fetch"], 4, "test", pieces.extend), memoryview(bytearray(frame)), 0)
        start, records = pieces[:2]
        assert struct.unpack_from(">i", start, 16)[0] == 1  # partitions
        assert records.size == partition.read(2, 1 << 20, limit=3).size

    play(tmp_path, story)


def test_topics_with_too_many_partitions_for_one_request_are_refused_as_in_kafka(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        async def created(*partitions: int) -> set[ErrorCode]:
            asked: list[dict[str, Any]] = [
                {"name": f"t{at}", "num_partitions": count, "replication_factor": 1}
                for at, count in enumerate(partitions)
            ]
            reply = await client(broker)("create_topics", 7, topics=asked, validate_only=True)
            return {topic.error_code for topic in reply.topics}

        assert await created(5_000, 5_000) == {ErrorCode.none}
        assert await created(5_000, 5_001) == {ErrorCode.policy_violation}
        assert await created(*[0] * 10_001) == {ErrorCode.policy_violation}

    play(tmp_path, story)


def test_configs_of_more_groups_than_one_request_may_name_are_refused(tmp_path: Path) -> None:
    async def story(broker: Still) -> None:
        def named(kind: int, name: str) -> dict[str, Any]:
            return {"resource_type": kind, "resource_name": name, "configuration_keys": None}

        asked = [named(TOPIC, "trades"), *(named(GROUP, str(at)) for at in range(10_001))]
        reply = await client(broker)("describe_configs", newest("describe_configs"), resources=asked)
        first, *groups = reply.results
        assert first.configs
        assert {each.error_code for each in groups} == {ErrorCode.policy_violation}
        reply = await client(broker)("describe_configs", newest("describe_configs"), resources=asked[-1:])
        assert len(reply.results[0].configs) == 11

    play(tmp_path, story)
