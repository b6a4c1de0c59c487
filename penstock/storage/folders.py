"""Folders of small files, local or remote: the storage of checkpoints and savepoints."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from penstock.storage import durable_files as durable
from penstock.storage.durable_files import make_folders
from penstock.storage.store_urls import SCHEMES

__all__ = ["Folder", "LocalFolder", "folder"]
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


@dataclass(frozen=True, init=False)
class LocalFolder:
    """A folder on a local or shared disk."""

    local: Path

    def __init__(self, path: str | Path) -> None:
        object.__setattr__(self, "local", Path(path).absolute())

    @property
    def url(self) -> str:
        """Its path."""
        return str(self.local)

    @property
    def hadoop(self) -> str:
        """Its path: Spark sees the same disk."""
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
            # Other processes may remove files concurrently.
            with contextlib.suppress(FileNotFoundError):
                found[str(path.relative_to(self.local))] = path.stat().st_size
        return found

    def remove(self, name: str) -> None:
        """Remove a file or a folder with its content, if it exists."""
        path = self.local / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def copy(self, names: Iterable[str], to: Folder) -> None:
        """Link files where both are on one disk, else copy them; then sync, because the writer may not have done so."""
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


class Folder(Protocol):
    """A folder on a local disk or at a URL. It can be pickled.

    Names may contain "/"; a folder exists as soon as it has a file. Its string is its URL, without secrets.
    """

    @property
    def url(self) -> str:
        """Its URL, from which `folder` recreates it."""

    @property
    def local(self) -> Path | None:
        """The path of a local folder, else None."""

    @property
    def hadoop(self) -> str:
        """Its URL for Hadoop and Spark."""

    def __truediv__(self, name: str) -> Folder:
        """Return a subfolder."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none."""

    def write(self, name: str, data: bytes, *, once: bool = False, sync: bool = True) -> None:
        """Write a file durably and atomically; with `once`, raise FileExistsError if it exists.

        With `sync=False` a power cut, unlike a crash of this process, may lose it.
        """

    def names(self) -> list[str]:
        """Return the sorted names of its files and subfolders; empty if it does not exist."""

    def files(self) -> dict[str, int]:
        """Return all files below it, by their path from here, with their sizes."""

    def remove(self, name: str) -> None:
        """Remove a file or a folder with its content, if it exists."""

    def copy(self, names: Iterable[str], to: Folder) -> None:
        """Copy or link files to another folder under the same names; files never change."""


def folder(where: str | Path | Folder) -> Folder:
    """Return the folder at a path or URL; `memory:NAME` is a temporary one of this process.

    >>> (folder("file:///lake") / "vwap").url
    '/lake/vwap'
    >>> (folder("s3a://lake/jobs") / "vwap").url
    's3://lake/jobs/vwap'
    """
    if not isinstance(where, str | Path):
        return where
    # Path collapses a double slash.
    scheme, colon, rest = re.sub(r"^(\w+):/(?!/)", r"\1://", str(where)).partition(":")
    if scheme == "memory" and colon:
        return _in_memory(rest)
    if scheme == "file" and colon:
        return LocalFolder("/" + rest.lstrip("/"))
    if not rest.startswith("//") or not re.fullmatch(r"[a-z][a-z0-9+.-]+", scheme):
        return LocalFolder(where)
    return _remote(_SAME.get(scheme, scheme), rest.rstrip("/"))


def _remote(scheme: str, rest: str) -> Folder:
    # Libraries of object stores are only loaded if needed.
    from penstock.storage.hadoop_folders import HadoopFolder
    from penstock.storage.object_folders import ObjectFolder

    return ObjectFolder.at(f"{scheme}:{rest}") if scheme in SCHEMES else HadoopFolder(f"{scheme}:{rest}")


@cache
def _in_memory(name: str) -> LocalFolder:
    path = tempfile.mkdtemp(prefix="penstock-memory-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return LocalFolder(path)
