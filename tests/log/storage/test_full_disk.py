"""A disk that is full: an error for the writer, everything else goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log.errors import ErrorCode, LogError
from tests.file_recorder import Recorder
from tests.log.storage.durability_checks import COMPACTED, PLAIN, SHORT, Durable, Judge, Narrator, durable
from tests.powerloss import KILL, NOTHING, Mark

STORY = """
import resource, signal, sys
from pathlib import Path
from penstock.log.storage.store import Store
from tests.log.storage.logs import append, consumed, plain

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(Path(sys.argv[1]))
store.create_topic("t", 1, {"segment.bytes": sys.argv[2]})
partition = store.partition("t", 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
refused = 0
for mark in range(200):
    before = partition.end
    try:
        append(partition, plain(1, 500, mark=mark))
    except OSError:
        refused += 1
        assert partition.end == before
        assert len(consumed(partition)) == before
assert refused, "the disk was never full"
assert partition.end, "nothing was written before"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
full = partition.end
for mark in range(50):
    append(partition, plain(1, 500, mark=mark))
assert [record.offset for record in consumed(partition)] == list(range(full + 50))
store.handles.close()  # as after kill -9: no snapshot
Path(sys.argv[1], ".lock").unlink()
again = Store(Path(sys.argv[1])).partition("t", 0)
assert [record.offset for record in consumed(again)] == list(range(full + 50))
assert again.leader_epoch == 0, "something was torn"
print("done", full)
"""


def test_a_full_disk_refuses_records_and_takes_them_again_when_there_is_room(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", STORY, str(tmp_path), str(1 << 20)], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("done ")


RETRIABLE = {ErrorCode.kafka_storage_error, ErrorCode.coordinator_not_available, ErrorCode.concurrent_transactions}
COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "segment_bytes": "1024"}
# Every kind of file that the log writes, by a part of its path.
KINDS = ("plain-0/", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", "synced", "log-start", "cleaned")
KINDS += ("topics.json", "producer-ids", "__consumer_offsets-0", "__transaction_state-0", "leader-epochs", "-0", "")


class FullDisk(Recorder):
    """A disk that takes the first half of a write to some files, and then says that it is full."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.full: str | None = None
        self.refused = 0

    @property
    def facts(self) -> list[Any]:
        return [event.fact for event in self.events if isinstance(event, Mark)]

    def _check(self, path: Path | None) -> None:
        if self.full is not None and path is not None and self.full in str(path):
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    def _open_fd(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        inside = self._inside(path, dir_fd)
        if flags & os.O_CREAT and inside is not None and self._find(inside) is None:
            self._check(inside)
        return super()._open_fd(path, flags, mode, dir_fd=dir_fd)

    def _pwrite(self, fd: int, data: Any, offset: int) -> int:
        try:
            self._check(self._path(fd))
        except OSError:
            super()._pwrite(fd, memoryview(data)[: len(data) // 2], offset)
            raise
        return super()._pwrite(fd, data, offset)

    def _write(self, fd: int, data: Any) -> int:
        self._check(self._path(fd))
        return super()._write(fd, data)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._check(self._inside(path, dir_fd))
        super()._mkdir(path, mode, dir_fd=dir_fd)

    def _path(self, fd: int) -> Path | None:
        return self._open[fd][1] if fd in self._open else None


def operations(tell: Narrator, number: int) -> list[Callable[[], Any]]:
    """Return everything that clients ask and that is written to disk; `number` tells one round from another."""
    return [
        lambda: tell.producer_id(),
        lambda: tell.send(PLAIN, 4, size=1500),
        lambda: tell.send(COMPACTED, 9, keys=number + 2),
        lambda: tell.send(SHORT, 9),
        lambda: tell.commit("readers", PLAIN, number),
        lambda: tell.transact(commit=True),
        lambda: tell.transact(commit=False),
        lambda: tell.clean(),
        lambda: tell.delete_records(PLAIN, 3 * number + 1),
        lambda: create_and_send(tell, f"more-{number}"),
    ]


async def create_and_send(tell: Narrator, topic: str) -> None:
    await tell.create(topic)
    await tell.send((topic, 0))


async def try_all(tell: Narrator, number: int) -> list[ErrorCode]:
    """Do everything, go on where the disk refuses, and return the errors that clients hear."""
    errors = []
    for operation in operations(tell, number):
        try:
            done = operation()
            if done is not None:
                await done
        except LogError as error:
            errors.append(error.code)
        except OSError:  # the handler of DeleteRecords answers with this
            errors.append(ErrorCode.kafka_storage_error)
    return errors


async def fill_up(broker: Durable, disk: FullDisk, kind: str) -> list[ErrorCode]:
    """Work, meet a full disk for files of one kind, and work again when there is room."""
    tell = Narrator(broker, disk.mark)
    await tell.create("plain", segment_bytes="16384")
    await tell.create("short", retention_bytes="1024", segment_bytes="1024")
    await tell.create("compacted", **COMPACT)
    for topic in ("orders", "payments"):
        await tell.create(topic, segment_bytes="1024")
    assert await try_all(tell, 0) == []
    disk.full = kind
    errors = await try_all(tell, 1)
    disk.full = None
    await broker.advance(2_000)  # what was decided and could not be written is tried again
    await tell.send_again(disk.facts)
    assert await try_all(tell, 2) == []
    assert await Judge(broker, disk.facts).run() == []
    return errors


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_full_for_any_kind_of_file_loses_nothing_and_is_over_when_there_is_room(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.transactions.coordinator._BLOCK", 1)  # so that each id is written
    disk, errors = FullDisk(tmp_path / "data"), list[ErrorCode]()

    async def whole() -> None:
        async with durable(tmp_path / "data") as broker:
            errors.extend(await fill_up(broker, disk, kind))

    async def again(folder: Path, facts: list[Any]) -> list[str]:
        async with durable(folder) as broker:
            found: list[str] = await Judge(broker, facts).run()
            return found

    with disk:
        asyncio.run(whole())
    assert disk.refused, "the disk was never full"
    assert set(errors) <= RETRIABLE
    *_, last = disk.moments()
    for way in (KILL, NOTHING):
        left = last.leave(way, tmp_path / way.label)
        assert asyncio.run(again(left, last.facts)) == []


def test_a_new_transactional_producer_is_told_to_ask_again_when_no_id_can_be_written(tmp_path: Path) -> None:
    disk = FullDisk(tmp_path / "data")

    async def whole() -> None:
        async with durable(tmp_path / "data") as broker:
            disk.full = "producer-ids"
            with pytest.raises(LogError) as refused:
                await broker.transactions.init_producer_id("writer", 60_000)
            assert refused.value.code is ErrorCode.coordinator_not_available
            disk.full = None
            assert (await broker.transactions.init_producer_id("writer", 60_000)).epoch == 0

    with disk:
        asyncio.run(whole())
