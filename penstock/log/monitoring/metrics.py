"""Metrics in Prometheus' text format, and the HTTP server of /metrics.

Requests add to plain numbers; names and labels are added on each scrape. The server runs on the event loop of the log,
so that nothing changes while it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.errors import PortTaken
from penstock.log.monitoring.gauges import LogSizes, lags, memory_families
from penstock.observe.histogram import Histogram

if TYPE_CHECKING:
    from penstock.log.broker import Broker

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PATIENCE = 5.0
_MAX_HEAD = 8 * 1024
_PLAIN = "text/plain; charset=utf-8"


class Traffic:
    """The traffic of one topic."""

    __slots__ = ("bytes_in", "bytes_out", "records_in")

    def __init__(self) -> None:
        self.records_in = self.bytes_in = self.bytes_out = 0


class Metrics:
    """The counters of one server. Not thread-safe: used on the event loop only."""

    def __init__(self) -> None:
        self._topics: dict[str, Traffic] = {}
        self._produce, self._fetch, self._fsync = (Histogram(_SECONDS) for _ in range(3))
        self._active = self._accepted = self._failed_logins = 0
        self._sizes = LogSizes()
        self.produce_seconds = self._produce.add
        self.fetch_seconds = self._fetch.add
        self.fsync_seconds = self._fsync.add

    def produced(self, topic: str, records: int, size: int) -> None:
        """Count records that were appended, and their bytes."""
        traffic = self._topics.get(topic) or self._topics.setdefault(topic, Traffic())
        traffic.records_in += records
        traffic.bytes_in += size

    def fetched(self, topic: str, size: int) -> None:
        """Count bytes that were sent to a consumer; records are not counted, as batches are not decoded."""
        traffic = self._topics.get(topic) or self._topics.setdefault(topic, Traffic())
        traffic.bytes_out += size

    def connection_opened(self) -> None:
        """Count a connection that was accepted."""
        self._active += 1
        self._accepted += 1

    def connection_closed(self) -> None:
        """Count a connection that was closed."""
        self._active -= 1

    def login_failed(self) -> None:
        """Count a login that was refused."""
        self._failed_logins += 1

    def render(self, broker: Broker) -> bytes:
        """Return the current metrics as text."""
        return generate_latest(_Now([*self._counted(broker), *self._collected(broker), *memory_families(broker)]))

    def _counted(self, broker: Broker) -> Iterator[Metric]:
        # Remove deleted topics, or a client that creates and deletes topics would fill the memory.
        self._topics = {topic: each for topic, each in self._topics.items() if topic in broker.store.topics}
        yield from _traffic(self._topics)
        yield _histogram("penstock_log_produce_seconds", "Time to answer a produce request", self._produce)
        yield _histogram("penstock_log_fetch_seconds", "Time to answer a fetch request, waiting included", self._fetch)
        yield _histogram("penstock_log_fsync_seconds", "Time of one fsync", self._fsync)
        yield GaugeMetricFamily("penstock_log_connections_active", "Open connections", self._active)
        yield CounterMetricFamily("penstock_log_connections", "Connections accepted", self._accepted)
        yield CounterMetricFamily("penstock_log_failed_logins", "Logins refused", self._failed_logins)

    def _collected(self, broker: Broker) -> Iterator[Metric]:
        topics = broker.store.topics.values()
        yield GaugeMetricFamily("penstock_log_partitions", "Partitions", sum(each.partitions for each in topics))
        damaged = sum(len(segment.damaged) for each in broker.store.opened() for segment in each.segments)
        yield GaugeMetricFamily("penstock_log_damaged", "Damaged ranges in segments", damaged)
        sizes = self._sizes.by_topic(broker.store).items()
        yield _gauge("penstock_log_size_bytes", "Bytes on disk", ["topic"], (([topic], size) for topic, size in sizes))
        labels = ["group", "topic", "partition"]
        found = [([lag.group, lag.topic, str(lag.partition)], lag) for lag in lags(broker)]
        records = ((names, lag.records) for names, lag in found)
        seconds = ((names, lag.seconds) for names, lag in found)
        yield _gauge("penstock_log_consumer_lag_records", "Records that a group has not read", labels, records)
        yield _gauge("penstock_log_consumer_lag_seconds", "Age of the oldest unread record", labels, seconds)


class _Now(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _traffic(topics: dict[str, Traffic]) -> Iterator[Metric]:
    labels = ["topic", "direction"]
    messages = CounterMetricFamily("penstock_log_messages", "Records appended", labels=labels)
    sizes = CounterMetricFamily("penstock_log_bytes", "Bytes of record batches", labels=labels)
    for topic, traffic in topics.items():
        messages.add_metric([topic, "in"], traffic.records_in)
        sizes.add_metric([topic, "in"], traffic.bytes_in)
        sizes.add_metric([topic, "out"], traffic.bytes_out)
    yield from (messages, sizes)


def _histogram(name: str, text: str, durations: Histogram) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, text, buckets=durations.buckets, sum_value=durations.total)


def _gauge(name: str, text: str, labels: list[str], samples: Any) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


class MetricsServer:
    """Answers GET /metrics with the result of `render`, and anything else with an error."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; 0 chooses a free one."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_HEAD)
        except OSError as error:
            message = f"cannot serve metrics on {host}:{port}: {error.strerror}"
            raise PortTaken(message, hint="choose another: --metrics HOST:PORT") from None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.partition(b"\r\n")[0].split(b" ")))
                await writer.drain()
        writer.close()

    def _answer(self, request: list[bytes]) -> bytes:
        method, path = (*request, b"", b"")[:2]
        if path.partition(b"?")[0] != b"/metrics":
            return _response("404 Not Found", _PLAIN, b"metrics are at /metrics\n")
        if method != b"GET":
            return _response("405 Method Not Allowed", _PLAIN, b"metrics can be read with GET\n")
        return _response("200 OK", CONTENT_TYPE_LATEST, self._render())


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
