"""A model of power loss: what a disk may hold when the machine stops, without a real power cut.

`Recorder` (tests/file_recorder.py) notes in order what Python code does to the files of one folder: writes,
truncations, fsyncs, and changes of names. `Recorder.moments` then steps through that journal, and each `Moment` can be
written out as the folder that a crash at that moment may leave:

- What was fsynced is there. After later writes each sector of the file may hold what it held after any of them, and the
  file may have grown without its data (zeros): writes are lost, torn and reordered.
- A name (created, renamed, deleted) is certain once its folder was fsynced; of later changes a prefix is there. A
  rename is never half done.

A test marks what it promised (`Recorder.mark`), crashes at each moment in several ways (`WAYS`), recovers with the real
code, and judges the facts that were marked before the moment. `Recorder(folder, after=moment)` goes on where a killed
process stopped: the system still has its unsynced writes, and the next power loss may still lose them.

It sees what goes through `os` and `open`; extensions that write by themselves (Arrow, SQLite) are not seen.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

SECTOR = 512
ROOT = 0


class Write(NamedTuple):
    """Bytes written to a file."""

    inode: int
    at: int
    data: bytes


class Cut(NamedTuple):
    """A file truncated or extended to a size."""

    inode: int
    size: int


class Sync(NamedTuple):
    """An fsync of a file or a folder."""

    inode: int


class Names(NamedTuple):
    """Names that change together: (folder, name) to an inode, or to None if the name is gone."""

    changes: tuple[tuple[int, str, int | None], ...]


class Mark(NamedTuple):
    """Something that the code under test has promised."""

    fact: Any


Change = Write | Cut | Names
Event = Write | Cut | Sync | Names | Mark


@dataclass
class File:
    """A file: what the disk has for certain, what processes see, and the changes between the two."""

    durable: bytearray = field(default_factory=bytearray)
    live: bytearray = field(default_factory=bytearray)
    pending: list[Write | Cut] = field(default_factory=list)


@dataclass
class Disk:
    """Files and folders by inode. Names change in `live` at once, and in `durable` when a folder is synced."""

    files: dict[int, File] = field(default_factory=dict)
    durable: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    live: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    pending: list[Names] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        match event:
            case Write(inode) | Cut(inode):
                file = self.files.setdefault(inode, File())
                apply_to(file.live, event)
                file.pending.append(event)
            case Names():
                for table in (self.durable, self.live):
                    for _, _, inode in event.changes:
                        if inode is not None and inode < 0:
                            table.setdefault(inode, {})
                rename(self.live, event)
                self.pending.append(event)
            case Sync(inode) if inode in self.files:
                file = self.files[inode]
                file.durable, file.pending = bytearray(file.live), []
            case Sync(inode):
                for each in [one for one in self.pending if any(folder == inode for folder, _, _ in one.changes)]:
                    rename(self.durable, each)
                    self.pending.remove(each)


def apply_to(content: bytearray, change: Write | Cut) -> None:
    """Change the bytes of a file; what is skipped reads as zeros."""
    match change:
        case Write(_, at, data):
            content.extend(bytes(max(at - len(content), 0)))
            content[at : at + len(data)] = data
        case Cut(_, size):
            del content[size:]
            content.extend(bytes(size - len(content)))


def rename(table: dict[int, dict[str, int]], event: Names) -> None:
    """Change names, all or none."""
    for folder, name, inode in event.changes:
        if inode is None:
            table.setdefault(folder, {}).pop(name, None)
        else:
            table.setdefault(folder, {})[name] = inode


class Way(NamedTuple):
    """How a crash treats what was not synced: `names` and `data` say how much of it is there."""

    label: str
    names: Callable[[random.Random, list[Names]], list[Names]]
    data: Callable[[random.Random, File], bytes]


def _all_names(_chance: random.Random, pending: list[Names]) -> list[Names]:
    return pending


def _no_names(_chance: random.Random, _pending: list[Names]) -> list[Names]:
    return []


def _some_names(chance: random.Random, pending: list[Names]) -> list[Names]:
    return pending[: chance.randint(0, len(pending))]


def _all_data(_chance: random.Random, file: File) -> bytes:
    return bytes(file.live)


def _no_data(_chance: random.Random, file: File) -> bytes:
    return bytes(file.durable)


def _sizes_only(_chance: random.Random, file: File) -> bytes:
    return bytes(file.durable) + bytes(max(len(file.live) - len(file.durable), 0))


def _some_data(chance: random.Random, file: File) -> bytes:
    """Let each sector be as it was after any of the writes; the file's length likewise."""
    versions = [bytes(file.durable)]
    for change in file.pending:
        content = bytearray(versions[-1])
        apply_to(content, change)
        versions.append(bytes(content))
    size = len(chance.choice(versions))
    sectors = (chance.choice(versions)[at : at + SECTOR] for at in range(0, size, SECTOR))
    return b"".join(sector.ljust(SECTOR, b"\0") for sector in sectors)[:size]


