"""Partitions to play with: small segments, batches of any shape, and what a reader finds in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.kafka.batches import HEADER_SIZE, BatchHeader, header_at, headers, write_header
from penstock.kafka.compression import compress
from penstock.kafka.records import ABORT, COMMIT, Record, build_batch, build_control_batch, decode_batch
from penstock.log.storage.partition import LogConfig, Partition
from penstock.log.storage.partition_recovery import open_partition
from penstock.log.storage.segments.files import FilePool
from penstock.log.storage.time_search import first_record, next_candidates

_MEMORY = Path("/dev/shm")
NOW = 1_700_000_000_000
TRANSACTIONAL = 0x10


def quick_folder() -> TemporaryDirectory[str]:
    """A folder in memory where there is one: these tests sync thousands of times."""
    return TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)


def opened(folder: Path, segment_bytes: int = 1 << 20, **rules: object) -> Partition:
    """Open a partition in a folder of its own."""
    return open_partition("t", 0, folder, FilePool(16), LogConfig(segment_bytes=segment_bytes, **rules))  # type: ignore[arg-type]


def copied(partition: Partition, to: Path) -> Path:
    """Return the folder as a crash would leave it now."""
    shutil.copytree(partition.folder, to)
    return to


def plain(count: int = 1, size: int = 10, timestamp: int = NOW, *, mark: int = 0) -> bytearray:
    """A batch of records that are alike."""
    value = bytes([mark % 256]) * size
    return build_batch([Record(b"k%d" % at, value, timestamp=timestamp + at) for at in range(count)])


def keyed(pairs: Iterable[tuple[str, str | None]], timestamp: int = NOW, codec: int = 0, **fields: int) -> bytearray:
    """A batch of keys and values; None is a tombstone."""
    records = [
        Record(key.encode(), None if value is None else value.encode(), timestamp=timestamp) for key, value in pairs
    ]
    data = build_batch(records, attributes=fields.pop("attributes", 0) | codec, **fields)
    return repacked(data, codec) if codec else data


def repacked(data: bytearray, codec: int) -> bytearray:
    """The same batch, compressed."""
    packed = bytearray(HEADER_SIZE) + compress(codec, bytes(data[HEADER_SIZE:]))
    write_header(packed, header_at(data))
    return packed


def marker(outcome: int, producer_id: int, epoch: int = 0) -> bytearray:
    """The end of a transaction."""
    return build_control_batch(outcome, producer_id, epoch, NOW)


def append(partition: Partition, data: bytearray, now: int = NOW) -> int:
    """Append and let readers see it."""
    internal = header_at(data).is_control
    offset = partition.append(data, now, internal=internal).base_offset
    partition.advance_high_watermark(partition.end)
    return offset


def fetched(partition: Partition, offset: int, max_bytes: int = 1 << 20, limit: int | None = None) -> list[BatchHeader]:
    """The whole batches that one fetch brings."""
    found = partition.read(offset, max_bytes, limit=partition.high_watermark if limit is None else limit)
    if found is None:
        return []
    data = found.handle.read(found.position, found.size)
    assert sum(batch.size for _, batch in headers(data)) == len(data)
    return [batch for _, batch in headers(data)]


def consumed(partition: Partition, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """All records from an offset on, as a client that fetches again and again finds them."""
    at, found = partition.log_start if offset is None else offset, []
    while at < partition.high_watermark:
        part = partition.read(at, max_bytes, limit=partition.high_watermark)
        if part is None:
            break
        data = part.handle.read(part.position, part.size)
        assert list(headers(data)), f"no whole batch at {at}"
        for position, batch in headers(data):
            assert batch.last_offset >= at
            if not batch.is_control:
                found += [record for record in decode_batch(data, position) if record.offset >= at]
            at = batch.last_offset + 1
    return found


def first_since(partition: Partition, timestamp: int) -> tuple[int, int] | None:
    """Timestamp and offset of the first record at or after a time, as ListOffsets finds it."""
    offset = 0
    while (candidates := next_candidates(partition, timestamp, offset)) is not None:
        if (found := first_record(candidates, timestamp)) is not None:
            return found
        assert candidates.following > offset
        offset = candidates.following
    return None


def state(partition: Partition) -> tuple[object, ...]:
    """What a partition knows of producers and transactions."""
    known = {key: (one.epoch, list(one.recent)) for key, one in partition.producers.items()}
    return known, dict(partition.producers.open), list(partition.aborted), partition.end, partition.last_stable_offset


def played(partition: Partition, steps: Iterable[tuple[str, int]], key: str = "k") -> Partition:
    """Let producers send, transact, commit and abort, as far as they may; each step names one of them."""
    for step, producer in steps:
        known = partition.producers.get(producer)
        sequence = known.recent[-1].last + 1 if known is not None and known.recent else 0
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        is_open = producer in partition.producers.open
        match step:
            case "send" if not is_open:
                append(partition, keyed([(key, f"{sequence}"), (f"{key}{producer}", "v")], **fields))
            case "transact":
                append(partition, keyed([(key, f"{sequence}"), ("l", None)], attributes=TRANSACTIONAL, **fields))
            case "commit" | "abort" if is_open:
                append(partition, marker(COMMIT if step == "commit" else ABORT, producer))
            case "roll" if partition.active.size:
                partition.roll(NOW)
            case "checkpoint":
                partition.checkpoint()
    return partition
