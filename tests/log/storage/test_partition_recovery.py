"""After a crash, and after a disk that lies: what was whole is there, what was not is found and named."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.kafka.records import Record, decode_batch
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.integrity import next_scrub_task, record_damage, scrub
from penstock.log.storage.partition import Partition
from tests.log.storage.logs import (
    append,
    consumed,
    copied,
    first_since,
    keyed,
    opened,
    plain,
    played,
    quick_folder,
    state,
)

SIZES = [(1, 40), (3, 10), (1, 0), (2, 100), (1, 5)]


def filled(folder: Path, segment_bytes: int = 1 << 20, rounds: int = 1) -> Partition:
    partition = opened(folder, segment_bytes)
    for mark, (count, size) in enumerate(SIZES * rounds):
        append(partition, plain(count, size, mark=mark))
    return partition


def scrubbed(partition: Partition) -> Partition:
    while unchecked := next_scrub_task(partition):
        unchecked.segment.unchecked = 0
        record_damage(unchecked.segment, scrub(unchecked))
    return partition


def flip(path: Path, position: int, bit: int) -> None:
    with open(path, "r+b") as file:
        byte = os.pread(file.fileno(), 1, position)[0]
        os.pwrite(file.fileno(), bytes([byte ^ (1 << bit)]), position)


def readable(partition: Partition) -> tuple[list[Record], set[int]]:
    """All records that can be read, and the offsets that cannot."""
    found: list[Record] = []
    lost: set[int] = set()
    for offset in range(partition.end):
        try:
            part = partition.read(offset, 1, limit=partition.high_watermark)
        except LogError:
            lost.add(offset)
            continue
        assert part is not None
        data = part.handle.read(part.position, part.size)
        found += [record for record in decode_batch(data) if record.offset == offset]
    return found, lost


def test_a_file_cut_at_any_byte_gives_a_prefix_of_whole_batches_and_goes_on(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole")
    records, log = consumed(whole), whole.active.path
    ends = [0, *(at + batch.size for at, batch in whole.active.headers())]
    for size in range(log.stat().st_size + 1):
        folder = copied(whole, tmp_path / f"cut-{size}")
        os.truncate(folder / log.name, size)
        partition = opened(folder)
        assert partition.active.size == max(end for end in ends if end <= size)
        assert consumed(partition) == records[: partition.end]
        assert partition.leader_epoch == (0 if size in ends else 1)
        assert append(partition, plain(2)) == partition.end - 2
        again = opened(folder)
        assert again.end == partition.end
        assert len(consumed(again)) == again.end


@pytest.mark.parametrize("place", ["closed", "vouched", "active"])
def test_a_flipped_bit_anywhere_is_found_and_nothing_else_is_lost(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = filled(tmp_path / "whole")
    batches = list(whole.active.headers())
    if place == "closed":
        whole.roll(0)
        append(whole, plain(1))
    elif place == "vouched":
        append(whole, plain(1))
        whole.checkpoint()
    else:
        append(whole, plain(1))
    records, log = consumed(whole), whole.segments[0].path
    for position in range(batches[-1][0] + batches[-1][1].size):
        caplog.clear()
        folder = copied(whole, tmp_path / f"flip-{position}")
        flip(folder / log.name, position, position % 8)
        at, hit = max((at, batch) for at, batch in batches if at <= position)
        partition = scrubbed(opened(folder))
        found, lost = readable(partition)
        gone = set(range(hit.base_offset, hit.last_offset + 1))
        assert lost == gone, position
        assert found == [record for record in records if record.offset not in gone]
        assert f"{folder / log.name} is damaged at byte {at} " in caplog.text
        assert append(partition, plain(1)) == whole.end


def test_a_flipped_bit_in_the_last_batch_of_the_active_segment_is_cut_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = filled(tmp_path / "t-0")
    at, last = list(whole.active.headers())[-1]
    flip(whole.active.path, at + last.size - 1, 3)
    partition = opened(whole.folder)
    assert partition.end == last.base_offset
    assert f"from byte {at} on are no complete batch" in caplog.text
    assert partition.leader_epoch == 1


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_indexes_that_are_missing_short_or_garbage_are_built_anew(data: st.DataObject) -> None:
    with quick_folder() as root:
        partition = filled(Path(root) / "t-0", 40_000, rounds=1)
        for mark in range(60):
            append(partition, plain(1, 1500, mark=mark))
        partition.checkpoint()
        records, times = consumed(partition), [record.timestamp for record in consumed(partition)]
        largest = [segment.largest_timestamp for segment in partition.segments]
        files = [path for path in partition.folder.iterdir() if path.suffix in (".index", ".timeindex")]
        for path in sorted(files):
            match data.draw(st.sampled_from(["missing", "short", "empty", "garbage", "flipped", "left"])):
                case "missing":
                    path.unlink()
                case "short":
                    os.truncate(path, data.draw(st.integers(0, path.stat().st_size)))
                case "empty":
                    os.truncate(path, 0)
                case "garbage":
                    path.write_bytes(data.draw(st.binary(min_size=1, max_size=200)))
                case "flipped" if path.suffix == ".index" and path.stat().st_size:
                    flip(path, data.draw(st.integers(0, path.stat().st_size - 1)), data.draw(st.integers(0, 7)))
        again = opened(partition.folder, 40_000)
        assert consumed(again, max_bytes=7000) == records
        assert [segment.largest_timestamp for segment in again.segments] == largest
        assert first_since(again, max(times)) == (max(times), times.index(max(times)))
        for offset in range(0, again.end, 7):
            assert consumed(again, offset, 20_000)[0] == records[offset]


def test_no_flipped_bit_of_an_index_leads_a_reader_astray(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0", 30_000)
    for mark in range(30):
        append(partition, plain(1, 1500, mark=mark))
    partition.checkpoint()
    records, index = consumed(partition), partition.segments[0].index_path
    whole = index.read_bytes()
    for bit in range(0, len(whole) * 8, 3):
        flip(index, bit // 8, bit % 8)
        assert consumed(opened(partition.folder, 30_000), max_bytes=7000) == records
        index.write_bytes(whole)


STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "transact", "commit", "abort", "roll", "checkpoint"]), st.integers(1, 3)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.sampled_from(["nothing", "*.snapshot", "*.txnindex", "*[tx]"]))
@example([("transact", 1), ("abort", 1), ("roll", 1), ("send", 2), ("checkpoint", 1)], "*.txnindex")
def test_producers_and_transactions_are_known_again_whatever_is_missing_beside_the_log(
    steps: list[tuple[str, int]], missing: str
) -> None:
    with quick_folder() as root:
        partition = played(opened(Path(root) / "t-0"), steps)
        before = state(partition)
        folder = copied(partition, Path(root) / "copy-0")
        for path in folder.glob(missing):
            path.unlink()
        assert state(opened(folder)) == before


def test_a_snapshot_that_is_damaged_is_not_believed(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    append(partition, keyed([("k", "v")], producer_id=1, producer_epoch=0, base_sequence=0))
    partition.checkpoint()
    for path in partition.folder.glob("*.snapshot"):
        flip(path, 20, 1)
    assert state(opened(partition.folder)) == state(partition)


def test_a_duplicate_is_known_after_a_crash_and_gets_its_first_offset(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    first = append(partition, keyed([("k", "v")], producer_id=1, producer_epoch=0, base_sequence=0))
    append(partition, plain(1))
    again = opened(partition.folder)
    repeated = again.append(keyed([("k", "v")], producer_id=1, producer_epoch=0, base_sequence=0), 0)
    assert (repeated.base_offset, repeated.duplicate) == (first, True)
    with pytest.raises(LogError) as refused:
        again.append(keyed([("k", "v")], producer_id=1, producer_epoch=0, base_sequence=5), 0)
    assert refused.value.code is ErrorCode.out_of_order_sequence_number


def test_a_file_that_lost_what_was_on_disk_is_named_and_its_snapshot_never_believed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = filled(tmp_path / "t-0")
    partition.checkpoint()
    size = partition.active.size
    os.truncate(partition.active.path, next(at for at, batch in partition.active.headers() if batch.base_offset == 4))
    again = opened(partition.folder)
    assert (again.end, again.leader_epoch) == (4, 1)
    assert f"it was {size} bytes long, up to offset {partition.end - 1}" in caplog.text
    append(again, plain(1, 1000))
    assert consumed(opened(partition.folder)) == consumed(again)


def test_records_that_were_deleted_stay_deleted(tmp_path: Path) -> None:
    partition = filled(tmp_path / "t-0")
    partition.truncate_before(3)
    again = opened(partition.folder)
    assert again.log_start == 3
    assert consumed(again)[0].offset == 3


@pytest.mark.parametrize("name", ["leader-epochs.json", "log-start", "cleaned.json"])
def test_a_side_file_that_is_garbage_is_named_and_the_records_are_served(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    partition = filled(tmp_path / "t-0")
    (partition.folder / name).write_bytes(b"\xff garbage")
    caplog.set_level(logging.ERROR)
    again = opened(partition.folder)
    assert consumed(again) == consumed(partition)
    assert name in caplog.text
