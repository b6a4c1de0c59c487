"""librdkafka in a process of its own, the same against every broker: `python -m benchmarks.log_client CASE ARGUMENTS`.

Arguments are JSON, and so is the answer, on the last line. Its defaults are kept but for those that a case names.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

WAIT_SECONDS = 60
BATCH = 10_000
# A record of the latency case begins with its number and when it was sent.
STAMP = struct.Struct(">qq")
Answer = dict[str, Any]


def produce(bootstrap: str, topic: str, partitions: int, records: int, size: int) -> Answer:
    """Send records of one size, spread evenly; the clock stops when all are acknowledged."""
    payload = bytes(size)
    producer = _producer(bootstrap, topic)
    started = time.perf_counter()
    _send(producer, topic, zip(repeat(payload, records), cycle(range(partitions))))
    return {"seconds": time.perf_counter() - started, "records": _stored(bootstrap, topic, partitions)}


def produce_lines(bootstrap: str, topic: str, partitions: int, folder: str) -> Answer:
    """Send every line of every file."""
    lines = (line.rstrip(b"\n") for file in sorted(Path(folder).iterdir()) for line in file.open("rb"))
    started = time.perf_counter()
    _send(_producer(bootstrap, topic), topic, zip(lines, cycle(range(partitions))))
    return {"seconds": time.perf_counter() - started, "records": _stored(bootstrap, topic, partitions)}


def consume(bootstrap: str, topic: str, partitions: int, records: int) -> Answer:
    """Read all records from the beginning."""
    consumer = _consumer(bootstrap, topic)
    started = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    count = size = 0
    while count < records:
        # It waits until it has all that was asked for.
        batch = _some(consumer.consume(min(BATCH, records - count), WAIT_SECONDS))
        count += len(batch)
        size += sum(map(len, batch))
    seconds = time.perf_counter() - started
    consumer.close()
    return {"seconds": seconds, "records": count, "bytes": size}


def latency(bootstrap: str, topic: str, rate: int, records: int, size: int) -> Answer:
    """Receive what another process sends at a steady rate; return each record's way in milliseconds."""
    consumer = _consumer(bootstrap, topic)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    consumer.poll(1)  # from here on its fetch waits at the broker
    arguments = {"bootstrap": bootstrap, "topic": topic, "rate": rate, "records": records, "size": size}
    command = [sys.executable, "-m", "benchmarks.log_client", "send", json.dumps(arguments)]
    sender = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # this process answers for both
    numbers, ways = [], []
    try:
        for message in _each(consumer, records):
            number, sent = STAMP.unpack_from(message.value())
            ways.append((time.monotonic_ns() - sent) / 1e6)
            numbers.append(number)
    finally:
        sender.terminate()
        sender.wait()
        consumer.close()
    return {"milliseconds": ways, "in_order": numbers == list(range(records))}


def send(bootstrap: str, topic: str, rate: int, records: int, size: int) -> Answer:
    """Send records at a steady rate, each at once."""
    producer = _producer(bootstrap, topic, {"linger.ms": 0})
    padding = bytes(size - STAMP.size)
    started = time.monotonic()
    for number in range(records):
        time.sleep(max(0.0, started + number / rate - time.monotonic()))
        producer.produce(topic, STAMP.pack(number, time.monotonic_ns()) + padding, partition=0)
        producer.poll(0)
    producer.flush(WAIT_SECONDS)
    return {}


def _producer(bootstrap: str, topic: str, options: dict[str, Any] | None = None) -> Producer:
    durable = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
    producer = Producer(durable | (options or {}))
    producer.list_topics(topic, timeout=WAIT_SECONDS)  # connects, which is not what is timed
    return producer


def _consumer(bootstrap: str, topic: str) -> Consumer:
    # With its default queue the client pauses for a second whenever 64 MB wait for it, and would measure that.
    queue = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_048_576}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **queue})
    consumer.list_topics(topic, timeout=WAIT_SECONDS)
    return consumer


def _send(producer: Producer, topic: str, payloads: Iterable[tuple[bytes, int]]) -> None:
    give = producer.produce
    for payload, partition in payloads:
        while True:
            try:
                give(topic, payload, partition=partition)
                break
            except BufferError:  # the client's queue is full
                producer.poll(0.01)
    if left := producer.flush(10 * WAIT_SECONDS):
        raise SystemExit(f"{left} records were not acknowledged")


def _stored(bootstrap: str, topic: str, partitions: int) -> int:
    consumer = _consumer(bootstrap, topic)
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, number)) for number in range(partitions)]
    consumer.close()
    return sum(high - low for low, high in ends)


def _each(consumer: Consumer, records: int) -> Iterator[Message]:
    for _ in range(records):
        message = consumer.poll(WAIT_SECONDS)
        yield from _some([message] if message else [])


def _some(batch: list[Message]) -> list[Message]:
    if not batch:
        raise SystemExit(f"no record came within {WAIT_SECONDS} s")
    if error := batch[0].error():
        raise SystemExit(str(error))
    return batch


CASES: dict[str, Callable[..., Answer]] = {
    "produce": produce,
    "produce_lines": produce_lines,
    "consume": consume,
    "latency": latency,
    "send": send,
}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]](**json.loads(sys.argv[2]))), flush=True)
