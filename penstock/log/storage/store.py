"""The data folder: its lock, its topics, and their partitions, opened when first used."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

from penstock.errors import SettingsError
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.handles import Handles
from penstock.log.storage.opening import open_partition
from penstock.log.storage.partition import Partition
from penstock.log.storage.segment import Segment
from penstock.log.storage.snapshot import Snapshot, save, write_whole
from penstock.log.storage.topics import Topic, Topics

_TRASH = ".deleted"


class Store:
    """Everything on disk. One process at a time owns a data folder."""

    def __init__(self, folder: Path, on_roll: Callable[[Partition, Segment, Snapshot], None] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._lock = _lock(folder)
        self.cluster_id = _cluster_id(folder / "cluster.json")
        self.handles = Handles()
        self.topics = Topics(folder / "topics.json")
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._on_roll = on_roll
        self._clear_trash()

    def topic(self, name: str) -> Topic:
        """Return a topic or refuse."""
        topic = self.topics.get(name)
        if topic is None:
            raise LogError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
        return topic

    def partition(self, topic: str, index: int) -> Partition:
        """Return a partition, opening it when it is asked for the first time."""
        found = self._partitions.get((topic, index))
        return found if found is not None else self._open(topic, index)

    def _open(self, name: str, index: int) -> Partition:
        topic = self.topic(name)
        if not 0 <= index < topic.partitions:
            message = f"topic {name!r} has partitions 0 to {topic.partitions - 1}, not {index}"
            raise LogError(ErrorCode.unknown_topic_or_partition, message)
        partition = open_partition(name, index, self._folder(name, index), self.handles, topic.rules)
        if self._on_roll is not None:
            partition.on_roll = self._on_roll
        self._partitions[name, index] = partition
        return partition

    def opened(self) -> list[Partition]:
        """Return the partitions that are in use."""
        return list(self._partitions.values())

    def all_partitions(self) -> Iterator[Partition]:
        """Yield every partition, opening those that are not in use yet."""
        for topic in list(self.topics.values()):
            for index in range(topic.partitions):
                yield self.partition(topic.name, index)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str], *, internal: bool = False) -> Topic:
        """Create a topic with empty partitions."""
        return self.topics.add(name, partitions, config, internal=internal)

    def add_partitions(self, name: str, count: int) -> Topic:
        """Let a topic have `count` partitions from now on."""
        self.topic(name)
        return self.topics.grow(name, count)

    def configure(self, name: str, config: Mapping[str, str]) -> Topic:
        """Replace the settings of a topic."""
        self.topic(name)
        topic = self.topics.configure(name, config)
        for partition in self.opened():
            if partition.topic == name:
                partition.rules = topic.rules
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic: it is gone at once, its files a little later."""
        topic = self.topic(name)
        self.topics.remove(name)
        for index in range(topic.partitions):
            partition = self._partitions.pop((name, index), None)
            if partition is not None:
                for segment in partition.segments:
                    self.handles.forget(segment.path)
                partition.wake()
            folder = self._folder(name, index)
            if folder.exists():
                folder.rename(folder.with_name(f"{uuid4().hex}{_TRASH}"))
        threading.Thread(target=self._clear_trash, name="penstock-log-trash").start()

    def _folder(self, name: str, index: int) -> Path:
        return self.folder / f"{name}-{index}"

    def _clear_trash(self) -> None:
        for folder in self.folder.glob(f"*{_TRASH}"):
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Put everything on disk, so that the next start has nothing to recover, and let the folder go."""
        for partition in self.opened():
            partition.active.handle.sync()
            save(partition.folder, partition.snapshot())
        self._partitions.clear()
        self.handles.close()
        os.close(self._lock)


def _lock(folder: Path) -> int:
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
        write_whole(path, json.dumps({"id": uuid4().hex[:22]}).encode())
    return str(json.loads(path.read_bytes())["id"])
