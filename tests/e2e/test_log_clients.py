"""Promise: clients that nobody here wrote talk to the log, unmodified and with their default settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.e2e.log_libraries import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, LIBRARIES, SECONDS, Item, Library, kafka
from tests.log.server import LogProcess

NOW = int(time.time() * 1000)
ITEMS = [
    Item(b"key", b"value", [], NOW),
    Item(None, b"without key", [("trace", b"1"), ("trace", b"2")], NOW + 1),
    Item(b"deleted", None, [("empty", b"")], NOW + 2),
    Item(b"", b"", [], NOW + 3),
    Item(b"large", bytes(range(256)) * 3600, [], NOW + 4),
]
pytestmark = pytest.mark.filterwarnings("ignore:(open|read)_text is deprecated:DeprecationWarning")
libraries = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LogProcess(tmp_path_factory.mktemp("clients")) as server:
        yield server.bootstrap
        assert server.faults == []
        assert server.stop() == 0


def readers(codec: str) -> list[Library]:
    return [library for library in LIBRARIES if codec in library.codecs]


@pytest.mark.parametrize(
    ("library", "codec"),
    [(library, codec) for library in LIBRARIES for codec in library.codecs],
    ids=lambda value: getattr(value, "name", value),
)
def test_what_one_library_sends_all_of_them_read(log: str, library: Library, codec: str) -> None:
    topic = f"sent-{library.name}-{codec}"
    library.send(log, topic, ITEMS, codec, -1)
    for reader in readers(codec):
        assert reader.read(log, topic, len(ITEMS), None) == ITEMS, reader.name


@pytest.mark.parametrize("library", [CONFLUENT, AIOKAFKA], ids=lambda library: library.name)
def test_a_header_may_be_null(log: str, library: Library) -> None:
    items = [Item(None, b"", [("null", None)], NOW)]
    library.send(log, f"null-header-{library.name}", items, "none", -1)
    for reader in LIBRARIES:
        assert reader.read(log, f"null-header-{library.name}", 1, None) == items


@pytest.mark.parametrize("acks", [0, 1])
@libraries
def test_fewer_acknowledgements_can_be_asked_for(log: str, library: Library, acks: int) -> None:
    topic = f"acks-{acks}-{library.name}"
    library.send(log, topic, ITEMS, "none", acks)
    assert library.read(log, topic, len(ITEMS), None) == ITEMS


@libraries
def test_a_group_goes_on_where_it_stopped(log: str, library: Library) -> None:
    topic, group = f"grouped-{library.name}", f"group-{library.name}"
    library.send(log, topic, ITEMS[:3], "none", -1)
    assert library.read(log, topic, 3, group) == ITEMS[:3]
    library.send(log, topic, ITEMS[3:], "none", -1)
    assert library.read(log, topic, 2, group) == ITEMS[3:]


@libraries
def test_a_group_of_one_library_is_taken_over_by_another(log: str, library: Library) -> None:
    topic, group = f"handed-over-{library.name}", f"handed-over-{library.name}"
    CONFLUENT.send(log, topic, ITEMS, "none", -1)
    assert library.read(log, topic, len(ITEMS), group) == ITEMS
    CONFLUENT.send(log, topic, ITEMS[:1], "none", -1)
    for other in LIBRARIES:
        if other is not library:
            assert other.read(log, topic, 1, group) == ITEMS[:1], other.name
            CONFLUENT.send(log, topic, ITEMS[:1], "none", -1)


def test_a_record_that_is_too_large_is_refused_by_name(log: str) -> None:
    failures: list[KafkaError] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": log, "message.max.bytes": 10_000_000})
    producer.produce("sizes", bytes(2_000_000), on_delivery=lambda error, _: failures.append(error))
    producer.flush(SECONDS)
    assert [error.code() for error in failures] == [KafkaError.MSG_SIZE_TOO_LARGE]
    with closing(kafka.KafkaProducer(bootstrap_servers=log, max_request_size=10_000_000)) as other:
        sent = other.send("sizes", bytes(2_000_000))
        with pytest.raises(kafka.errors.MessageSizeTooLargeError):
            sent.get(SECONDS)


def test_confluent_kafka_administers_topics(log: str) -> None:
    admin = AdminClient({"bootstrap.servers": log})
    _done(admin.create_topics([NewTopic("admin", 2, 1, config={"retention.ms": "60000"})]))
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        _done(admin.create_topics([NewTopic("admin", 2, 1)]))
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        _done(admin.create_topics([NewTopic("many", 2, 3)]))
    described = _done(admin.describe_topics(TopicCollection(["admin"])))
    assert len(described.partitions) == 2
    _done(admin.create_partitions([NewPartitions("admin", 4)]))
    assert len(admin.list_topics("admin", timeout=SECONDS).topics["admin"].partitions) == 4
    _done(admin.delete_topics(["admin"]))
    assert "admin" not in admin.list_topics(timeout=SECONDS).topics


def test_confluent_kafka_administers_settings(log: str) -> None:
    admin = AdminClient({"bootstrap.servers": log})
    _done(admin.create_topics([NewTopic("configured", 1, 1, config={"retention.ms": "60000"})]))
    resource = ConfigResource(ResourceType.TOPIC, "configured")
    assert _done(admin.describe_configs([resource]))["retention.ms"].value == "60000"
    change = ConfigEntry("retention.bytes", "123456", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, "configured", incremental_configs=[change])
    _done(admin.incremental_alter_configs([changed]))
    settings = _done(admin.describe_configs([resource]))
    assert (settings["retention.ms"].value, settings["retention.bytes"].value) == ("60000", "123456")
    assert settings["cleanup.policy"].is_default
    wrong = ConfigEntry("no.such.setting", "1", incremental_operation=AlterConfigOpType.SET)
    with pytest.raises(KafkaException, match=r"no\.such\.setting"):
        _done(
            admin.incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, "configured", incremental_configs=[wrong])]
            )
        )
    broker = _done(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker["broker.id"].value == "1"


def test_confluent_kafka_finds_and_deletes_records(log: str) -> None:
    admin = AdminClient({"bootstrap.servers": log})
    CONFLUENT.send(log, "cut", ITEMS, "lz4", -1)
    where = TopicPartition("cut", 0)

    def offset(spec: OffsetSpec) -> Any:
        return _done(admin.list_offsets({where: spec})).offset

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (0, 5)
    assert offset(OffsetSpec.for_timestamp(NOW + 2)) == 2
    assert offset(OffsetSpec.for_timestamp(NOW + 10**9)) == -1
    assert offset(OffsetSpec.max_timestamp()) == 4
    assert _done(admin.delete_records([TopicPartition("cut", 0, 3)])).low_watermark == 3
    assert offset(OffsetSpec.earliest()) == 3
    assert CONFLUENT.read(log, "cut", 2, None) == ITEMS[3:]


def test_confluent_kafka_administers_groups(log: str) -> None:
    admin = AdminClient({"bootstrap.servers": log})
    CONFLUENT.send(log, "counted", ITEMS, "none", -1)
    CONFLUENT.read(log, "counted", len(ITEMS), "counters")
    listed = admin.list_consumer_groups(request_timeout=SECONDS).result(SECONDS)
    assert "counters" in {group.group_id for group in listed.valid}
    described = _done(admin.describe_consumer_groups(["counters"]))
    assert described.state.name == "EMPTY"
    request = [confluent_kafka.ConsumerGroupTopicPartitions("counters")]
    offsets = _done(admin.list_consumer_group_offsets(request)).topic_partitions
    assert [(one.topic, one.partition, one.offset) for one in offsets] == [("counted", 0, 5)]
    back = [confluent_kafka.ConsumerGroupTopicPartitions("counters", [TopicPartition("counted", 0, 2)])]
    _done(admin.alter_consumer_group_offsets(back))
    assert CONFLUENT.read(log, "counted", 3, "counters") == ITEMS[2:]
    _done(admin.delete_consumer_groups(["counters"]))
    listed = admin.list_consumer_groups(request_timeout=SECONDS).result(SECONDS)
    assert "counters" not in {group.group_id for group in listed.valid}


def test_confluent_kafka_describes_the_cluster(log: str) -> None:
    admin = AdminClient({"bootstrap.servers": log})
    cluster = admin.describe_cluster(request_timeout=SECONDS).result(SECONDS)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [log]
    assert cluster.cluster_id


def _done(futures: dict[Any, Any]) -> Any:
    """Return what came of the one thing that was asked for."""
    (future,) = futures.values()
    return future.result(SECONDS)


def test_kafka_python_administers_everything(log: str) -> None:
    KAFKA_PYTHON.send(log, "python", ITEMS, "gzip", -1)
    KAFKA_PYTHON.read(log, "python", len(ITEMS), "python-group")
    where = kafka.TopicPartition("python", 0)
    with closing(kafka.KafkaAdminClient(bootstrap_servers=log)) as admin:
        admin.create_topics([kafka.admin.NewTopic("python-made", 2, 1)])
        assert {"python", "python-made"} <= set(admin.list_topics())
        admin.create_partitions({"python-made": 3})
        (described,) = admin.describe_topics(["python-made"])
        assert len(described["partitions"]) == 3
        resource = kafka.admin.ConfigResource("TOPIC", "python-made", {"retention.ms": "777"})
        admin.alter_configs([resource])
        assert "777" in str(admin.describe_configs([kafka.admin.ConfigResource("TOPIC", "python-made")]))
        assert "python-group" in str(admin.list_groups())
        assert "python-group" in str(admin.describe_groups(["python-group"]))
        assert "offset=5" in str(admin.list_group_offsets(["python-group"]))
        assert admin.describe_cluster()["brokers"]
        assert "python" in str(admin.describe_log_dirs())
        admin.delete_records({where: 2})
        admin.delete_topics(["python-made"])
        assert "python-made" not in admin.list_topics()
    with closing(kafka.KafkaConsumer(bootstrap_servers=log)) as consumer:
        assert consumer.beginning_offsets([where]) == {where: 2}
        assert consumer.end_offsets([where]) == {where: 5}
        assert consumer.offsets_for_times({where: NOW + 3})[where].offset == 3


def test_aiokafka_administers_everything(log: str) -> None:
    AIOKAFKA.send(log, "aio", ITEMS, "zstd", -1)
    AIOKAFKA.read(log, "aio", len(ITEMS), "aio-group")
    asyncio.run(_administer_with_aiokafka(log))


async def _administer_with_aiokafka(log: str) -> None:
    where = aiokafka.TopicPartition("aio", 0)
    admin = AIOKafkaAdminClient(bootstrap_servers=log)
    await admin.start()
    try:
        await admin.create_topics([AioNewTopic("aio-made", 2, 1)])
        assert {"aio", "aio-made"} <= set(await admin.list_topics())
        await admin.create_partitions({"aio-made": AioNewPartitions(3)})
        (described,) = await admin.describe_topics(["aio-made"])
        assert len(described["partitions"]) == 3
        resource = AioConfigResource(AioConfigResourceType.TOPIC, "aio-made", {"retention.ms": "777"})
        await admin.alter_configs([resource])
        assert "777" in str(await admin.describe_configs([resource]))
        assert ("aio-group", "consumer") in await admin.list_consumer_groups()
        assert "aio-group" in str(await admin.describe_consumer_groups(["aio-group"]))
        assert (await admin.list_consumer_group_offsets("aio-group"))[where].offset == 5
        assert (await admin.describe_cluster())["brokers"]
        assert await admin.delete_records({where: RecordsToDelete(2)}) == {where: 2}
        await admin.delete_topics(["aio-made"])
        assert "aio-made" not in await admin.list_topics()
    finally:
        await admin.close()
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=log) as consumer:
        assert await consumer.beginning_offsets([where]) == {where: 2}
        assert await consumer.end_offsets([where]) == {where: 5}
        assert (await consumer.offsets_for_times({where: NOW + 3}))[where].offset == 3
