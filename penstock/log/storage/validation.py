"""Validation of a client's batches before they are written: records are checked, and recompressed if required.

Most topics require nothing of that, and then no batch is decompressed. Large batches are validated in a thread pool:
the batches of one partition by one thread, so that they are appended in the order in which they arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from penstock.kafka.batches import HEADER_SIZE, BatchHeader, Bytes, check_batches, headers, write_header
from penstock.kafka.compression import Codec, compress, decompressed
from penstock.kafka.records import raw_records
from penstock.log.configs.definition import LARGEST_LONG
from penstock.log.errors import ErrorCode, InvalidRecordsError
from penstock.log.storage.memory_usage import DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from penstock.log.network.limits import RequestMemory
    from penstock.log.storage.partition import LogConfig, Partition

Batches = Sequence[tuple[int, BatchHeader]]
_CODEC = 0x07
_NO_TIMESTAMP = -1
_MOST_MESSAGES = 100  # of invalid records; for further ones only the index is returned
MOST_ERRORS = 1000  # invalid records that are returned; those after them are not looked for
_THREADS = 2  # each may have one decompressed batch in memory
_SMALL = 16 << 10  # bytes of records that are validated faster than handed to a thread
_MOST_WAITING = 16 << 20  # bytes of queued requests, above which a client has to wait for its last reply
Then = Callable[["bytearray | None", "BaseException | None"], None]


def needs_validation(batches: Batches, config: LogConfig, now: int) -> bool:
    """Return whether batches have to be decompressed and validated before they are written."""
    if config.compacted or _is_bounded(config):
        return True
    codec = config.codec
    if codec is not None and any(batch.compression != codec.number for _, batch in batches):
        return True
    return not config.log_append_time and any(batch.max_timestamp - now > config.after_ms for _, batch in batches)


def _is_bounded(config: LogConfig) -> bool:
    # The header has the largest timestamp, not the smallest.
    return config.before_ms < LARGEST_LONG and not config.log_append_time


def validate(view: memoryview, batches: Batches, config: LogConfig, now: int, where: str) -> bytearray:
    """Return the batches as the topic stores them; refuse all if one record is invalid.

    Few bytes may hold millions of invalid records, so this ends at the first `MOST_ERRORS`.
    """
    errors: list[tuple[int, ErrorCode, str]] = []
    out, index = bytearray(), 0
    for position, batch in batches:
        data = view[position : position + batch.size]
        with decompressed(batch.compression, data[HEADER_SIZE:]) as body, DECOMPRESSED_BYTES.counted(len(body)):
            wrong = islice(_wrong_records(batch, body, config, now, where), MOST_ERRORS - len(errors))
            errors += [(index + at, code, why) for code, at, why in wrong]
            if not errors:
                out += _recompressed(data, batch, body, config.codec)
        if len(errors) == MOST_ERRORS:
            break
        index += batch.record_count
    if errors:
        raise _refusal(errors)
    return out


def _wrong_records(
    batch: BatchHeader, body: Bytes, config: LogConfig, now: int, where: str
) -> Iterator[tuple[ErrorCode, int, str]]:
    timed = not config.log_append_time and (_is_bounded(config) or batch.max_timestamp - now > config.after_ms)
    if not (timed or config.compacted):
        return
    earliest, latest = now - config.before_ms, now + config.after_ms
    for at, (delta, _, start, _) in enumerate(raw_records(body, batch.record_count)):
        timestamp = batch.first_timestamp + delta
        # The length of a key is a zigzag varint: its lowest bit is the sign, and a negative length means no key.
        if config.compacted and body[start] & 1:
            yield ErrorCode.invalid_record, at, f"the compacted topic of {where} cannot accept a record without a key"
        elif timed and timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest:
            why = f"timestamp {timestamp} is out of range: {where} accepts {earliest} to {latest}"
            yield ErrorCode.invalid_timestamp, at, why


def _refusal(errors: list[tuple[int, ErrorCode, str]]) -> InvalidRecordsError:
    records = [(index, why if at < _MOST_MESSAGES else None) for at, (index, _, why) in enumerate(errors)]
    if any(code is ErrorCode.invalid_timestamp for _, code, _ in errors):
        return InvalidRecordsError(ErrorCode.invalid_timestamp, "records with invalid timestamps were sent", records)
    first = errors[0]
    count = f"{len(errors)}{' or more' if len(errors) == MOST_ERRORS else ''}"
    message = f"{count} invalid records, so none of the batch was written; record {first[0]}: {first[2]}"
    return InvalidRecordsError(ErrorCode.invalid_record, message, records)


def _recompressed(data: memoryview, batch: BatchHeader, body: Bytes, codec: Codec | None) -> memoryview | bytearray:
    if codec is None or codec.number == batch.compression:
        return data
    packed = bytearray(HEADER_SIZE)
    packed += compress(codec.number, body, codec.level)
    write_header(packed, batch._replace(attributes=batch.attributes & ~_CODEC | codec.number))
    return packed


class ValidationPool:
    """Validates batches off the event loop. `memory` counts the queued batches as request memory."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self._threads = [ThreadPoolExecutor(1, f"penstock-log-validation-{number}") for number in range(_THREADS)]
        self.queued_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether clients should send no more until a batch was validated."""
        return self.queued_bytes > _MOST_WAITING

    def submit(self, partition: Partition, records: memoryview, now: int, then: Then) -> None:
        """Validate a copy of the records; call `then` on the loop, with the result or the error."""
        data = bytearray(records)
        where = f"{partition.topic}-{partition.index}"
        thread = self._threads[hash((partition.topic, partition.index)) % _THREADS]
        partition.validating += 1
        token = partial(_nothing, object())  # identifies this reservation
        self._reserve(token, len(data))
        done = partial(self._done, partition, token, len(data), then)
        loop = asyncio.get_running_loop()
        future = thread.submit(_prepared, data, partition.config, now, where)
        future.add_done_callback(lambda result: loop.call_soon_threadsafe(done, result))

    def _done(
        self, partition: Partition, token: Callable[[], None], size: int, then: Then, result: Future[bytearray]
    ) -> None:
        partition.validating -= 1
        self.queued_bytes -= size
        self._memory.reserve(token, 0)
        error = result.exception()
        then(None if error else result.result(), error)

    def _reserve(self, token: Callable[[], None], size: int) -> None:
        self.queued_bytes += size
        self._memory.reserve(token, size)

    def stop(self) -> None:
        """Stop the threads when they have finished."""
        for thread in self._threads:
            thread.shutdown()


def should_offload(partition: Partition, records: memoryview, now: int) -> bool:
    """Return whether validation may take long, or would overtake batches that are being validated."""
    if partition.validating:
        return True
    found = list(headers(records))
    if not needs_validation(found, partition.config, now):
        return False
    return len(records) > _SMALL or any(batch.compression for _, batch in found)


def _prepared(data: bytearray, config: LogConfig, now: int, where: str) -> bytearray:
    view = memoryview(data)
    batches = check_batches(view, config.max_message_bytes)
    return validate(view, batches, config, now, where) if needs_validation(batches, config, now) else data


def _nothing(_token: object) -> None:
    """Do nothing: a queued batch is not resumed."""
