"""The data folder: its lock, its topics, and their partitions, opened on first use."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from penstock.errors import SettingsError
from penstock.log.configs.broker import SETTINGS_FILE, DynamicSettings
from penstock.log.configs.topic import INTERNAL_TOPICS
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.checkpoints import Snapshot, read_epochs
from penstock.log.storage.partition import Partition, save_checkpoint_now
from penstock.log.storage.partition_recovery import open_partition
from penstock.log.storage.segments.files import FilePool, write_atomically
from penstock.log.storage.segments.segment import Segment
from penstock.log.storage.topics import Topic, Topics

log = logging.getLogger("penstock.log")
_TRASH = ".deleted"


class Store:
    """Everything on disk. One process at a time owns a data folder."""

    def __init__(
        self,
        folder: Path,
        save_checkpoint: Callable[[Partition, Segment, Snapshot], None] = save_checkpoint_now,
        *,
        durable: Callable[[], bool] = lambda: False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._lock = lock_folder(folder)
        self.cluster_id = _cluster_id(folder / "cluster.json")
        self.handles = FilePool()
        self.settings = DynamicSettings(folder / SETTINGS_FILE)
        self.topics = Topics(folder / "topics.json", self.settings.topic_defaults)
        self.topics.repair_internal()
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._save_checkpoint = save_checkpoint
        self._durable = durable
        self._trash_remover = ThreadPoolExecutor(1, "penstock-log-trash")
        self._clear_trash()

    def topic(self, name: str) -> Topic:
        """Return a topic, or refuse if it does not exist."""
        topic = self.topics.get(name)
        if topic is None:
            raise LogError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
        return topic

    def partition(self, topic: str, index: int) -> Partition:
        """Return a partition, opening it on first use."""
        found = self._partitions.get((topic, index))
        return found if found is not None else self._open(topic, index)

    def _open(self, name: str, index: int) -> Partition:
        topic = self.topic(name)
        if not 0 <= index < topic.partitions:
            message = f"topic {name!r} has partitions 0 to {topic.partitions - 1}, not {index}"
            raise LogError(ErrorCode.unknown_topic_or_partition, message)
        try:
            folder = self._folder(name, index)
            partition = open_partition(name, index, folder, self.handles, topic.log_config, durable=self._durable())
        except OSError as error:
            raise LogError(ErrorCode.kafka_storage_error, f"cannot open {name}-{index}: {error}") from error
        partition.save_checkpoint = self._save_checkpoint
        self._partitions[name, index] = partition
        return partition

    def leader_epoch(self, topic: str, index: int) -> int:
        """Return the leader epoch of a partition without opening it: metadata lists thousands that are not in use."""
        found = self._partitions.get((topic, index))
        if found is not None:
            return found.leader_epoch
        folder = self._folder(topic, index)
        epochs = read_epochs(folder) if folder.exists() else None
        return epochs[-1][0] if epochs else 0

    def opened(self) -> list[Partition]:
        """Return the open partitions."""
        return list(self._partitions.values())

    def written(self) -> Iterator[tuple[str, int]]:
        """Yield the partitions that have files, without opening any."""
        for topic in list(self.topics.values()):
            for index in range(topic.partitions):
                if (topic.name, index) in self._partitions or self._folder(topic.name, index).exists():
                    yield topic.name, index

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str], *, internal: bool = False) -> Topic:
        """Create a topic with empty partitions."""
        self.topics.check_new(name, partitions, config, internal=internal)
        self._trash(name, range(partitions))
        return self.topics.add(name, partitions, config, internal=internal)

    def create_internal(self, name: str) -> None:
        """Create an internal topic, unless it exists."""
        if name not in self.topics:
            self.create_topic(name, 1, INTERNAL_TOPICS[name], internal=True)

    def add_partitions(self, name: str, count: int) -> Topic:
        """Increase the number of partitions of a topic to `count`."""
        topic = self.topic(name)
        self.topics.check_grown(name, count)
        self._trash(name, range(topic.partitions, count))
        return self.topics.grow(name, count)

    def configure(self, name: str, config: Mapping[str, str]) -> Topic:
        """Replace the settings of a topic."""
        self.topic(name)
        topic = self.topics.configure(name, config)
        self.refresh_configs()
        return topic

    def refresh_configs(self) -> None:
        """Apply changed settings to the open partitions."""
        configs = {name: self.topics[name].log_config for name in {partition.topic for partition in self.opened()}}
        for partition in self.opened():
            partition.config = configs[partition.topic]

    def delete_topic(self, name: str) -> None:
        """Delete a topic: it disappears at once, its files a little later."""
        topic = self.topic(name)
        self.topics.remove(name)
        for index in range(topic.partitions):
            partition = self._partitions.pop((name, index), None)
            if partition is not None:
                partition.on_deleted()
        self._trash(name, range(topic.partitions))
        self._trash_remover.submit(self._clear_trash)

    def _trash(self, name: str, indexes: range) -> None:
        # Also before a topic is created: a crash may have left the folders of a deleted one of that name.
        for folder in (self._folder(name, index) for index in indexes):
            if folder.exists():
                folder.rename(folder.with_name(f"{uuid4().hex}{_TRASH}"))

    def _folder(self, name: str, index: int) -> Path:
        return self.folder / f"{name}-{index}"

    def _clear_trash(self) -> None:
        for folder in self.folder.glob(f"*{_TRASH}"):
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Sync everything, so that the next start has nothing to recover, and release the folder."""
        for partition in self.opened():
            _finish(partition)
        self._partitions.clear()
        self.handles.close()
        self._trash_remover.shutdown()  # the folder may belong to another process from now on
        os.close(self._lock)


def _finish(partition: Partition) -> None:
    # After a failed fsync it is unknown what is on disk, so no snapshot may cover it.
    if partition.failed or partition.checkpointed == (partition.active.base, partition.active.size):
        return
    try:
        partition.checkpoint(save_checkpoint_now)
    except OSError as error:
        log.error("cannot save %s, so the next start reads it again: %s", partition.folder.name, error)


def lock_folder(folder: Path) -> int:
    """Lock a data folder for this process; closing the descriptor releases it."""
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(fd, 100, 0).decode(errors="replace").strip()
        os.close(fd)
        message = f"the data folder {folder} is in use by process {owner or 'unknown'}"
        raise SettingsError(message, hint="stop that one, or give this one a folder of its own: --data DIR") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def _cluster_id(path: Path) -> str:
    if not path.exists():
        write_atomically(path, json.dumps({"id": uuid4().hex[:22]}).encode())
    return str(json.loads(path.read_bytes())["id"])
