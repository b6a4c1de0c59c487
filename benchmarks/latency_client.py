"""The client of the latency bench, librdkafka in a process of its own: `python -m benchmarks.latency_client ARGUMENTS`.

It sends records at a steady rate to one topic and receives what a system makes of them from another. A record counts
from its send until the first result that contains it: its own row, or its key's count once that has reached it.
Arguments are JSON, and so is the answer, on the last line.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

KEYS = 100
WAIT_SECONDS = 120
POLL_SECONDS = 0.1


@dataclass
class Ways:
    """When each record was sent and when its result came, in seconds by one clock."""

    sent: list[float] = field(default_factory=list)
    came: dict[int, float] = field(default_factory=dict)
    counted: dict[int, int] = field(default_factory=dict)

    def receive(self, row: dict[str, Any], now: float) -> None:
        """Note a result: of one record, or of all that a key has had so far."""
        if "times" not in row:
            self.came.setdefault(int(row["n"]), now)
            return
        key = int(row["k"])
        for place in range(self.counted.get(key, 0), row["times"]):
            self.came[place * KEYS + key] = now
        self.counted[key] = max(self.counted.get(key, 0), row["times"])

    def milliseconds(self, since: float) -> list[float]:
        """Return the way of each record that was sent after a time."""
        return [(self.came[n] - sent) * 1000 for n, sent in enumerate(self.sent) if sent >= since and n in self.came]

    @property
    def complete(self) -> bool:
        """Whether every record has come through, and nothing that was never sent."""
        return len(self.came) == len(self.sent)


class Client:
    """Sends and receives, each in a thread."""

    def __init__(self, bootstrap: str, source: str, target: str, rate: int) -> None:
        self.ways = Ways()
        self._source, self._rate = source, rate
        self._sent_all = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
        parts = self._consumer.list_topics(target, timeout=WAIT_SECONDS).topics[target].partitions
        self._consumer.assign([TopicPartition(target, number, OFFSET_BEGINNING) for number in parts])

    def run(self, warm_up: float, seconds: float) -> dict[str, Any]:
        """Send until the first result came and both times are over; return the ways of what was sent in the second."""
        sender = threading.Thread(target=self._send, daemon=True)
        sender.start()
        first = self._receive_until(lambda: bool(self.ways.came), WAIT_SECONDS)
        if not first:
            raise SystemExit(f"no result came within {WAIT_SECONDS} s")
        since = time.monotonic() + warm_up
        self._receive_until(lambda: time.monotonic() > since + seconds, warm_up + seconds + WAIT_SECONDS)
        self._sent_all.set()
        sender.join()
        self._receive_until(lambda: self.ways.complete, WAIT_SECONDS)
        self._consumer.close()
        return {"milliseconds": self.ways.milliseconds(since), "complete": self.ways.complete}

    def _send(self) -> None:
        started = time.monotonic()
        while not self._sent_all.is_set():
            number = len(self.ways.sent)
            time.sleep(max(0.0, started + number / self._rate - time.monotonic()))
            self.ways.sent.append(time.monotonic())
            self._producer.produce(self._source, _record(number))
            self._producer.poll(0)
        self._producer.flush(WAIT_SECONDS)

    def _receive_until(self, done: Any, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            message = self._consumer.poll(POLL_SECONDS)
            if message is not None and not message.error():
                self.ways.receive(json.loads(message.value()), time.monotonic())
        return bool(done())


def _record(number: int) -> bytes:
    return b'{"k": "%d", "n": %d, "v": %d.5}' % (number % KEYS, number, number % 1000)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    client = Client(given["bootstrap"], given["source"], given["target"], given["rate"])
    print(json.dumps(client.run(given["warm_up"], given["seconds"])), flush=True)