KILL = Way("kill", _all_names, _all_data)
NOTHING = Way("nothing unsynced", _no_names, _no_data)
WAYS = (
    KILL,
    NOTHING,
    Way("names without data", _all_names, _no_data),
    Way("names and sizes without data", _all_names, _sizes_only),
    Way("data without names", _no_names, _all_data),
    Way("some of it", _some_names, _some_data),
    Way("all names, some data", _all_names, _some_data),
)


@dataclass
class Moment:
    """The disk after some events, and what was promised by then."""

    at: int
    disk: Disk
    facts: list[Any]
    last: Event | None

    def leave(self, way: Way, folder: Path, seed: int = 0) -> Path:
        """Write out the folder as a crash at this moment may leave it."""
        chance = random.Random(f"{seed}/{self.at}/{way.label}")
        names = copy.deepcopy(self.disk.durable)
        for event in way.names(chance, self.disk.pending):
            rename(names, event)
        folder.mkdir(parents=True)
        self._write(names, ROOT, folder, way, chance)
        return folder

    def _write(
        self, names: dict[int, dict[str, int]], inode: int, folder: Path, way: Way, chance: random.Random
    ) -> None:
        for name, child in sorted(names.get(inode, {}).items()):
            if child < 0:
                (folder / name).mkdir()
                self._write(names, child, folder / name, way, chance)
            else:
                (folder / name).write_bytes(way.data(chance, self.disk.files.get(child, File())))

    @property
    def unsynced(self) -> int:
        """How many changes the disk may lose."""
        return len(self.disk.pending) + sum(len(file.pending) for file in self.disk.files.values())

    def kept(self) -> Self:
        """Return a copy that further steps do not change."""
        return copy.deepcopy(self)

    def __str__(self) -> str:
        last = self.last
        shown = last._replace(data=b"%d bytes" % len(last.data)) if isinstance(last, Write) else last
        return f"after event {self.at}: {shown}"


def _tree(names: dict[int, dict[str, int]], inode: int, folder: Path) -> Iterator[tuple[Path, int]]:
    for name, child in sorted(names.get(inode, {}).items()):
        yield folder / name, child
        yield from _tree(names, child, folder / name)


def settled(folder: Path, facts: Sequence[Any] = ()) -> Moment:
    """Return the moment at which a folder is on disk as it is, with what was promised before."""
    disk, numbers = Disk(), {folder: ROOT}
    for number, path in enumerate(sorted(folder.rglob("*")), 1):
        numbers[path] = -number if path.is_dir() else number
        rename(disk.durable, Names(((numbers[path.parent], path.name, numbers[path]),)))
        if path.is_dir():
            disk.durable.setdefault(-number, {})
        else:
            disk.files[number] = File(bytearray(path.read_bytes()), bytearray(path.read_bytes()))
    disk.live = copy.deepcopy(disk.durable)
    return Moment(0, disk, list(facts), None)
