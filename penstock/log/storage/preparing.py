"""What is done to a client's batches before they are written: records are checked, and recompressed if the topic wants.

Most topics need nothing of that, and then no batch is opened. What is opened may be large: see `openers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.log.errors import ErrorCode, InvalidRecordsError
from penstock.log.storage.batches import HEADER_SIZE, Batch, Bytes, write_header
from penstock.log.storage.compression import Codec, compress, opened
from penstock.log.storage.held import OPENED_BYTES
from penstock.log.storage.records import raw_records
from penstock.log.storage.settings import LARGEST_LONG

if TYPE_CHECKING:
    from penstock.log.storage.partition import Rules

Batches = Sequence[tuple[int, Batch]]
_CODEC = 0x07
_NO_TIMESTAMP = -1
_MOST_MESSAGES = 100  # of the records that are wrong; of the others only the index is answered
_MOST_ERRORS = 100_000


def must_open(batches: Batches, rules: Rules, now: int) -> bool:
    """Say whether batches have to be opened before they are written."""
    if rules.compacted or _is_bounded(rules):
        return True
    codec = rules.codec
    if codec is not None and any(batch.compression != codec.number for _, batch in batches):
        return True
    return not rules.stamps_arrival and any(batch.max_timestamp - now > rules.after_ms for _, batch in batches)


def _is_bounded(rules: Rules) -> bool:
    # The header tells the largest timestamp, not the smallest.
    return rules.before_ms < LARGEST_LONG and not rules.stamps_arrival


def prepare(view: memoryview, batches: Batches, rules: Rules, now: int, where: str) -> bytearray:
    """Return the batches as the topic stores them; refuse all if the topic does not accept one of their records."""
    errors: list[tuple[int, ErrorCode, str]] = []
    out, index = bytearray(), 0
    for position, batch in batches:
        data = view[position : position + batch.size]
        with opened(batch.compression, data[HEADER_SIZE:]) as body, OPENED_BYTES.hold(len(body)):
            for code, at, why in _wrong_records(batch, body, rules, now, where):
                if len(errors) < _MOST_ERRORS:
                    errors.append((index + at, code, why))
            if not errors:
                out += _recompressed(data, batch, body, rules.codec)
        index += batch.record_count
    if errors:
        raise _refusal(errors)
    return out


def _wrong_records(
    batch: Batch, body: Bytes, rules: Rules, now: int, where: str
) -> Iterator[tuple[ErrorCode, int, str]]:
    timed = not rules.stamps_arrival and (_is_bounded(rules) or batch.max_timestamp - now > rules.after_ms)
    if not (timed or rules.compacted):
        return
    earliest, latest = now - rules.before_ms, now + rules.after_ms
    for at, (delta, _, start, _) in enumerate(raw_records(body, batch.record_count)):
        timestamp = batch.first_timestamp + delta
        # The length of a key is a zigzag varint: its lowest bit tells that it is negative, which is no key.
        if rules.compacted and body[start] & 1:
            yield ErrorCode.invalid_record, at, f"the compacted topic of {where} cannot accept a record without a key"
        elif timed and timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest:
            why = f"timestamp {timestamp} is out of range: {where} accepts {earliest} to {latest}"
            yield ErrorCode.invalid_timestamp, at, why


def _refusal(errors: list[tuple[int, ErrorCode, str]]) -> InvalidRecordsError:
    records = [(index, why if at < _MOST_MESSAGES else None) for at, (index, _, why) in enumerate(errors)]
    if any(code is ErrorCode.invalid_timestamp for _, code, _ in errors):
        return InvalidRecordsError(ErrorCode.invalid_timestamp, "records with invalid timestamps were sent", records)
    first = errors[0]
    message = f"{len(errors)} invalid records, so none of the batch was written; record {first[0]}: {first[2]}"
    return InvalidRecordsError(ErrorCode.invalid_record, message, records)


def _recompressed(data: memoryview, batch: Batch, body: Bytes, codec: Codec | None) -> memoryview | bytearray:
    if codec is None or codec.number == batch.compression:
        return data
    packed = bytearray(HEADER_SIZE)
    packed += compress(codec.number, body, codec.level)
    write_header(packed, batch._replace(attributes=batch.attributes & ~_CODEC | codec.number))
    return packed
