"""Promise: what the broker stores in `__consumer_offsets` and `__transaction_state` never expires."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.kafka.records import Record, build_batch
from penstock.log.errors import ErrorCode
from penstock.log.handlers import HOT
from penstock.log.network.connection import Connection
from penstock.log.protocol.apis import BY_NAME
from penstock.log.request_context import Call
from penstock.log.storage.store import Store
from penstock.log.storage.topics import Topics
from tests.log.groups.broker_fixture import TRADES, number, offset
from tests.log.groups.test_handlers import client, newest
from tests.log.transactions.brokers import Still, running

INTERNAL = ["__consumer_offsets", "__transaction_state"]
DAY = 24 * 3600 * 1000
Story = Callable[[Still, Callable[..., Awaitable[Any]]], Awaitable[None]]
pytestmark = pytest.mark.parametrize("name", INTERNAL)


def tell(folder: Path, story: Story) -> None:
    async def whole() -> None:
        async with running(Still(folder)) as broker:
            await story(broker, client(broker))

    asyncio.run(whole())


async def use_both(broker: Still) -> None:
    """Let the broker write to both of its topics."""
    if TRADES[0] not in broker.store.topics:
        broker.store.create_topic(TRADES[0], 1, {})
    await broker.groups.commit("g", {TRADES: offset(7)})
    await broker.transactions.init_producer_id("writer", 60_000)


def created_by_a_client(folder: Path, name: str, config: dict[str, str] | None = None) -> None:
    """Leave the topic as earlier versions let a client create it."""
    folder.mkdir(exist_ok=True)
    topics = Topics(folder / "topics.json")
    topics.add(name, 3, config or {}, internal=True)
    path = folder / "topics.json"
    path.write_text(path.read_text().replace('"internal": true', '"internal": false'))


def look_alike(name: str) -> str:
    """Return a name that collides with another in Kafka's metrics, which have no dots."""
    return name.replace("_", ".").replace("..", "__", 1)


def produced(broker: Still, topic: str) -> tuple[ErrorCode, str]:
    """Return what a client hears that produces to a topic, in version 8 of the request."""
    records = bytes(build_batch([Record(b"k", b"v")]))
    body = struct.pack(">hhiih", -1, -1, 1000, 1, len(topic)) + topic.encode()
    frame = bytearray(body + struct.pack(">iii", 1, 0, len(records)) + records)
    answers: list[bytes] = []
    call = Call(Connection(broker, "10.0.0.1", None), BY_NAME["produce"], 8, "test", lambda got: answers.extend(got))
    HOT["produce"](call, memoryview(frame), 0)
    at = 4 + 2 + len(topic) + 4 + 4
    length = struct.unpack_from(">h", answers[0], at + 2 + 24 + 4)[0]
    text = answers[0][at + 32 : at + 32 + max(length, 0)].decode()
    return ErrorCode(struct.unpack_from(">h", answers[0], at)[0]), text


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_client_cannot_create_an_internal_topic(tmp_path: Path, name: str, validate_only: bool) -> None:
    async def story(broker: Still, ask: Any) -> None:
        asked = {"name": name, "num_partitions": 1, "replication_factor": 1}
        version = newest("create_topics")
        (answer,) = (await ask("create_topics", version, topics=[asked], validate_only=validate_only)).topics
        assert answer.error_code is ErrorCode.invalid_topic_exception
        assert "internal topic" in answer.error_message
        assert name not in broker.store.topics

    tell(tmp_path, story)


def test_metadata_and_produce_do_not_create_an_internal_topic(tmp_path: Path, name: str) -> None:
    async def story(broker: Still, ask: Any) -> None:
        reply = await ask("metadata", newest("metadata"), topics=[{"name": name}], allow_auto_topic_creation=True)
        assert reply.topics[0].error_code is ErrorCode.unknown_topic_or_partition
        assert produced(broker, name)[0] is ErrorCode.invalid_topic_exception
        assert name not in broker.store.topics

    tell(tmp_path, story)


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_client_cannot_create_a_topic_that_collides_with_it(tmp_path: Path, name: str, validate_only: bool) -> None:
    """The broker could not create its own after that, and no group could commit."""
    alike = look_alike(name)

    async def story(broker: Still, ask: Any) -> None:
        asked = {"name": alike, "num_partitions": 1, "replication_factor": 1}
        version = newest("create_topics")
        (answer,) = (await ask("create_topics", version, topics=[asked], validate_only=validate_only)).topics
        assert answer.error_code is ErrorCode.invalid_topic_exception
        assert f"internal topic {name}" in answer.error_message
        reply = await ask("metadata", newest("metadata"), topics=[{"name": alike}], allow_auto_topic_creation=True)
        assert reply.topics[0].error_code is ErrorCode.invalid_topic_exception
        assert alike not in broker.store.topics
        await use_both(broker)

    tell(tmp_path, story)


def test_a_colliding_topic_of_an_earlier_version_stops_no_commits_and_can_be_deleted(tmp_path: Path, name: str) -> None:
    alike = look_alike(name)
    created_by_a_client(tmp_path, alike)

    async def story(broker: Still, ask: Any) -> None:
        await use_both(broker)
        assert number(broker) == 7
        assert produced(broker, alike)[0] is ErrorCode.none

    async def later(broker: Still, ask: Any) -> None:
        assert number(broker) == 7
        assert broker.transactions.find("writer") is not None
        (answer,) = (await ask("delete_topics", newest("delete_topics"), topics=[{"name": alike}])).responses
        assert answer.error_code is ErrorCode.none

    tell(tmp_path, story)
    tell(tmp_path, later)


