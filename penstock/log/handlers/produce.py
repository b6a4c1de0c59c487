"""Produce: check, append, and reply when the records are as durable as the sync policy requires."""

from __future__ import annotations

import logging
import time
from functools import partial
from itertools import groupby

from penstock.kafka.batches import HEADER_SIZE, MAGIC, BatchHeader, header_at
from penstock.kafka.compression import ZSTD
from penstock.log.configs.topic import refuse_internal
from penstock.log.errors import ErrorCode, InvalidRecordsError, LogError
from penstock.log.protocol.produce import Batches, ProduceRequest, Result, read_produce, write_produce
from penstock.log.request_context import Call
from penstock.log.security.quotas import PRODUCE
from penstock.log.storage.partition import Partition
from penstock.log.storage.validation import MOST_ERRORS, should_offload

log = logging.getLogger("penstock.log")
_ACKS = (-1, 0, 1)
_ABORTABLE = (
    11  # the first version with TRANSACTION_ABORTABLE: clients abort the transaction instead of closing the producer
)
_ZSTD_VERSION = 7  # the first version whose clients support zstd
_NOT_YET = Result(-1, ErrorCode.unknown_server_error)  # placeholder while the batches are being validated


class _Pending:
    """A request whose records are not yet durable on every partition.

    It keeps the records no longer than until they are appended: nothing limits how many requests wait for an fsync.
    The reply lists at most `MOST_ERRORS` invalid records, however many partitions the request has.
    """

    __slots__ = ("_began", "_call", "_invalid", "_open", "_request", "_results", "_size")

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self._call = call
        self._request = request
        self._results: list[Result] = []
        self._size = sum(len(batches.records or b"") for batches in request.batches)
        self._invalid = 0  # records listed in the results
        self._open = 1
        self._began = time.perf_counter()

    def serve(self) -> None:
        names = self._call.broker.store.topics.names
        for at, asked in enumerate(self._request.batches):
            batches = asked._replace(topic=names.get(asked.topic_id, "")) if asked.topic_id else asked
            try:
                self._results.append(self._take(at, batches))
            except LogError as error:
                self._results.append(self._refused(batches, error))
            self._request.batches[at] = asked._replace(records=None)
        self._close()

    def _take(self, at: int, batches: Batches) -> Result:
        call, records = self._call, batches.records
        _check(call, self._request, batches)
        _check_codec(call, records)
        partition = call.broker.store.partition(batches.topic, batches.partition)
        if not records:
            raise LogError(
                ErrorCode.invalid_record, "a produce request needs a record batch for each of its partitions"
            )
        now = call.broker.clock()
        if not should_offload(partition, records, now):
            return self._append(at, partition, batches)
        self._open += 1
        then = partial(self._on_validated, at, partition, batches._replace(records=None))
        call.broker.validation_pool.submit(partition, records, now, then)
        if call.broker.validation_pool.is_full:
            call.connection.serve_alone()
        return _NOT_YET

    def _on_validated(
        self, at: int, partition: Partition, batches: Batches, data: bytearray | None, error: BaseException | None
    ) -> None:
        try:
            if error is not None:
                raise error
            ready = batches._replace(records=memoryview(data or b""))
            # In the meantime the topic may be deleted, the transaction ended, the producer fenced.
            _check(self._call, self._request, ready)
            if self._call.broker.store.partition(batches.topic, batches.partition) is not partition:
                raise LogError(ErrorCode.unknown_topic_or_partition, f"topic {batches.topic!r} was deleted")
            self._results[at] = self._append(at, partition, ready, prepared=True)
        except LogError as failure:
            self._results[at] = self._refused(batches, failure)
        except Exception:  # any bug in validation is an error reply: the client would wait forever for a missing one
            log.exception("records for %s-%d could not be validated", batches.topic, batches.partition)
            self._results[at] = Result(batches.partition, ErrorCode.unknown_server_error)
        self._close()

    def _append(self, at: int, partition: Partition, batches: Batches, *, prepared: bool = False) -> Result:
        call, records = self._call, batches.records
        assert records is not None  # checked by the caller
        before = partition.end
        appended = call.broker.append(partition, records, prepared=prepared)
        call.broker.metrics.produced(batches.topic, partition.end - before, len(records))
        self._open += 1
        call.broker.when_durable(partition, partial(self._on_durable, at))
        return Result(
            batches.partition, ErrorCode.none, appended.base_offset, appended.append_time, partition.log_start
        )

    def _refused(self, batches: Batches, error: LogError) -> Result:
        records = error.records[: MOST_ERRORS - self._invalid] if isinstance(error, InvalidRecordsError) else ()
        self._invalid += len(records)
        return Result(batches.partition, error.code, message=error.message, records=records)

    def _on_durable(self, at: int, error: OSError | None) -> None:
        if error is not None:
            partition = self._request.batches[at].partition
            message = f"cannot sync: {error.strerror}"
            self._results[at] = Result(partition, ErrorCode.kafka_storage_error, message=message)
        self._close()

    def _close(self) -> None:
        self._open -= 1
        if not self._open:
            self._answer()

    def _answer(self) -> None:
        call = self._call
        throttle = call.broker.security.quotas.charge(PRODUCE, call.principal, call.client_id, self._size)
        call.broker.metrics.produce_seconds(time.perf_counter() - self._began)
        if self._request.acks:
            topics = [batches.named for batches in self._request.batches]
            both = groupby(zip(topics, self._results, strict=True), key=lambda pair: pair[0])
            results = [(topic, [result for _, result in pairs]) for topic, pairs in both]
            call.reply([write_produce(call.version, results, throttle)])
        else:
            self._answer_nothing()
        call.connection.mute(throttle)

    def _answer_nothing(self) -> None:
        # acks=0 has no reply: closing the connection is the only way to report that records were refused.
        self._call.reply([])
        if any(result.code is not ErrorCode.none for result in self._results):
            self._call.connection.close()


