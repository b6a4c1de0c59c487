"""Promise: clients that nobody here wrote change settings, and read what they sent however a topic compresses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from penstock.kafka.batches import headers
from penstock.kafka.compression import CODECS
from tests.e2e.log_libraries import CONFLUENT, LIBRARIES, SECONDS, Item, Library, kafka
from tests.log.server import LogProcess

NOW = int(time.time() * 1000)
ITEMS = [Item(b"k%d" % at, b"%d " % at + bytes(range(256)) * (at % 40), [("h", b"1")], NOW + at) for at in range(100)]
pytestmark = pytest.mark.filterwarnings("ignore:(open|read)_text is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogProcess]:
    with LogProcess(tmp_path_factory.mktemp("settings")) as server:
        yield server
        assert server.faults == []
        assert server.stop() == 0


def create(log: str, name: str, **config: str) -> None:
    topic = NewTopic(name, 1, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin = AdminClient({"bootstrap.servers": log})
    admin.create_topics([topic])[name].result(SECONDS)


def stored_codecs(data: Path, topic: str) -> set[int]:
    return {
        batch.compression for path in (data / f"{topic}-0").glob("*.log") for _, batch in headers(path.read_bytes())
    }


# In short, each kind of topic with one library: what each library sends in each codec is read in test_log_clients.py.
@pytest.mark.parametrize(
    ("library", "kind"),
    [
        pytest.param(library, kind, marks=[] if (place + number) % 3 == 0 else [pytest.mark.slow])
        for place, library in enumerate(LIBRARIES)
        for number, kind in enumerate(sorted(CODECS))
    ],
    ids=lambda one: getattr(one, "name", one),
)
def test_a_topic_compresses_what_every_library_sends_and_all_of_them_read_it(
    server: LogProcess, library: Library, kind: str
) -> None:
    codecs = library.codecs[1:2]
    if library is CONFLUENT:  # in short, each codec for one kind of topic
        codecs = (library.codecs[(sorted(CODECS).index(kind) + 1) % len(library.codecs)],)
    recompress(server, library, kind, codecs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(CODECS))
def test_a_topic_compresses_every_codec_anew(server: LogProcess, kind: str) -> None:
    recompress(server, CONFLUENT, kind, CONFLUENT.codecs)


def recompress(server: LogProcess, library: Library, kind: str, codecs: Sequence[str]) -> None:
    for codec in codecs:
        topic = f"{kind}-{library.name}-{codec}-{uuid4()}"
        create(server.bootstrap, topic, compression_type=kind)
        library.send(server.bootstrap, topic, ITEMS, codec, -1)
        assert stored_codecs(server.data, topic) == {CODECS[kind]}
        for reader in LIBRARIES:
            if {"uncompressed": "none"}.get(kind, kind) in reader.codecs:
                assert reader.read(server.bootstrap, topic, len(ITEMS), None) == ITEMS, reader.name


@pytest.mark.parametrize("kind", ["gzip", "zstd", "uncompressed"])
def test_transactions_are_all_or_nothing_in_a_topic_that_recompresses(server: LogProcess, kind: str) -> None:
    topic = f"transactions-{kind}"
    create(server.bootstrap, topic, compression_type=kind)
    config = {"bootstrap.servers": server.bootstrap, "transactional.id": topic, "compression.type": "lz4"}
    producer = confluent_kafka.Producer(config)
    producer.init_transactions(SECONDS)
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for at in range(200):
            producer.produce(topic, f"{outcome} {at} {'x' * 300}", "key")
        producer.flush(SECONDS)
        producer.commit_transaction(SECONDS) if outcome == "commit" else producer.abort_transaction(SECONDS)
    read = CONFLUENT.read(server.bootstrap, topic, 400, None)
    assert [(item.value or b"").split()[:2] for item in read] == [[b"commit", b"%d" % at] for at in range(200)] * 2


def test_librdkafka_appends_to_lists_and_subtracts_from_them(server: LogProcess) -> None:
    create(server.bootstrap, "lists")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})

    def change(operation: AlterConfigOpType, value: str) -> str | None:
        entry = ConfigEntry("cleanup.policy", value, incremental_operation=operation)
        wanted = ConfigResource(ResourceType.TOPIC, "lists", incremental_configs=[entry])
        admin.incremental_alter_configs([wanted])[wanted].result(SECONDS)
        shown = ConfigResource(ResourceType.TOPIC, "lists")
        found: ConfigEntry = admin.describe_configs([shown])[shown].result(SECONDS)["cleanup.policy"]
        value_now: str | None = found.value
        return value_now

    assert change(AlterConfigOpType.APPEND, "compact") == "delete,compact"
    assert change(AlterConfigOpType.SUBTRACT, "delete") == "compact"
    assert change(AlterConfigOpType.SUBTRACT, "compact") in ("", None)
    assert change(AlterConfigOpType.SET, "delete") == "delete"


def test_librdkafka_changes_the_broker_and_it_takes_effect_and_stays(tmp_path: Path) -> None:
    with LogProcess(tmp_path) as server:
        create(server.bootstrap, "small")
        alter(server.bootstrap, ResourceType.BROKER, "1", "message.max.bytes", "5000")
        with pytest.raises(KafkaException) as failure:
            alter(server.bootstrap, ResourceType.BROKER, "1", "log.dirs", "elsewhere")
        assert failure.value.args[0].code() == KafkaError.INVALID_REQUEST
        assert too_large(server.bootstrap, "small", 6000)
        server.kill()
        server.start()
        assert too_large(server.bootstrap, "small", 6000)
        assert not too_large(server.bootstrap, "small", 3000)
        assert server.faults == []


def alter(log: str, kind: Any, name: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(kind, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": log})
    admin.incremental_alter_configs([wanted])[wanted].result(SECONDS)


def too_large(log: str, topic: str, size: int) -> bool:
    errors: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": log})
    producer.produce(topic, bytes(size), "k", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    return errors[0] is not None and errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_kafka_python_changes_the_settings_of_a_group(server: LogProcess) -> None:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=server.bootstrap)
    with closing(admin):
        kinds = kafka.admin.ConfigResourceType
        wanted = kafka.admin.ConfigResource(kinds.GROUP, "watchers", configs={"consumer.session.timeout.ms": "50000"})
        admin.alter_configs([wanted])
        found = admin.describe_configs([kafka.admin.ConfigResource(kinds.GROUP, "watchers")])
        assert "50000" in str(found)


def test_kafka_python_hears_which_record_has_no_key_and_that_the_others_were_not_tried(server: LogProcess) -> None:
    create(server.bootstrap, "keys-python", cleanup_policy="compact")
    producer = kafka.KafkaProducer(bootstrap_servers=server.bootstrap, linger_ms=300)
    with closing(producer):
        sent = [producer.send("keys-python", b"v", key, partition=0) for key in (b"a", None, b"b")]
        failures = []
        for one in sent:
            with pytest.raises(Exception) as failure:  # each has its own kind
                one.get(SECONDS)
            failures.append(str(failure.value))
    assert "without a key" in failures[1]
    assert [failures[0] == failures[2], failures[0] != failures[1]] == [True, True]


def test_librdkafka_hears_of_a_record_without_key(server: LogProcess) -> None:
    create(server.bootstrap, "keys-librdkafka", cleanup_policy="compact")
    errors: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 300})
    for key in ("a", None, "b"):
        producer.produce("keys-librdkafka", "v", key, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    codes = [error.code() for error in errors]
    assert codes[1] == KafkaError.INVALID_RECORD
    assert None not in codes
    producer.produce("keys-librdkafka", "v", "a", on_delivery=lambda error, message: errors.append((error, message)))
    producer.flush(SECONDS)
    assert errors[-1][1].offset() == 0


def test_aiokafka_hears_of_a_record_without_key(server: LogProcess) -> None:
    create(server.bootstrap, "keys-aiokafka", cleanup_policy="compact")

    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=server.bootstrap, linger_ms=300) as producer:
            with pytest.raises(aiokafka.errors.KafkaError):
                await producer.send_and_wait("keys-aiokafka", b"v")
            kept = await producer.send_and_wait("keys-aiokafka", b"v", b"k")
            assert kept.offset == 0

    asyncio.run(send())
