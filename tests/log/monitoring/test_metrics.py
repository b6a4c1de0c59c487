"""Metrics, read as Prometheus reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import PortTaken
from penstock.kafka.records import Record, build_batch
from penstock.log.broker import Broker
from penstock.log.groups.formats import Committed, OffsetKey
from penstock.log.monitoring.metrics import MetricsServer
from tests.promtool import complaints

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path, sync="none", clock=lambda: 1_000_000)
    yield broker
    broker.store.close()


def read(broker: Broker) -> Samples:
    families = text_string_to_metric_families(broker.metrics.render(broker).decode())
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"penstock_log_{name}", tuple(sorted(labels.items()))))


def write(broker: Broker, topic: str, *times: int) -> None:
    partition = broker.store.partition(topic, 0)
    for time in times:
        broker.append(partition, build_batch([Record(b"k", b"v", timestamp=time)]))
    broker.when_durable(partition, lambda _: None)


def test_traffic_is_counted_by_topic_and_direction(broker: Broker) -> None:
    broker.store.create_topic("orders", 1, {})
    broker.metrics.produced("orders", 10, 2000)
    broker.metrics.produced("orders", 5, 1000)
    broker.metrics.fetched("orders", 700)
    samples = read(broker)
    assert value(samples, "messages_total", topic="orders", direction="in") == 15
    assert value(samples, "bytes_total", topic="orders", direction="in") == 3000
    assert value(samples, "bytes_total", topic="orders", direction="out") == 700


def test_promtool_finds_nothing_wrong_with_the_page(broker: Broker) -> None:
    broker.store.create_topic("orders", 1, {})
    broker.metrics.produced("orders", 10, 2000)
    write(broker, "orders", 1, 2)
    assert complaints(broker.metrics.render(broker)) == ""


def test_a_deleted_topic_is_not_remembered(broker: Broker) -> None:
    broker.metrics.produced("gone", 10, 2000)
    assert value(read(broker), "messages_total", topic="gone", direction="in") is None


def test_times_fall_into_the_buckets_that_hold_them(broker: Broker) -> None:
    for seconds in (0.0005, 0.002, 0.3, 100.0):
        broker.metrics.produce_seconds(seconds)
    broker.metrics.fsync_seconds(0.01)
    samples = read(broker)
    assert value(samples, "produce_seconds_bucket", le="0.0005") == 1
    assert value(samples, "produce_seconds_bucket", le="0.0025") == 2
    assert value(samples, "produce_seconds_bucket", le="10.0") == 3
    assert value(samples, "produce_seconds_bucket", le="+Inf") == value(samples, "produce_seconds_count") == 4
    assert value(samples, "produce_seconds_sum") == pytest.approx(100.3025)
    assert value(samples, "fsync_seconds_count") == 1
    assert value(samples, "fetch_seconds_count") == 0


def test_connections_are_counted_open_and_in_all(broker: Broker) -> None:
    for change in ("opened", "opened", "closed"):
        getattr(broker.metrics, f"connection_{change}")()
    samples = read(broker)
    assert value(samples, "connections_active") == 1
    assert value(samples, "connections_total") == 2


def test_lag_is_what_a_group_has_not_read_and_how_old_that_is(broker: Broker) -> None:
    broker.store.create_topic("orders", 1, {})
    write(broker, "orders", 900_000, 940_000, 980_000)
    table = broker.groups.offsets
    for group, offset in [("behind", 1), ("done", 3), ("before", 0)]:
        table.commit(OffsetKey(group, "orders", 0), Committed(offset))
    table.commit(OffsetKey("behind", "gone", 0), Committed(7))
    samples = read(broker)
    lags = {
        group: tuple(
            value(samples, f"consumer_lag_{unit}", group=group, topic="orders", partition="0")
            for unit in ("records", "seconds")
        )
        for group in ("behind", "done", "before")
    }
    assert lags == {"behind": (2, 60), "done": (0, 0), "before": (3, 100)}


def test_sizes_are_known_without_opening_a_partition(tmp_path: Path, broker: Broker) -> None:
    broker.store.create_topic("orders", 3, {})
    broker.store.create_topic("empty", 2, {})
    write(broker, "orders", 900_000, 940_000)
    size = broker.store.partition("orders", 0).size
    samples = read(broker)
    assert size > 0
    assert value(samples, "size_bytes", topic="orders") == size
    assert value(samples, "size_bytes", topic="empty") == 0
    assert value(samples, "partitions") == 5
    assert len(broker.store.opened()) == 1
    broker.store.close()
    again = Broker(tmp_path, sync="none")
    broker.store = again.store
    assert value(read(again), "size_bytes", topic="orders") == size
    assert again.store.opened() == []


def ask(request: bytes) -> tuple[str, str]:
    async def scenario() -> bytes:
        server = MetricsServer(lambda: b"penstock_log_partitions 3\n")
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await server.stop()
        return answer

    head, _, body = asyncio.run(scenario()).decode().partition("\r\n\r\n")
    return head.splitlines()[0], body


def test_metrics_are_served_over_http() -> None:
    assert ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") == ("HTTP/1.1 200 OK", "penstock_log_partitions 3\n")


def test_anything_else_is_refused() -> None:
    assert ask(b"GET /secret HTTP/1.1\r\n\r\n")[0] == "HTTP/1.1 404 Not Found"
    assert ask(b"POST /metrics HTTP/1.1\r\n\r\n")[0] == "HTTP/1.1 405 Method Not Allowed"
    assert ask(b"\r\n\r\n")[0] == "HTTP/1.1 404 Not Found"


def test_a_port_that_is_taken_is_named() -> None:
    async def scenario() -> None:
        first, second = MetricsServer(bytes), MetricsServer(bytes)
        port = await first.start("127.0.0.1", 0)
        try:
            await second.start("127.0.0.1", port)
        finally:
            await first.stop()

    with pytest.raises(PortTaken, match="cannot serve metrics"):
        asyncio.run(scenario())