def test_the_broker_creates_it_internal_and_compacted_and_says_so(tmp_path: Path, name: str) -> None:
    async def story(broker: Still, ask: Any) -> None:
        await use_both(broker)
        topic = broker.store.topic(name)
        assert (topic.internal, topic.setting("cleanup.policy"), topic.deletes) == (True, ("compact",), False)
        reply = await ask("metadata", newest("metadata"), topics=None)
        assert [found.name for found in reply.topics if found.is_internal] == INTERNAL

    tell(tmp_path, story)


def test_a_client_cannot_write_delete_cut_or_add_partitions_it(tmp_path: Path, name: str) -> None:
    async def story(broker: Still, ask: Any) -> None:
        await use_both(broker)
        before = broker.store.partition(name, 0).end
        code, message = produced(broker, name)
        assert code is ErrorCode.invalid_topic_exception
        assert "internal topic" in message
        topic_id = broker.store.topic(name).id
        for asked in ({"name": name}, {"name": None, "topic_id": topic_id}):
            (answer,) = (await ask("delete_topics", newest("delete_topics"), topics=[asked])).responses
            assert answer.error_code is ErrorCode.invalid_topic_exception
        asked = {"name": name, "count": 5, "assignments": None}
        (answer,) = (await ask("create_partitions", newest("create_partitions"), topics=[asked])).results
        assert answer.error_code is ErrorCode.invalid_topic_exception
        asked = {"name": name, "partitions": [{"partition_index": 0, "offset": -1}]}
        (answer,) = (await ask("delete_records", newest("delete_records"), topics=[asked])).topics
        assert answer.partitions[0].error_code is ErrorCode.invalid_topic_exception
        partition = broker.store.partition(name, 0)
        assert (partition.log_start, partition.end, broker.store.topic(name).partitions) == (0, before, 1)

    tell(tmp_path, story)


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("policy", ["delete", "compact,delete", None])
def test_its_settings_cannot_make_it_lose_records(
    tmp_path: Path, name: str, policy: str | None, validate_only: bool
) -> None:
    async def story(broker: Still, ask: Any) -> None:
        await use_both(broker)
        change = {"name": "cleanup.policy", "config_operation": 0 if policy else 1, "value": policy}
        resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
        fields = {"resources": [resource], "validate_only": validate_only}
        (answer,) = (await ask("incremental_alter_configs", 1, **fields)).responses
        assert (answer.error_code, "internal topic" in answer.error_message) == (ErrorCode.invalid_config, True)
        resource = {"resource_type": 2, "resource_name": name, "configs": [{"name": "retention.ms", "value": "1"}]}
        (answer,) = (await ask("alter_configs", 2, resources=[resource], validate_only=validate_only)).responses
        assert answer.error_code is ErrorCode.invalid_config
        assert broker.store.topic(name).setting("cleanup.policy") == ("compact",)

    tell(tmp_path, story)


def test_its_other_settings_can_be_changed(tmp_path: Path, name: str) -> None:
    async def story(broker: Still, ask: Any) -> None:
        await use_both(broker)
        change = {"name": "segment.bytes", "config_operation": 0, "value": "4096"}
        resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
        (answer,) = (await ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)).responses
        assert answer.error_code is ErrorCode.none
        assert broker.store.topic(name).setting("segment.bytes") == 4096

    tell(tmp_path, story)


@pytest.mark.parametrize("config", [{}, {"cleanup.policy": "compact,delete", "retention.ms": "1000"}])
def test_one_that_a_client_created_before_is_repaired_at_start(
    tmp_path: Path, name: str, config: dict[str, str]
) -> None:
    created_by_a_client(tmp_path, name, config)

    async def story(broker: Still, ask: Any) -> None:
        await use_both(broker)
        topic = broker.store.topic(name)
        assert (topic.internal, topic.setting("cleanup.policy"), topic.partitions) == (True, ("compact",), 3)

    tell(tmp_path, story)
    store = Store(tmp_path)
    assert (store.topic(name).internal, store.topic(name).compacted) == (True, True)
    store.close()


def test_offsets_and_transactional_ids_outlive_retention_where_a_client_had_created_it(
    tmp_path: Path, name: str
) -> None:
    created_by_a_client(tmp_path, name)

    async def story(broker: Still, ask: Any) -> None:
        await use_both(broker)
        for _ in range(3):  # old segments are closed in one round and deleted in the next
            broker.now += 8 * DAY
            await broker.cleaner.clean_all()

    async def later(broker: Still, ask: Any) -> None:
        assert number(broker) == 7
        assert broker.transactions.find("writer") is not None

    tell(tmp_path, story)
    tell(tmp_path, later)


def test_records_that_a_client_had_written_to_it_do_not_stop_the_start(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    created_by_a_client(tmp_path, name)

    async def story(broker: Still, ask: Any) -> None:
        partition = broker.store.partition(name, 0)
        for key, value in ((b"k", b"v"), (None, b"v"), (b"\0\1", b""), (b"\0\0\0\1x", b"\0")):
            broker.append(partition, build_batch([Record(key, value)]), internal=True)
        await use_both(broker)

    async def later(broker: Still, ask: Any) -> None:
        assert number(broker) == 7
        assert broker.transactions.find("writer") is not None
        assert "not the broker's own" in caplog.text

    tell(tmp_path, story)
    tell(tmp_path, later)
