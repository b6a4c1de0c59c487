"""What a segment really holds: read every batch, tell a torn tail from damage in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.log.storage.batches import HEADER_SIZE, SHORTEST, Batch, checksum_fits, header_at
from penstock.log.storage.segment import Segment

Whole = tuple[int, Batch, memoryview]


@dataclass(frozen=True)
class Damage:
    """Bytes that are not what was written: the batch is not served, the ones behind it are."""

    path: Path
    position: int
    size: int

    def __str__(self) -> str:
        return f"{self.path} is damaged at byte {self.position} ({self.size} bytes)"


@dataclass
class Examination:
    """Where the whole batches of a segment end, and what is wrong before that."""

    position: int
    end: int
    largest_timestamp: int = -1
    damages: list[Damage] = field(default_factory=list)


def examine(segment: Segment, start: int = 0, end: int | None = None) -> Iterator[Whole | Examination]:
    """Yield each whole batch from a position whose next offset is `end`; last, the examination."""
    result = Examination(start, segment.base if end is None else end)
    position: int | None = start
    while position is not None and position < segment.size:
        found = _whole_batch(segment, position, result.end)
        if found is None:
            bad, position = position, _next_whole(segment, position, result.end)
            if position is not None:
                result.damages.append(Damage(segment.path, bad, position - bad))
            continue
        _, batch, _ = found
        yield found
        position += batch.size
        result.position, result.end = position, batch.last_offset + 1
        result.largest_timestamp = max(result.largest_timestamp, batch.max_timestamp)
    yield result


def _whole_batch(segment: Segment, position: int, offset: int) -> Whole | None:
    head = segment.handle.read(position, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return None
    batch = header_at(head)
    if batch.magic != 2 or batch.size < SHORTEST or position + batch.size > segment.size:
        return None
    data = memoryview(segment.handle.read(position, batch.size))
    fits = batch.base_offset >= offset and checksum_fits(data, 0, batch)
    return (position, batch, data) if fits else None


def _next_whole(segment: Segment, bad: int, offset: int) -> int | None:
    """Return where whole batches go on behind a bad one: where its length says, or where the index does."""
    head = segment.handle.read(bad, HEADER_SIZE)
    guesses = [bad + header_at(head).size] if len(head) == HEADER_SIZE and header_at(head).size >= SHORTEST else []
    guesses += segment.index.boundaries_after(bad)
    return next((at for at in guesses if at < segment.size and _whole_batch(segment, at, offset)), None)
