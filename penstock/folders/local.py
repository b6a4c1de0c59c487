"""Folders on this machine's disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.folders import durable
from penstock.folders.durable import make_folders

if TYPE_CHECKING:
    from penstock.folders import Folder


@dataclass(frozen=True, init=False)
class LocalFolder:
    """A folder on this machine's disk, or on one that it shares."""

    local: Path

    def __init__(self, path: str | Path) -> None:
        object.__setattr__(self, "local", Path(path).absolute())

    @property
    def url(self) -> str:
        """Its path."""
        return str(self.local)

    @property
    def hadoop(self) -> str:
        """Its path too: Spark runs where this disk is seen."""
        return str(self.local)

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> LocalFolder:
        return LocalFolder(self.local / name)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none."""
        try:
            return (self.local / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes, *, once: bool = False, sync: bool = True) -> None:
        """Write a file, all of it or nothing."""
        path = self.local / name
        make_folders([path.parent]) if sync else path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with scratch.open("wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.link(scratch, path) if once else os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)
        if sync:
            durable.sync(path.parent)

    def names(self) -> list[str]:
        """Return the names of the files and folders right in it, sorted."""
        try:
            return sorted(os.listdir(self.local))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files(self) -> dict[str, int]:
        """Return all files below it with their sizes."""
        found: dict[str, int] = {}
        for path in (Path(at, name) for at, _, names in os.walk(self.local) for name in names):
            # Others may remove files meanwhile.
            with contextlib.suppress(FileNotFoundError):
                found[str(path.relative_to(self.local))] = path.stat().st_size
        return found

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder, if it is there."""
        path = self.local / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def copy(self, names: Iterable[str], to: Folder) -> None:
        """Link files where both are on one disk, else copy them; who wrote them may not have synced them."""
        copied = []
        for name in names:
            if to.local is None:
                to.write(name, (self.local / name).read_bytes())
                continue
            target = to.local / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(self.local / name, target)
            except OSError:
                shutil.copyfile(self.local / name, target)
            copied.append(target)
        folders = {target.parent for target in copied}
        make_folders(folders)
        durable.sync_all(map(str, (*copied, *folders)))
