"""Compaction: of each key the last record, at its offset, whatever happens on the way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.compression import GZIP, LZ4, SNAPPY, ZSTD
from penstock.kafka.records import ABORT, COMMIT, Record, decode_batch
from penstock.log.storage import compaction
from penstock.log.storage.checkpoints import Snapshot
from penstock.log.storage.compaction import CompactionResult, compact, plan_compaction, swap_in
from penstock.log.storage.partition import Partition
from penstock.log.storage.segments.segment import Segment
from penstock.log.storage.topics import Topic
from tests.log.storage.logs import (
    NOW,
    TRANSACTIONAL,
    append,
    consumed,
    copied,
    keyed,
    marker,
    opened,
    played,
    quick_folder,
    state,
)

DAY = 24 * 3600 * 1000
TOPIC = Topic("t", None, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})  # type: ignore[arg-type]


def compacted(partition: Partition, now: int = NOW, **changes: int) -> CompactionResult | None:
    plan = plan_compaction(partition, TOPIC, now)
    if plan is None:
        return None
    outcome = compact(replace(plan, **changes))  # type: ignore[arg-type]
    assert swap_in(partition, outcome)
    return outcome


def last_values(records: list[Record]) -> dict[bytes, Record]:
    return {record.key: record for record in records if record.key is not None}


PAIRS = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abcdefg"), st.one_of(st.none(), st.text("xyz", max_size=30))), min_size=1, max_size=4
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.integers(1024, 3000), st.sampled_from([0, GZIP, SNAPPY, LZ4, ZSTD]), st.integers(1, 30))
def test_the_last_record_of_each_key_stays_where_it_was(
    batches: list[list[tuple[str, str | None]]], segment_bytes: int, codec: int, most_keys: int
) -> None:
    with quick_folder() as root:
        partition = opened(Path(root) / "t-0", segment_bytes)
        for pairs in batches:
            append(partition, keyed(pairs, codec=codec))
        partition.roll(NOW)
        append(partition, keyed([("a", "active")]))
        before, end = consumed(partition), partition.end
        while compacted(partition, most_keys=most_keys):
            pass
        expected = last_values([record for record in before if record.offset < partition.active.base])
        kept = [record for record in consumed(partition) if record.offset < partition.active.base]
        assert kept == sorted(expected.values(), key=lambda record: record.offset)
        for again in (partition, opened(partition.folder, segment_bytes)):
            assert again.end == end
            for offset in range(end):
                wanted = next((record for record in kept if record.offset >= offset), None)
                assert (consumed(again, offset) or [None])[0] == (wanted or consumed(partition)[-1])
        assert compacted(partition) is None


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_keeps_its_codec(tmp_path: Path, codec: int) -> None:
    partition = opened(tmp_path / "t-0")
    append(partition, keyed([("a", "1"), ("b", "2")], codec=codec))
    append(partition, keyed([("a", "3")], codec=codec))
    partition.roll(NOW)
    compacted(partition)
    assert [batch.compression for batch, _ in partition.batches()] == [codec, codec]
    assert [(batch.base_offset, batch.last_offset_delta, batch.record_count) for batch, _ in partition.batches()] == [
        (0, 1, 1),
        (2, 0, 1),
    ]


def test_small_neighbours_become_one_segment(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0", 1 << 20)
    for at in range(6):
        append(partition, keyed([(f"k{at}", "v")]))
        partition.roll(NOW)
    compacted(partition)
    assert [segment.base for segment in partition.segments] == [0, 6]
    assert partition.segments[0].end == 6
    assert len(list(partition.folder.glob("*.log"))) == 2
    assert [record.offset for record in consumed(partition)] == list(range(6))


def test_a_tombstone_stays_for_its_time_and_then_goes(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    append(partition, keyed([("a", "1"), ("b", "1")]))
    append(partition, keyed([("a", None)], timestamp=NOW + 7))
    partition.roll(NOW)
    compacted(partition, NOW)
    assert [(record.key, record.value, record.timestamp) for record in consumed(partition)] == [
        (b"b", b"1", NOW),
        (b"a", None, NOW + 7),
    ]
    later = NOW + DAY // 2
    append(partition, keyed([("c", "1")]))
    partition.roll(later)
    compacted(partition, later)
    assert [record.key for record in consumed(partition)] == [b"b", b"a", b"c"]
    append(partition, keyed([("c", "2")]))
    partition.roll(later)
    compacted(partition, NOW + DAY)
    assert [record.key for record in consumed(partition)] == [b"b", b"c"]


def test_aborted_records_go_at_once_and_markers_when_they_decide_nothing_any_more(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    for producer, outcome in ((1, COMMIT), (2, ABORT)):
        known = {"producer_id": producer, "producer_epoch": 0}
        data = keyed([(f"k{producer}", "v")], attributes=TRANSACTIONAL, base_sequence=0, **known)
        append(partition, data)
        append(partition, marker(outcome, producer))
    append(partition, keyed([("k2", "older, and the last that was committed")]))
    partition.roll(NOW)
    compacted(partition)
    assert [(record.offset, record.key) for record in consumed(partition)] == [(0, b"k1"), (4, b"k2")]
    assert partition.aborted == []
    kinds = [(batch.producer_id, batch.is_control, batch.record_count) for batch, _ in partition.batches()]
    # The emptied batch keeps the sequence of a producer that may go on.
    assert kinds == [(1, False, 1), (1, True, 1), (2, False, 0), (2, True, 1), (-1, False, 1)]
    partition.producers.expire(NOW + 2 * DAY)
    append(partition, keyed([("k1", "newer")]), NOW + 2 * DAY)
    partition.roll(NOW + 2 * DAY)
    compacted(partition, NOW + 2 * DAY)
    assert [batch.producer_id for batch, _ in partition.batches()] == [1, -1, -1]  # nothing of 2; 1's marker waits
    append(partition, keyed([("k1", "newest")]), NOW + 4 * DAY)
    partition.roll(NOW + 4 * DAY)
    compacted(partition, NOW + 4 * DAY)
    assert [batch.producer_id for batch, _ in partition.batches()] == [-1, -1]


def test_a_reader_comes_to_the_end_when_the_last_records_are_gone(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    append(partition, keyed([("a", "1")]))
    append(partition, keyed([("a", None)]))
    for now in (NOW, NOW + DAY):
        partition.roll(now) if partition.active.size else None
        partition.cleaner_checkpoint = partition.cleaner_checkpoint._replace(offset=0)
        compacted(partition, now)
    assert consumed(partition) == []
    assert [(batch.last_offset, batch.record_count) for batch, _ in partition.batches()] == [(1, 0)]


def test_an_open_transaction_holds_compaction_back(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    append(partition, keyed([("a", "1")]))
    partition.roll(NOW)
    known = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    append(partition, keyed([("a", "2")], attributes=TRANSACTIONAL, **known))
    partition.roll(NOW)
    compacted(partition)
    assert [record.value for record in consumed(partition)] == [b"1", b"2"]
    append(partition, marker(COMMIT, 1))
    partition.roll(NOW)
    compacted(partition)
    assert [record.value for record in consumed(partition)] == [b"2"]


def test_sequences_and_transactions_are_known_again_from_a_compacted_log(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    for sequence in range(3):
        append(partition, keyed([("a", str(sequence))], producer_id=7, producer_epoch=2, base_sequence=sequence))
    append(partition, keyed([("a", "newer")]))
    partition.roll(NOW)
    compacted(partition)
    folder = copied(partition, tmp_path / "copy-0")
    for path in folder.glob("*.snapshot"):
        path.unlink()
    again = opened(folder)
    producer = again.producers.get(7)
    assert producer is not None
    assert (producer.epoch, producer.recent[-1]) == (2, (2, 2, 2))
    repeated = again.append(keyed([("a", "2")], producer_id=7, producer_epoch=2, base_sequence=2), NOW)
    assert (repeated.duplicate, repeated.base_offset) == (True, 2)


def test_young_records_and_little_dirt_are_left_alone(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    append(partition, keyed([("a", "1"), ("a", "2")]))
    partition.roll(NOW)
    young = replace(TOPIC, config={**TOPIC.config, "min.compaction.lag.ms": "1000"})
    assert plan_compaction(partition, young, NOW + 999) is None
    assert plan_compaction(partition, young, NOW + 1000) is not None
    compacted(partition)
    append(partition, keyed([("b", "1")]))
    partition.roll(NOW)
    clean = replace(TOPIC, config={**TOPIC.config, "min.cleanable.dirty.ratio": "0.9"})
    assert plan_compaction(partition, clean, NOW) is None
    assert plan_compaction(partition, clean, NOW, force=True) is not None
    overdue = replace(TOPIC, config={**clean.config, "max.compaction.lag.ms": "5"})
    assert plan_compaction(partition, overdue, NOW + 6) is not None


def test_a_damaged_segment_is_not_compacted(tmp_path: Path) -> None:
    partition = opened(tmp_path / "t-0")
    append(partition, keyed([("a", "1"), ("a", "2")]))
    partition.roll(NOW)
    path = partition.segments[0].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    plan = plan_compaction(partition, TOPIC, NOW)
    assert plan is not None
    with pytest.raises(compaction.DamagedSegmentError, match="damaged at byte 0"):
        compact(plan)
    assert path.read_bytes() == data


ACTS = st.lists(
    st.tuples(st.sampled_from(["send", "transact", "transact", "commit", "abort", "roll"]), st.integers(1, 3)),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ACTS, st.sampled_from("kmn")), min_size=1, max_size=5), st.integers(1, 10))
def test_readers_of_committed_records_and_producers_notice_nothing(
    rounds: list[tuple[list[tuple[str, int]], str]], most_keys: int
) -> None:
    with quick_folder() as root:
        partition = opened(Path(root) / "t-0")
        for at, (acts, key) in enumerate(rounds):
            played(partition, acts, key)
            before, known = last_values(visible(partition)), state(partition)
            compacted(partition, most_keys=most_keys)
            assert last_values(visible(partition)) == before
            folder = copied(partition, Path(root) / f"{at}-0")
            assert state(opened(folder))[0:2] == known[0:2]
            for path in [*folder.glob("*.snapshot"), *folder.glob("*.txnindex")]:
                path.unlink()
            again = opened(folder)
            assert last_values(visible(again)) == before
            assert state(again)[1] == known[1]
            assert last_sequences(again) == last_sequences(partition)
            assert (again.end, again.last_stable_offset) == known[3:]


def last_sequences(partition: Partition) -> dict[int, tuple[int, int]]:
    known = partition.producers.items()
    return {key: (one.epoch, one.recent[-1].last) for key, one in known if one.recent}


class Crash(Exception):
    pass


def test_a_crash_at_any_step_of_a_swap_leaves_the_old_or_the_new_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = opened(tmp_path / "t-0", 1200)
    for turn in range(12):
        known = {"producer_id": turn % 3, "producer_epoch": 0, "base_sequence": turn // 3, "attributes": TRANSACTIONAL}
        append(partition, keyed([(f"k{turn % 4}", "v" * 100)], **known))
        append(partition, marker(ABORT if turn % 3 == 2 else COMMIT, turn % 3))
    partition.roll(NOW)
    before, known_before = last_values(visible(partition)), state(partition)[0]
    at = 0
    while crashed_at(at, copied(partition, tmp_path / f"crash-{at}"), monkeypatch):
        again = opened(tmp_path / f"crash-{at}", 1200)
        assert not (again.folder / "cleaned").exists()
        assert not list(again.folder.glob("*.swap"))
        assert last_values(visible(again)) == before
        assert (state(again)[0], again.end) == (known_before, partition.end)
        append(again, keyed([("new", "1")]))
        again.roll(NOW)
        compacted(again)
        assert last_values(visible(again)) == {**before, b"new": consumed(again)[-1]}
        at += 1
    assert at > 20


def crashed_at(at: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Compact, and end at the step of the swap that has this number; say whether there was one."""
    partition = opened(folder, 1200)
    plan = plan_compaction(partition, TOPIC, NOW)
    assert plan is not None
    outcome = compact(plan)
    assert len(outcome.products) > 1
    with monkeypatch.context() as patched:
        count_down(at, patched)
        try:
            return not swap_in(partition, outcome)
        except Crash:
            return True