def produce(call: Call, frame: memoryview, at: int) -> None:
    """Append the batches of a request."""
    request = read_produce(call.version, frame, at)
    _Pending(call, request).serve()


def _check(call: Call, request: ProduceRequest, batches: Batches) -> None:
    if request.acks not in _ACKS:
        raise LogError(ErrorCode.invalid_required_acks, f"acks={request.acks}")
    if batches.topic_id and not batches.topic:
        raise LogError(ErrorCode.unknown_topic_id, "unknown topic id")
    if not call.allowed("WRITE", "TOPIC", batches.topic):
        raise LogError(ErrorCode.topic_authorization_failed)
    refuse_internal(batches.topic, "produce to")
    call.broker.store.topic(batches.topic)
    if batches.records:
        _check_batch(call, request.transactional_id, batches.topic, batches.partition, batches.records)


def _check_batch(call: Call, transactional_id: str | None, topic: str, partition: int, records: memoryview) -> None:
    if transactional_id is not None and not call.allowed("WRITE", "TRANSACTIONAL_ID", transactional_id):
        raise LogError(ErrorCode.transactional_id_authorization_failed)
    head = _first_header(records)
    if head is None or head.magic != MAGIC or not head.is_transactional:
        return  # invalid batches are refused by the append
    if transactional_id is None:
        # As in Kafka; without the id the transaction would never end.
        raise LogError(ErrorCode.transactional_id_authorization_failed, "a transactional batch without the id")
    code = call.broker.transactions.verify(transactional_id, head.producer_id, head.producer_epoch, topic, partition)
    if code is ErrorCode.invalid_txn_state and call.version >= _ABORTABLE:
        code = ErrorCode.transaction_abortable
    if code is not None:
        raise LogError(code)


def _check_codec(call: Call, records: memoryview | None) -> None:
    # Of what the client sent: the topic may store it in a codec that the client does not know.
    head = _first_header(records) if records else None
    if head is not None and head.compression == ZSTD and call.version < _ZSTD_VERSION:
        message = f"zstd needs version {_ZSTD_VERSION} of the request, this one has {call.version}"
        raise LogError(ErrorCode.unsupported_compression_type, message)


def _first_header(records: memoryview) -> BatchHeader | None:
    return header_at(records) if len(records) >= HEADER_SIZE else None
