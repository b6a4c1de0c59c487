"""Promise: a search for a time looks at a bounded part of a segment before others are served, and misses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.kafka.batches import BatchHeader, header_at, write_header
from penstock.log.errors import ErrorCode
from penstock.log.storage.partition import Partition
from penstock.log.storage.segments.segment import Damage, Segment
from penstock.log.storage.time_search import first_record, next_candidates
from tests.log.groups.broker_fixture import Still
from tests.log.groups.broker_fixture import play as play_with_groups
from tests.log.groups.test_handlers import client
from tests.log.storage.logs import NOW, append, consumed, opened, plain

BATCHES = 1500
STEP = 4096  # bytes of a step here: about 50 batches
OLD = [NOW + number % 7 for number in range(BATCHES)]
# Where the records are that a search finds late, or after which it finds nothing more.
SHAPES = {
    "first": [NOW + 99, *OLD],
    "last": [*OLD, NOW + 99],
    "both": [NOW + 50, *OLD, NOW + 99],
    "middle": [*OLD[:700], NOW + 99, *OLD[700:]],
    "few": [NOW + (90 if number % 400 == 3 else 5) for number in range(BATCHES)],
}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.storage.time_search._MOST_BYTES", STEP)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches whose headers were read."""
    sizes: list[int] = []
    read = Segment.headers

    def headers(self: Segment, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        for position, batch in read(self, start, end):
            sizes.append(batch.size)
            yield position, batch

    monkeypatch.setattr(Segment, "headers", headers)
    return sizes


def filled(partition: Partition, times: list[int]) -> Partition:
    for time in times:
        append(partition, plain(1, timestamp=time))
    return partition


def search(partition: Partition, timestamp: int, seen: list[int]) -> tuple[int, int] | None:
    """Search as ListOffsets does; each step reads few headers."""
    offset, found = 0, None
    seen.clear()
    while found is None and (candidates := next_candidates(partition, timestamp, offset)) is not None:
        # Up to an interval of the index to find the start, the step itself, and the batch after it.
        assert sum(seen) <= 4096 + STEP + 2 * max(seen, default=0)
        assert candidates.following > offset
        found, offset = first_record(candidates, timestamp), candidates.following
        seen.clear()
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("truncated", [False, True])
def test_each_step_of_a_search_reads_few_headers(tmp_path: Path, seen: list[int], shape: str, truncated: bool) -> None:
    partition = filled(opened(tmp_path / "t-0"), SHAPES[shape])
    if truncated:
        partition.truncate_before(BATCHES // 3)
    assert len(partition.segments) == 1
    kept = [(record.timestamp, record.offset) for record in consumed(partition)]
    for timestamp in (NOW, NOW + 6, NOW + 40, NOW + 60, NOW + 99, NOW + 100):
        expected = next((each for each in kept if each[0] >= timestamp), None)
        assert search(partition, timestamp, seen) == expected


def test_a_search_goes_on_behind_damage_that_is_longer_than_a_step(tmp_path: Path, seen: list[int]) -> None:
    partition = filled(opened(tmp_path / "t-0"), SHAPES["both"])
    segment = partition.active
    first, following = 100, 1000
    start, end = segment.position_of(first), segment.position_of(following)
    segment.damaged = (Damage(segment.path, start, end - start, first, following),)
    assert search(partition, NOW + 60, seen) == (NOW + 99, BATCHES + 1)
    segment.damaged = (Damage(segment.path, start, segment.size - start, first, segment.end),)
    assert search(partition, NOW + 60, seen) is None


@pytest.mark.parametrize("said", [0, 1 << 40])
def test_a_search_ends_whatever_a_damaged_header_says(tmp_path: Path, seen: list[int], said: int) -> None:
    partition = filled(opened(tmp_path / "t-0"), SHAPES["both"])
    segment = partition.active
    at = segment.position_of(500)
    head = bytearray(segment.handle.read(at, 61))
    head[:8] = said.to_bytes(8)
    segment.handle.write(memoryview(head), at)
    assert search(partition, NOW + 60, seen) in (None, (NOW + 99, BATCHES + 1))
    assert search(partition, NOW + 45, seen) == (NOW + 50, 0)


def test_others_are_served_between_the_steps_of_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    turns = 0

    def counted(*asked: Any) -> Any:
        steps.append(turns)
        return next_candidates(*asked)

    monkeypatch.setattr("penstock.log.handlers.list_offsets.next_candidates", counted)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def story(broker: Still) -> None:
        partition = filled(broker.store.partition("trades", 0), SHAPES["both"])
        header = header_at(partition.active.handle.read(0, 61))
        promised = bytearray(partition.active.handle.read(0, header.size))
        write_header(promised, header._replace(max_timestamp=NOW + 99))  # a candidate that has no such record
        partition.active.handle.write(memoryview(promised), 0)
        task = asyncio.create_task(others())
        part = {"partition_index": 0, "timestamp": -3, "current_leader_epoch": -1}
        asked = [{"name": "trades", "partitions": [part]}]
        (topic,) = (await client(broker)("list_offsets", 7, topics=asked)).topics
        (found,) = topic.partitions
        task.cancel()
        assert (found.error_code, found.timestamp, found.offset) == (ErrorCode.none, NOW + 99, BATCHES + 1)

    play_with_groups(tmp_path, story)
    assert len(steps) > 20
    assert all(before < after for before, after in pairwise(steps))