def visible(partition: Partition) -> list[Record]:
    """What a reader of committed records sees."""
    found = []
    for batch, data in partition.batches():
        gone = any(
            entry.producer_id == batch.producer_id and entry.first <= batch.base_offset < entry.last
            for entry in partition.aborted_between(batch.base_offset, batch.base_offset + 1)
        )
        if not batch.is_control and not gone:
            found += list(decode_batch(data))
    return found


def count_down(left: int, patched: pytest.MonkeyPatch) -> None:
    """Let `left` more file operations happen; the next one, and all behind it, is where the process ends."""
    steps = iter(range(left))

    def guarded(real: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object, **kwargs: object) -> object:
            if next(steps, None) is None:
                raise Crash
            return real(*args, **kwargs)

        return step

    for owner, name in [(os, "replace"), (os, "fsync"), (Path, "unlink"), (Segment, "closed_at"), (shutil, "rmtree")]:
        patched.setattr(owner, name, guarded(getattr(owner, name)))


def test_a_snapshot_that_is_saved_after_compaction_does_not_refer_to_the_file_that_was_replaced(tmp_path: Path) -> None:
    """It waits for an fsync while its segment is closed and compacted; the snapshot of the next segment waits too."""
    waiting: list[Snapshot] = []
    partition = opened(tmp_path / "t-0")
    partition.save_checkpoint = lambda _partition, _written, snapshot: waiting.append(snapshot)
    for key in "ab":
        append(partition, keyed([(key, "old")]))
    partition.checkpoint()
    for key in "acd":
        append(partition, keyed([(key, "new" * 20)]))
    partition.roll(NOW)
    compacted(partition)
    partition.save_snapshot(waiting[0])
    again = opened(copied(partition, tmp_path / "killed"))
    assert [record.key for record in consumed(again)] == [b"b", b"a", b"c", b"d"]
    assert not any(segment.damaged for segment in again.segments)
