"""A model of power loss: what of a folder may be on the disk after a cut, given the order of writes and fsyncs.

`Recorder` watches a folder while real code works in it. It notes each change of a name (create, rename, link, remove,
mkdir, rmdir), each change of a file's content, and each fsync of a file or folder. `Recording.states` then yields what
a cut at any moment may leave:

- Content that was not fsynced is lost, half there or there. What was there before the change stays.
- A name that was changed since its folder was fsynced has changed or not; each such change on its own. A rename is
  atomic: the file is never lost from both names, but after a rename to another folder it may be under both.
- A folder whose own name is lost takes all below it along.

Files are followed by their inode, and compared before and after each call, so it does not matter who wrote them.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.storage import durable_files as durable
from tests.connectors.files.crashes import Killed

Name = tuple[str, str]
"""A folder, by its path from the root, and a name in it."""
FOLDER = -1
_CALLS = ("fsync", "replace", "rename", "link", "remove", "unlink", "mkdir", "rmdir")
# Up to so many changes of names, all sets of them are tried; of more, each alone and each left out.
_ALL_SETS = 4


@dataclass(frozen=True)
class Named:
    """Names changed at once: to a file, to a folder, or to nothing. One that `needs` another cannot come before it."""

    changes: tuple[tuple[Name, int | None], ...]
    needs: Named | None = None

    @property
    def folder(self) -> str:
        return self.changes[0][0][0]


@dataclass(frozen=True)
class Written:
    """The content of a file changed."""

    file: int
    content: bytes


@dataclass(frozen=True)
class Synced:
    """A file, or the names in a folder, are on the disk."""

    what: int | str


@dataclass(frozen=True)
class Mark:
    """Something that the test wants to remember, such as that a commit returned."""

    what: Any


Event = Named | Written | Synced | Mark


@dataclass
class State:
    """What a power cut may leave: files by their path, folders, and what was marked before."""

    files: dict[str, bytes]
    folders: set[str]
    marks: tuple[Any, ...]
    said: str = ""

    @property
    def key(self) -> object:
        return tuple(sorted(self.files.items())), tuple(sorted(self.folders)), self.marks

    def put(self, root: Path) -> None:
        """Make it a folder."""
        for folder in sorted(self.folders):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for path, content in self.files.items():
            (root / path).write_bytes(content)


@dataclass
class Recording:
    """What was done, in order."""

    events: list[Event] = field(default_factory=list)

    def mark(self, what: Any) -> None:
        self.events.append(Mark(what))

    def states(self, since: int = 0, few: bool = False) -> Iterator[State]:
        """Yield each different state that a cut after one of the events may leave; `few` tries fewer of them."""
        disk, seen = _Disk(), set()
        for number, event in enumerate(self.events):
            disk.do(event)
            for state in disk.states(few) if number >= since else ():
                if state.key not in seen:
                    seen.add(state.key)
                    state.said = f"after event {number} ({event}): {state.said}"
                    yield state


class _Disk:
    """What is on the disk for certain, and what may be."""

    def __init__(self) -> None:
        self._names: list[Named] = []
        self._pending: list[Named] = []
        self._safe: dict[int, bytes] = {}
        self._now: dict[int, bytes] = {}
        self._marks: tuple[Any, ...] = ()

    def do(self, event: Event) -> None:
        match event:
            case Mark(what):
                self._marks += (what,)
            case Written(file, content):
                self._now[file] = content
            case Named():
                self._pending.append(event)
            case Synced(int(file)):
                self._safe[file] = self._now.get(file, b"")
            case Synced(str(folder)):
                self._names += [one for one in self._pending if one.folder == folder]
                self._pending = [one for one in self._pending if one.folder != folder]

    def states(self, few: bool) -> Iterator[State]:
        for chosen in _sets(self._pending, few):
            kept = [one for one in chosen if one.needs not in self._pending or one.needs in chosen]
            for how in (_lost, _whole) if few else (_lost, _torn, _whole):
                content = {file: how(self._safe.get(file, b""), now) for file, now in self._now.items()}
                said = f"{len(kept)} of {len(self._pending)} changes of names, content {how.__name__[1:]}"
                yield self._tree([*self._names, *kept], content, said)

    def _tree(self, names: Sequence[Named], content: Mapping[int, bytes], said: str) -> State:
        entries: dict[Name, int | None] = {}
        for one in names:
            entries |= dict(one.changes)
        files, folders, waiting = {}, set[str](), [""]
        below: dict[str, list[tuple[str, int]]] = {}
        for (folder, name), what in entries.items():
            if what is not None:
                below.setdefault(folder, []).append((name, what))
        while waiting:
            folder = waiting.pop()
            for name, what in below.get(folder, []):
                path = os.path.join(folder, name)
                if what == FOLDER:
                    folders.add(path)
                    waiting.append(path)
                else:
                    files[path] = content.get(what, b"")
        return State(files, folders, self._marks, said)


def _lost(safe: bytes, now: bytes) -> bytes:
    return safe


def _whole(safe: bytes, now: bytes) -> bytes:
    return now


def _torn(safe: bytes, now: bytes) -> bytes:
    same = next(
        (n for n, (old, new) in enumerate(zip(safe, now, strict=False)) if old != new), min(len(safe), len(now))
    )
    return now[: same + (len(now) - same) // 2] if now != safe else safe


def _sets(pending: Sequence[Named], few: bool) -> Iterator[list[Named]]:
    yield list(pending)
    if not pending:
        return
    if len(pending) <= _ALL_SETS and not few:
        for size in range(len(pending)):
            yield from map(list, itertools.combinations(pending, size))
        return
    yield []
    for number in range(len(pending)):
        yield [one for n, one in enumerate(pending) if n != number]
        if not few:
            yield [pending[number]]


class Recorder:
    """Watches a folder; `recording` is what was seen."""

    def __init__(self, root: Path) -> None:
        self.recording = Recording()
        self._root = str(root)
        self._lock = threading.RLock()
        self._tree: dict[str, int] = {}
        self._inodes: dict[int, int] = {}
        self._content: dict[int, bytes] = {}
        self._numbers = itertools.count()
        self._last: int | None = None

    @contextmanager
    def watching(self) -> Iterator[Recording]:
        """Record what happens inside; the code under test knows nothing of it."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _CALLS:
                patch.setattr(os, name, self._seen(name, getattr(os, name)))
            self._begin()
            yield self.recording
            self._notice()

    @contextmanager
    def killed_at(self, events: int) -> Iterator[None]:
        """End the process inside as soon as so many events were seen; what it did is there, synced or not."""
        self._last = events
        with suppress(Killed):
            yield
        self._last = None
        # The next process does not know what this one has synced.
        durable._synced.clear()

    def _begin(self) -> None:
        """What is there already is on the disk; what this process has settled elsewhere does not count here."""
        durable._synced.clear()
        self._notice()
        there = [Synced(path) for path, what in self._tree.items() if what == FOLDER]
        files = [Synced(what) for what in self._tree.values() if what != FOLDER]
        self.recording.events += [Synced(""), *there, *files]

    def _seen(self, name: str, really: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            with self._lock:
                self._notice()
                self._end_here()
                done = really(*args, **options)
                if name == "fsync":
                    self._synced(args[0])
                else:
                    self._notice(at_once=name in ("replace", "rename"))
                self._end_here()
                return done

        return call

    def _end_here(self) -> None:
        if self._last is not None and len(self.recording.events) >= self._last:
            raise Killed

    def _synced(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path != self._root and not path.startswith(f"{self._root}/"):
            return
        name = os.path.relpath(path, self._root)
        if os.path.isdir(path):
            self.recording.events.append(Synced("" if name == "." else name))
        else:
            self.recording.events.append(Synced(self._inodes[os.fstat(handle).st_ino]))

    def _notice(self, at_once: bool = False) -> None:
        """Note what has changed since the last time."""
        before, self._tree = self._tree, {}
        inodes, self._inodes = self._inodes, {}
        for at, folders, names in os.walk(self._root):
            here = os.path.relpath(at, self._root)
            for name in folders:
                self._tree[os.path.normpath(os.path.join(here, name))] = FOLDER
            for name in names:
                self._file(os.path.join(at, name), os.path.normpath(os.path.join(here, name)), inodes)
        gone = [(path, None) for path in before if path not in self._tree]
        made = [(path, what) for path, what in self._tree.items() if before.get(path) != what]
        self._named(made, gone, at_once)

    def _file(self, path: str, name: str, inodes: Mapping[int, int]) -> None:
        inode = os.stat(path).st_ino
        file = self._inodes.get(inode, inodes.get(inode))
        if file is None:
            file = next(self._numbers)
        self._inodes[inode] = self._tree[name] = file
        content = Path(path).read_bytes()
        if self._content.get(file) != content:
            self._content[file] = content
            self.recording.events.append(Written(file, content))

    def _named(self, made: list[tuple[str, int]], gone: list[tuple[str, None]], at_once: bool) -> None:
        new = [(os.path.split(path), what) for path, what in made]
        old = [(os.path.split(path), None) for path, _ in gone]
        if at_once and len(new) == len(old) == 1:
            if new[0][0][0] == old[0][0][0]:
                self.recording.events.append(Named((new[0], old[0])))
                return
            there = Named((new[0],))
            self.recording.events += [there, Named((old[0],), needs=there)]
            return
        self.recording.events += [Named((change,)) for change in (*new, *old)]
