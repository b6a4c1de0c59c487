"""The data folder: one owner, whole or not at all, and few open files however many partitions."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import SettingsError
from penstock.log.broker import Broker
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.partition import Partition
from penstock.log.storage.store import Store
from tests.log.storage.logs import NOW, append, consumed, keyed, plain


def test_topics_whose_names_differ_in_dots_and_underscores_alone_are_refused_as_in_kafka(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_topic("a.b", 1, {})
    store.create_topic("plain", 1, {})
    with pytest.raises(LogError) as caught:
        store.create_topic("a_b", 1, {})
    assert caught.value.code is ErrorCode.invalid_topic_exception
    store.delete_topic("a.b")
    store.create_topic("a_b", 1, {})
    store.close()


def test_a_second_process_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    code = (
        "import sys; from pathlib import Path; from penstock.log.storage.store import Store; Store(Path(sys.argv[1]))"
    )
    second = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert f"{tmp_path} is in use by process {os.getpid()}" in second.stderr
    store.close()
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == 0


def test_thousands_of_partitions_share_few_descriptors(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_topic("many", 3000, {})
    before = len(os.listdir("/proc/self/fd"))
    for index in range(3000):
        append(store.partition("many", index), plain(1, mark=index))
    assert store.handles.open <= 512
    assert len(os.listdir("/proc/self/fd")) <= before + 520
    for index in range(0, 3000, 7):
        assert consumed(store.partition("many", index))[0].value == bytes([index % 256]) * 10
    store.close()
    again = Store(tmp_path)
    assert all(again.partition("many", index).end == 1 for index in range(0, 3000, 100))
    again.close()


def test_what_was_closed_is_opened_without_reading_it_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_topic("t", 1, {})
    for mark in range(5):
        append(store.partition("t", 0), plain(1, mark=mark))
    store.close()
    again = Store(tmp_path)
    partition = again.partition("t", 0)
    assert partition.active.unchecked == partition.active.size > 0
    assert len(consumed(partition)) == 5
    again.close()


def test_the_leader_epoch_is_known_without_opening_the_partition(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_topic("t", 3, {})
    append(store.partition("t", 0), plain())
    store.close()
    with (tmp_path / "t-0" / f"{0:020d}.log").open("ab") as log:
        log.write(b"torn")
    store = Store(tmp_path)
    assert store.partition("t", 0).leader_epoch == 1
    store.close()

    store = Store(tmp_path)

    assert [store.leader_epoch("t", index) for index in range(3)] == [1, 0, 0]
    assert store.opened() == []
    store.close()


def test_records_of_a_deleted_topic_do_not_come_back_with_its_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_topic("t", 1, {})
    append(store.partition("t", 0), plain(1))
    store.close()
    crashed = Store(tmp_path)
    crashed.topics.remove("t")  # and the process ends before the folders are gone
    crashed.close()
    again = Store(tmp_path)
    again.create_topic("t", 1, {})
    assert again.partition("t", 0).end == 0
    again.close()


def test_files_of_a_deleted_topic_are_gone_when_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may belong to another process then."""
    closing, removed = threading.Event(), shutil.rmtree

    def remove_late(folder: Path, *, ignore_errors: bool) -> None:
        closing.wait(5)
        removed(folder, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", remove_late)
    store = Store(tmp_path)
    store.create_topic("t", 1, {})
    append(store.partition("t", 0), plain(1))
    store.delete_topic("t")
    closed = threading.Thread(target=store.close)
    closed.start()
    closing.set()
    closed.join()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_late_snapshot_of_a_deleted_topic_is_none_of_the_next_topic_of_that_name(tmp_path: Path) -> None:
    """A segment is closed and its snapshot waits for an fsync; meanwhile its topic is deleted and created again."""
    broker = Broker(tmp_path / "data")
    broker.store.create_topic("t", 1, {})
    _close_a_segment(broker.store.partition("t", 0), sequence=0)
    broker.store.delete_topic("t")
    broker.store.create_topic("t", 1, {})
    created = broker.store.partition("t", 0)
    _save_snapshots(broker)
    _close_a_segment(created, sequence=5)
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    broker.store.close()
    killed = Store(tmp_path / "killed")
    assert append(killed.partition("t", 0), keyed([("k", "v")], producer_id=7, base_sequence=6)) == 1
    killed.close()


def _close_a_segment(partition: Partition, sequence: int) -> None:
    append(partition, keyed([("k", "v")], producer_id=7, base_sequence=sequence))
    partition.roll(NOW)


def _save_snapshots(broker: Broker) -> None:
    async def sync_once() -> None:
        broker.syncer.start(asyncio.get_running_loop())
        broker.syncer.stop()

    asyncio.run(sync_once())


def test_a_partition_after_a_failed_sync_gets_no_snapshot(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_topic("t", 1, {})
    partition = store.partition("t", 0)
    append(partition, plain(1))
    partition.failed = True
    store.close()
    assert not list(tmp_path.glob("t-0/*.snapshot"))


def test_a_list_of_topics_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    Store(tmp_path).close()
    (tmp_path / "topics.json").write_text('{"topics": [{"name"')
    with pytest.raises(SettingsError, match=r"topics\.json is damaged"):
        Store(tmp_path)


@pytest.mark.parametrize(("name", "value"), [("segment.bytes", str(2**31)), ("min.cleanable.dirty.ratio", "nan")])
def test_a_setting_out_of_its_bounds_is_refused(tmp_path: Path, name: str, value: str) -> None:
    store = Store(tmp_path)
    with pytest.raises(LogError, match=name) as refused:
        store.create_topic("t", 1, {name: value})
    assert refused.value.code is ErrorCode.invalid_config
    store.close()


def checked(folder: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["log", "check", "--data", str(folder)])
    return result.exit_code, result.output


def test_log_check_tells_what_is_there_and_what_is_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_topic("t", 2, {"segment.bytes": "1024"})
    for mark in range(1, 7):
        append(store.partition("t", 0), plain(2, 300, mark=mark))
    size = store.partition("t", 0).size
    store.close()
    assert checked(tmp_path) == (0, f"1 topics, 2 partitions, 12 records, {size} bytes: no damage\n")
    path = sorted(tmp_path.glob("t-0/*.log"))[2]
    path.write_bytes(path.read_bytes().replace(b"\x03" * 9, b"\x03\x07\x03" * 3, 1))
    code, output = checked(tmp_path)
    assert code == 1
    assert f"{path} is damaged at byte 0 ({path.stat().st_size} bytes): offsets 4 to 5\n" in output
    assert "1 damaged" in output


def test_log_check_finds_a_segment_that_lost_its_end_and_forgives_a_torn_tail(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_topic("t", 1, {"segment.bytes": "1024"})
    for mark in range(5):
        append(store.partition("t", 0), plain(1, 300, mark=mark))
    active = store.partition("t", 0).active.path
    store.close()
    with open(active, "ab") as file:
        file.write(b"half a batch")
    code, output = checked(tmp_path)
    assert (code, "a torn tail at byte" in output) == (0, True)
    first = min(tmp_path.glob("t-0/*.log"))
    os.truncate(first, 0)
    code, output = checked(tmp_path)
    assert (code, f"{first} is damaged at byte 0 (0 bytes): offsets 0 to " in output) == (1, True)


def test_log_check_refuses_a_folder_in_use_or_without_a_log(tmp_path: Path) -> None:
    store = Store(tmp_path / "log")
    store.create_topic("t", 1, {})
    result = CliRunner().invoke(app, ["log", "check", "--data", str(tmp_path / "log")])
    assert isinstance(result.exception, SettingsError)
    assert "in use" in str(result.exception)
    store.close()
    result = CliRunner().invoke(app, ["log", "check", "--data", str(tmp_path)])
    assert "contains no log" in str(result.exception)
