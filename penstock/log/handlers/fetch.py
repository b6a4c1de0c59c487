"""Fetch: reply with the available records, or wait for min_bytes or the timeout (long poll)."""

from __future__ import annotations

import logging
import time
from itertools import groupby

from penstock.kafka.compression import ZSTD
from penstock.log.broker import Timer
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.fetch import TOPIC_IDS, FetchRequest, Served, Wanted, read_fetch, write_fetch
from penstock.log.request_context import Call
from penstock.log.security.quotas import FETCH
from penstock.log.storage.partition import Partition

log = logging.getLogger("penstock.log")
_ZSTD_VERSION = 10  # the first version whose clients support zstd
_MOST = 50 << 20  # bytes of one reply, whatever the client allows


class _LongPoll:
    """A request that is answered once: now, when enough records are available, or at its timeout."""

    __slots__ = ("_began", "_call", "_partitions", "_request", "_timer")

    def __init__(self, call: Call, request: FetchRequest) -> None:
        self._call = call
        self._request = request
        self._timer: Timer | None = None
        self._partitions: list[Partition] = []
        self._began = time.perf_counter()

    def serve(self) -> None:
        served, size, urgent = self._look()
        if urgent or size >= self._request.min_bytes or self._request.max_wait_ms <= 0:
            self._answer(served, size)
        else:
            self._wait()

    def _look(self) -> tuple[list[Served], int, bool]:
        left = min(self._request.max_bytes, _MOST)
        served, size = [], 0
        for wanted in self._request.wanted:
            one = _serve(self._call, wanted, self._request, left, at_least_one=size == 0)
            if one.records is not None:
                size += one.records.size
                left = max(left - one.records.size, 0)
            served.append(one)
        return served, size, any(one.code is not ErrorCode.none for one in served)

    def _wait(self) -> None:
        broker = self._call.broker
        self._partitions = [broker.store.partition(one.topic, one.partition) for one in self._request.wanted]
        for partition in self._partitions:
            partition.waiters.add(self._wake)
        self._timer = broker.call_later(self._request.max_wait_ms / 1000, self._time_up)
        self._call.connection.cancel_long_poll = self._forget

    def _wake(self) -> None:
        served, size, urgent = self._look()
        if urgent or size >= self._request.min_bytes:
            self._forget()
            self._answer(served, size)

    def _time_up(self) -> None:
        self._forget()
        served, size, _ = self._look()
        self._answer(served, size)

    def _forget(self) -> None:
        for partition in self._partitions:
            partition.waiters.discard(self._wake)
        if self._timer is not None:
            self._timer.cancel()
        self._call.connection.cancel_long_poll = None

    def _answer(self, served: list[Served], size: int) -> None:
        call = self._call
        throttle = call.broker.security.quotas.charge(FETCH, call.principal, call.client_id, size)
        both = groupby(zip(self._request.wanted, served, strict=True), key=lambda pair: pair[0].named)
        grouped = [(named, list(pairs)) for named, pairs in both]
        for _, pairs in grouped:
            size_of_topic = sum(one.records.size for _, one in pairs if one.records is not None)
            call.broker.metrics.fetched(pairs[0][0].topic, size_of_topic)
        if not self._partitions:
            call.broker.metrics.fetch_seconds(time.perf_counter() - self._began)
        topics = [(named, [one for _, one in pairs]) for named, pairs in grouped]
        call.reply(write_fetch(call.version, topics, throttle))
        call.connection.mute(throttle)


def fetch(call: Call, frame: memoryview, at: int) -> None:
    """Read from partitions."""
    request = read_fetch(call.version, frame, at)
    if request.session_id != 0 and request.session_epoch > 0:
        # There are no fetch sessions, so this one is from another broker: the client starts over with a full request.
        call.reply(write_fetch(call.version, [], 0, ErrorCode.fetch_session_id_not_found))
        return
    if call.version >= TOPIC_IDS:
        names = call.broker.store.topics.names
        request.wanted[:] = [one._replace(topic=names.get(one.topic_id, "")) for one in request.wanted]
    # As in Kafka the last entry of a partition counts: others would repeat its list of aborted transactions.
    request.wanted[:] = {(one.named, one.partition): one for one in request.wanted}.values()
    _LongPoll(call, request).serve()


def _serve(call: Call, wanted: Wanted, request: FetchRequest, left: int, *, at_least_one: bool) -> Served:
    try:
        return _read(_partition(call, wanted), wanted, request, left, at_least_one)
    except LogError as error:
        return Served(wanted.partition, error.code)
    except OSError:
        log.exception("%s-%d cannot be read", wanted.topic, wanted.partition)
        return Served(wanted.partition, ErrorCode.kafka_storage_error)


def _partition(call: Call, wanted: Wanted) -> Partition:
    if wanted.topic_id and not wanted.topic:
        raise LogError(ErrorCode.unknown_topic_id)
    if not call.allowed("READ", "TOPIC", wanted.topic):
        raise LogError(ErrorCode.topic_authorization_failed)
    partition = call.broker.store.partition(wanted.topic, wanted.partition)
    codec = partition.config.codec
    if call.version < _ZSTD_VERSION and codec is not None and codec.number == ZSTD:
        raise LogError(ErrorCode.unsupported_compression_type)
    if wanted.leader_epoch > partition.leader_epoch:
        raise LogError(ErrorCode.unknown_leader_epoch)
    if 0 <= wanted.leader_epoch < partition.leader_epoch:
        raise LogError(ErrorCode.fenced_leader_epoch)
    return partition


def _read(partition: Partition, wanted: Wanted, request: FetchRequest, left: int, at_least_one: bool) -> Served:
    limit = partition.last_stable_offset if request.committed else partition.high_watermark
    records = partition.read(wanted.offset, min(wanted.max_bytes, left), limit=limit, at_least_one=at_least_one)
    aborted = None
    if request.committed:
        end = min(limit, records.end) if records is not None else wanted.offset
        aborted = [(entry.producer_id, entry.first) for entry in partition.aborted_between(wanted.offset, end)]
    return Served(
        wanted.partition,
        ErrorCode.none,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start,
        aborted,
        records,
    )
