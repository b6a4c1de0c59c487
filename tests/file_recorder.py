"""Notes what Python code does to the files of one folder, for the model of power loss in tests/powerloss.py."""

from __future__ import annotations

import builtins
import copy
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.powerloss import ROOT, Cut, Disk, Event, Mark, Moment, Names, Sync, Write


class Recorder:
    """Notes what happens to the files of a folder while it is entered. Folders have negative inodes."""

    def __init__(self, folder: Path, after: Moment | None = None) -> None:
        self.folder = folder.absolute()
        self.events: list[Event] = []
        self._start = after.kept() if after else Moment(0, Disk(), [], None)
        self._live = copy.deepcopy(self._start.disk)
        self._next = 1 + max((abs(each) for table in self._live.live.values() for each in table.values()), default=0)
        self._open: dict[int, tuple[int, Path]] = {}
        self._lock = threading.RLock()
        self._real: dict[tuple[Any, str], Any] = {}

    def mark(self, fact: Any) -> None:
        """Note a promise, in its place among the events."""
        with self._lock:
            self.events.append(Mark(fact))

    def moments(self, first: int = 0) -> Iterator[Moment]:
        """Yield the moment before each change and the last one. It changes with the next step: see `Moment.kept`."""
        disk, facts, last = copy.deepcopy(self._start.disk), list(self._start.facts), None
        for at, event in enumerate(self.events):
            if not isinstance(event, Mark) and at >= first:
                yield Moment(at, disk, facts, last)
            if isinstance(event, Mark):
                facts.append(event.fact)
            else:
                disk.apply(event)
                last = event
        yield Moment(len(self.events), disk, facts, last)

    def __enter__(self) -> Self:
        patches: dict[tuple[Any, str], Any] = {(os, name): getattr(self, f"_{name}") for name in _WATCHED}
        patches[os, "open"] = self._open_fd
        patches |= {(os, "remove"): self._unlink, (builtins, "open"): self._open_file, (io, "open"): self._open_file}
        self._real = {(module, name): getattr(module, name) for module, name in patches}
        for (module, name), patched in patches.items():
            setattr(module, name, patched)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for (module, name), real in self._real.items():
            setattr(module, name, real)

    def _note(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Names):
            self._live.apply(event)

    def _call(self, name: str, *arguments: Any, **more: Any) -> Any:
        return self._real[os, name](*arguments, **more)

    def _inside(self, path: Any, dir_fd: int | None = None) -> Path | None:
        """Return a path relative to the folder; None if it is elsewhere."""
        if isinstance(path, int):
            return None
        whole = Path(os.fsdecode(path))
        if dir_fd is not None:
            found = self._open.get(dir_fd)
            return found[1] / whole if found else None
        whole = Path(os.path.abspath(whole))
        return whole.relative_to(self.folder) if whole.is_relative_to(self.folder) else None

    def _find(self, path: Path) -> int | None:
        inode: int | None = ROOT
        for part in path.parts:
            inode = self._live.live.get(inode if inode is not None else 1 << 62, {}).get(part)
        return inode

    def _place(self, path: Path) -> tuple[int, str]:
        folder = self._find(path.parent)
        assert folder is not None, f"{path} was never created"
        return folder, path.name

    def _new(self, path: Path, sign: int) -> int:
        inode, self._next = sign * self._next, self._next + 1
        self._note(Names(((*self._place(path), inode),)))
        return inode

    def _open_fd(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._lock:
            inside = self._inside(path, dir_fd)
            fd = int(self._call("open", path, flags, mode, dir_fd=dir_fd))
            if inside is not None:
                inode = self._find(inside)
                if inode is None:
                    inode = self._new(inside, 1)
                    self._note(Cut(inode, 0))
                if flags & os.O_TRUNC:
                    self._note(Cut(inode, 0))
                self._open[fd] = inode, inside
            return fd

    def _close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)
            self._call("close", fd)

    def _pwrite(self, fd: int, data: Any, offset: int) -> int:
        with self._lock:
            count = int(self._call("pwrite", fd, data, offset))
            if fd in self._open:
                self._note(Write(self._open[fd][0], offset, bytes(memoryview(data).cast("B")[:count])))
            return count

    def _write(self, fd: int, data: Any) -> int:
        with self._lock:
            count = int(self._call("write", fd, data))
            if fd in self._open:
                end = os.lseek(fd, 0, os.SEEK_CUR)
                self._note(Write(self._open[fd][0], end - count, bytes(memoryview(data).cast("B")[:count])))
            return count

    def _ftruncate(self, fd: int, length: int) -> None:
        with self._lock:
            self._call("ftruncate", fd, length)
            if fd in self._open:
                self._note(Cut(self._open[fd][0], length))

    def _fsync(self, fd: int) -> None:
        # The disk has what was written before the call; what comes while it runs may be too late.
        with self._lock:
            self._call("fsync", fd)
            if fd in self._open:
                self._note(Sync(self._open[fd][0]))

    _fdatasync = _fsync

    def _rename(self, source: Any, target: Any, **more: Any) -> None:
        with self._lock:
            old, new = self._inside(source), self._inside(target)
            self._call("rename", source, target, **more)
            if old is not None and new is not None:
                inode = self._find(old)
                assert inode is not None
                self._note(Names(((*self._place(old), None), (*self._place(new), inode))))

    _replace = _rename

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._lock:
            inside = self._inside(path, dir_fd)
            self._call("unlink", path, dir_fd=dir_fd)
            if inside is not None:
                self._note(Names(((*self._place(inside), None),)))

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._lock:
            inside = self._inside(path, dir_fd)
            self._call("rmdir", path, dir_fd=dir_fd)
            if inside is not None:
                self._note(Names(((*self._place(inside), None),)))

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with self._lock:
            inside = self._inside(path, dir_fd)
            self._call("mkdir", path, mode, dir_fd=dir_fd)
            if inside is not None and inside.parts:
                self._new(inside, -1)

    def _open_file(self, file: Any, mode: str = "r", buffering: int = -1, *more: Any, **named: Any) -> Any:
        if isinstance(file, int) or self._inside(file) is None or not set(mode) & set("wax+"):
            return self._real[builtins, "open"](file, mode, buffering, *more, **named)
        raw = _RawFile(self, file, mode)
        binary = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return binary if "b" in mode else io.TextIOWrapper(binary, *more, **named)


_WATCHED = ("close", "pwrite", "write", "ftruncate", "fsync", "fdatasync", "rename", "replace")
_WATCHED += ("unlink", "rmdir", "mkdir")


class _RawFile(io.RawIOBase):
    """A file opened for writing, each write of which is seen."""

    def __init__(self, recorder: Recorder, path: Any, mode: str) -> None:
        super().__init__()
        flags = os.O_RDWR if "+" in mode else os.O_WRONLY
        flags |= {"w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT | os.O_EXCL, "r": 0}[
            mode.strip("bt+")
        ]
        self._recorder = recorder
        self.name = path
        self._fd = recorder._open_fd(path, flags | os.O_CLOEXEC, 0o666)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: Any) -> int:
        data = os.read(self._fd, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        return self._recorder._write(self._fd, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._fd, offset, whence)

    def truncate(self, size: int | None = None) -> int:
        length = self.tell() if size is None else size
        self._recorder._ftruncate(self._fd, length)
        return length

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._recorder._close(self._fd)
