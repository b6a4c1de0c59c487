"""Real brokers for tests: Apache Kafka itself, fetched when it is not on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.errors import MissingPart


def require_kafka() -> None:
    """Skip the test where Apache Kafka is not to be had."""
    from benchmarks.peers.kafka import install

    try:
        install()
    except MissingPart as error:
        pytest.skip(f"Apache Kafka is not on this machine and cannot be fetched: {error}")


@contextmanager
def running_kafka() -> Iterator[str]:
    """Run Apache Kafka, one node, and give its address."""
    from benchmarks.peers.kafka import KafkaServer

    require_kafka()
    with KafkaServer() as server:
        yield server.bootstrap
