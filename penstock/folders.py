"""Folders of files, wherever they are: what checkpoints and savepoints are kept in."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol


class Folder(Protocol):
    """A folder on this disk or at a URL; it travels to tasks, so it pickles.

    Names may hold "/"; a folder exists as soon as a file is in it.
    """

    url: str

    @property
    def local(self) -> Path | None:
        """The folder as a path, if it is on this machine's disk."""

    def __truediv__(self, name: str) -> Folder:
        """Return a folder in it."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none."""

    def write(self, name: str, data: bytes, *, once: bool = False) -> None:
        """Write a file durably, all of it or nothing; `once` raises FileExistsError if it is there already."""

    def names(self) -> list[str]:
        """Return the names of the files and folders right in it, sorted; none if it is not there."""

    def files(self) -> dict[str, int]:
        """Return all files below it, by their path from here, with their sizes."""

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder, if it is there."""

    def copy(self, names: Iterable[str], to: Folder) -> None:
        """Put files into another folder under the same names; files never change, so a link will do."""


class LocalFolder:
    """A folder on this machine's disk."""

    def __init__(self, path: str | Path) -> None:
        self.local: Path = Path(path).absolute()
        self.url = str(self.local)

    def __truediv__(self, name: str) -> LocalFolder:
        return LocalFolder(self.local / name)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none."""
        try:
            return (self.local / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes, *, once: bool = False) -> None:
        """Write a file durably, all of it or nothing."""
        path = self.local / name
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with scratch.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if once:
            try:
                os.link(scratch, path)
            finally:
                scratch.unlink()
        else:
            os.replace(scratch, path)
        _sync(path.parent)

    def names(self) -> list[str]:
        """Return the names of the files and folders right in it, sorted."""
        return sorted(os.listdir(self.local)) if self.local.is_dir() else []

    def files(self) -> dict[str, int]:
        """Return all files below it with their sizes."""
        found = (Path(at, name) for at, _, names in os.walk(self.local) for name in names)
        return {str(path.relative_to(self.local)): path.stat().st_size for path in found if path.exists()}

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder, if it is there."""
        path = self.local / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)

    def copy(self, names: Iterable[str], to: Folder) -> None:
        """Link files where both are on one disk, else copy them."""
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


def folder(url: str | Path) -> Folder:
    """Return the folder at a path or URL."""
    return LocalFolder(str(url).removeprefix("file://"))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
