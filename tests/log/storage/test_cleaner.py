"""The cleaner of a running broker."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.log.broker import Broker
from penstock.log.cleaner import Cleaner, Throttle
from penstock.log.errors import LogError
from penstock.log.storage.checkpoints import Snapshot, save_snapshot
from penstock.log.storage.partition import Partition
from tests.log.storage.held_scrub import scrubbing
from tests.log.storage.logs import NOW, append, consumed, keyed, plain

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "1024"}


def play(folder: Path, story: Callable[[Broker], Awaitable[None]], now: Callable[[], int] = lambda: NOW) -> None:
    async def run() -> None:
        broker = Broker(folder, sync="none", clock=now)
        await broker.start()
        try:
            await story(broker)
        finally:
            await broker.stop()

    asyncio.run(run())


def written(broker: Broker, config: dict[str, str], count: int = 20) -> Partition:
    broker.store.create_topic("t", 1, config)
    partition = broker.store.partition("t", 0)
    for at in range(count):
        append(partition, keyed([(f"k{at % 3}", "v" * 200 + str(at))]))
    return partition


def test_a_round_compacts_what_is_dirty_and_deletes_what_is_old(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        partition = written(broker, COMPACT)
        broker.store.create_topic("old", 1, {"retention.ms": "10", "segment.bytes": "1024"})
        old = broker.store.partition("old", 0)
        for _ in range(9):
            append(old, plain(1, 600, NOW - 1000))
        closed = partition.active.base
        await broker.cleaner.clean_all()
        await broker.cleaner.clean_all()
        assert len([record for record in consumed(partition) if record.offset < closed]) == 3
        assert (old.log_start, old.end) == (9, 9)

    play(tmp_path, story)


def test_partitions_that_nobody_uses_are_cleaned_too(tmp_path: Path) -> None:
    async def fill(broker: Broker) -> None:
        written(broker, COMPACT)

    async def story(broker: Broker) -> None:
        await broker.cleaner.clean_all()
        partition = broker.store.partition("t", 0)
        assert len(consumed(partition)) < 20

    play(tmp_path, fill)
    play(tmp_path, story)


class Rounds(Cleaner):
    """Tells when the third round is done."""

    def __init__(self, broker: Broker, interval: float) -> None:
        super().__init__(broker, interval)
        self.third = asyncio.Event()
        self._rounds = 0

    async def clean_all(self) -> None:
        await super().clean_all()
        self._rounds += 1
        if self._rounds == 3:
            self.third.set()


def test_rounds_follow_one_another_until_the_broker_stops(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        partition = written(broker, COMPACT)
        quick = Rounds(broker, interval=0.01)
        quick.start()
        async with asyncio.timeout(20):
            await quick.third.wait()
        await quick.stop()
        assert len(consumed(partition)) < 20

    play(tmp_path, story)


def test_a_compaction_that_is_under_way_is_given_up_when_the_broker_stops(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        partition = written(broker, COMPACT, 200)
        cleaner = Cleaner(broker, interval=0)
        cleaner.start()
        async with asyncio.timeout(20):
            while not (partition.folder / "cleaned").exists():
                await asyncio.sleep(0)
        await cleaner.stop()
        assert not (partition.folder / "cleaned").exists()

    play(tmp_path, story)


def test_a_topic_that_is_deleted_while_it_is_compacted_is_let_go(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        partition = written(broker, COMPACT, 200)
        task = asyncio.get_running_loop().create_task(broker.cleaner.clean_all())
        async with asyncio.timeout(20):
            while not (partition.folder / "cleaned").exists():
                await asyncio.sleep(0)
        broker.store.delete_topic("t")
        await task
        broker.store.create_topic("t", 1, COMPACT)
        assert broker.store.partition("t", 0).end == 0

    play(tmp_path, story)


def test_damage_in_what_was_there_before_the_start_is_found_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fill(broker: Broker) -> None:
        written(broker, {"segment.bytes": "1024"})

    async def story(broker: Broker) -> None:
        partition = broker.store.partition("t", 0)
        assert partition.segments[1].damaged == ()
        await broker.cleaner.clean_all()
        (damage,) = partition.segments[1].damaged
        with pytest.raises(LogError, match="damaged at byte 0"):
            partition.read(damage.first, 1024, limit=partition.high_watermark)
        behind = partition.read(damage.following, 1024, limit=partition.high_watermark)
        assert behind is not None
        assert b"penstock_log_damaged 1.0" in broker.metrics.render(broker)

    play(tmp_path, fill)
    path = sorted((tmp_path / "t-0").glob("*.log"))[1]
    path.write_bytes(path.read_bytes().replace(b"vvv", b"vwv", 1))
    caplog.set_level(logging.ERROR)
    play(tmp_path, story)
    assert f"{path} is damaged at byte 0" in caplog.text


def test_what_recovery_has_to_read_again_stays_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.cleaner._CHECKPOINT_BYTES", 1000)

    async def story(broker: Broker) -> None:
        saved, loop = asyncio.Event(), asyncio.get_running_loop()

        def save_and_tell(folder: Path, snapshot: Snapshot) -> None:
            save_snapshot(folder, snapshot)
            loop.call_soon_threadsafe(saved.set)

        monkeypatch.setattr("penstock.log.storage.partition.save_snapshot", save_and_tell)
        partition = written(broker, {})
        await broker.cleaner.clean_all()
        async with asyncio.timeout(20):
            await saved.wait()
        assert list(partition.folder.glob("*.snapshot"))

    play(tmp_path, story)


def test_a_round_begins_every_fifteen_seconds_however_long_the_one_before_takes(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        planned: list[float] = []
        cleaner = Cleaner(broker)
        broker.call_later = lambda seconds, _: planned.append(seconds)  # type: ignore[assignment, method-assign, return-value]
        cleaner.start()
        broker.store.settings.change_cluster({"log.cleaner.backoff.ms": "2000"})
        cleaner.start()
        broker.store.settings.change_cluster({"log.cleaner.backoff.ms": "60000"})
        cleaner.start()
        assert planned == [15.0, 2.0, 15.0]

    play(tmp_path, story)


def test_retention_goes_on_while_a_compaction_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resting = threading.Event()

    class Held(Throttle):
        """A thread that computes rests until it is allowed to go on."""

        def __call__(self) -> None:
            resting.wait(20)
            super().__call__()

    monkeypatch.setattr("penstock.log.cleaner.Throttle", Held)

    async def story(broker: Broker) -> None:
        written(broker, COMPACT)
        broker.store.create_topic("old", 1, {"retention.ms": "10", "segment.bytes": "1024"})
        old = broker.store.partition("old", 0)
        for _ in range(9):
            append(old, plain(1, 600, NOW - 1000))
        cleaner = Cleaner(broker, interval=0.01)
        cleaner.start()
        async with asyncio.timeout(20):
            while old.log_start < 8:
                await asyncio.sleep(0)
        assert not list((tmp_path / "t-0").glob("*.swap"))
        resting.set()
        await cleaner.stop()

    play(tmp_path, story)
    resting.set()


def test_an_active_segment_that_is_too_old_is_gone_soon_after_it_was_closed(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.store.create_topic("old", 1, {"retention.ms": "10"})
        old = broker.store.partition("old", 0)
        append(old, plain(1, 600, NOW - 1000))
        async with asyncio.timeout(20):
            await broker.cleaner.retain_all()
            assert (old.log_start, len(old.segments)) == (0, 2)
            while old.log_start < 1:
                await asyncio.sleep(0.01)
        assert len(old.segments) == 1

    play(tmp_path, story)


def test_without_a_cleanup_policy_nothing_goes(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        partition = written(broker, {**COMPACT, "cleanup.policy": "", "retention.ms": "1", "retention.bytes": "1"})
        before = consumed(partition)
        await broker.cleaner.clean_all()
        await broker.cleaner.clean_all()
        assert consumed(partition) == before

    play(tmp_path, story)


def test_a_deleted_topic_that_is_still_scrubbed_leaves_no_file_in_its_successor(
    tmp_path: Path,
) -> None:
    async def fill(broker: Broker) -> None:
        written(broker, {"segment.bytes": "1024"})

    async def story(broker: Broker) -> None:
        assert len(broker.store.partition("t", 0).segments) > 3
        async with scrubbing(broker, "t"):
            broker.store.delete_topic("t")
            broker.store.create_topic("t", 1, {})
            append(broker.store.partition("t", 0), plain())
        assert [path.stem for path in (tmp_path / "t-0").glob("*.log")] == [f"{0:020d}"]

    play(tmp_path, fill)
    play(tmp_path, story)


def test_a_deleted_segment_cannot_be_opened(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        deleted = written(broker, {"segment.bytes": "1024"})
        broker.store.delete_topic("t")
        recreated = written(broker, {"segment.bytes": "1024"}, 1)
        for use in (
            deleted.active.reindex,
            lambda: deleted.read(0, 1024, limit=20),
            lambda: deleted.append(plain(), NOW),
        ):
            with pytest.raises(LogError, match="was deleted"):
                use()
        assert [path.stem for path in recreated.folder.glob("*.log")] == [f"{0:020d}"]

    play(tmp_path, story)
