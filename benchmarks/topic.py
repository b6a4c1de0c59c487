"""The trades as a topic of Penstock's own log, line by line; last, in each partition, the row that closes windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.data import Trades
from benchmarks.peers.penstock_log import PenstockServer
from benchmarks.peers.protocol import TOPIC

PARTITIONS = 2
WAIT_SECONDS = 60
# Of each partition the same number, so that an epoch takes as much of each.
CHUNK = 50_000 * PARTITIONS


@contextmanager
def filled(trades: Trades) -> Iterator[str]:
    """Run a log with the trades in it, as long as the block lasts; give its address."""
    with PenstockServer(parent=trades.folder) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        _produce(server.bootstrap, trades)
        stored = _stored(server.bootstrap)
        if stored != trades.events + PARTITIONS:
            raise SystemExit(f"the topic holds {stored} records instead of {trades.events + PARTITIONS}")
        yield server.bootstrap


def _produce(bootstrap: str, trades: Trades) -> None:
    room = {"queue.buffering.max.messages": 2 * CHUNK, "queue.buffering.max.kbytes": 1_048_576}
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", **room})
    lines = _lines(trades.input, trades.format)
    while chunk := list(islice(lines, CHUNK)):
        _send(producer, *(chunk[partition::PARTITIONS] for partition in range(PARTITIONS)))
    # The slowest partition decides when a window closes.
    _send(producer, *[list(_lines(trades.closing, trades.format))] * PARTITIONS)


def _send(producer: Producer, *by_partition: list[bytes]) -> None:
    for partition, lines in enumerate(by_partition):
        producer.produce_batch(TOPIC, [{"value": line} for line in lines], partition=partition)
    producer.flush(WAIT_SECONDS)


def _lines(folder: Path, format: str) -> Iterator[bytes]:
    header = 1 if format == "csv" else 0
    for path in sorted(folder.iterdir()):
        with path.open("rb") as lines:
            yield from (line.rstrip(b"\n") for line in islice(lines, header, None))


def _stored(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    ends = [consumer.get_watermark_offsets(TopicPartition(TOPIC, number)) for number in range(PARTITIONS)]
    consumer.close()
    return sum(high - low for low, high in ends)
