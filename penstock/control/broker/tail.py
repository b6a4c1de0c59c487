"""New records of a topic as they are written, with librdkafka (loaded with this module)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from penstock.control.api.topics import Message, TailQuery
from penstock.control.broker.client import KafkaClient
from penstock.control.broker.messages import consumer, is_wanted, message_of
from penstock.control.broker.positions import start_offsets
from penstock.errors import RequestRefused

# Each holds a client with threads of its own.
MOST_TAILS = 16
_FETCHED = 2_000
_free = threading.BoundedSemaphore(MOST_TAILS)


class Tail:
    """Records from now on, at most so many per second; those beyond are counted."""

    def __init__(
        self, client: KafkaClient, topic: str, query: TailQuery, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._topic, self._query, self._clock = client, topic, query, clock
        self._second, self._left = -1, 0
        partitions = client.partitions(topic, query.partition)
        starts = start_offsets(client, topic, partitions, to="end")
        if not _free.acquire(blocking=False):
            message = f"{MOST_TAILS} streams of messages are open already"
            raise RequestRefused(message, hint="close one of them, such as a page that is left open")
        try:
            self._consumer = consumer(client, topic, starts)
        except BaseException:
            _free.release()
            raise

    def poll(self, seconds: float) -> tuple[list[Message], int]:
        """Wait for records; return those to show, and how many others there were beyond the rate."""
        found: list[Message] = []
        missed = 0
        with self._client.translated(f"topic '{self._topic}'"):
            for record in self._consumer.consume(_FETCHED, seconds):
                error = record.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                        raise KafkaException(error)
                elif is_wanted(record, self._query):
                    if self._take():
                        found.append(message_of(record))
                    else:
                        missed += 1
        return found, missed

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
        _free.release()

    def _take(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._left = second, self._query.rate
        self._left -= 1
        return self._left >= 0
