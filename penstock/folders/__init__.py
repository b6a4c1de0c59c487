"""Folders of files, wherever they are: what checkpoints and savepoints are kept in."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Protocol

from penstock.folders.local import LocalFolder

__all__ = ["Folder", "LocalFolder", "folder"]


class Folder(Protocol):
    """A folder on this disk or at a URL; it travels to tasks, so it pickles.

    Names may hold "/"; a folder exists as soon as a file is in it. Its text is its address, without secrets.
    """

    @property
    def url(self) -> str:
        """Its address, from which `folder` makes it again."""

    @property
    def local(self) -> Path | None:
        """The folder as a path, if it is on this machine's disk."""

    @property
    def hadoop(self) -> str:
        """Its address as Hadoop, and so Spark, writes it."""

    def __truediv__(self, name: str) -> Folder:
        """Return a folder in it."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none."""

    def write(self, name: str, data: bytes, *, once: bool = False, sync: bool = True) -> None:
        """Write a file durably, all of it or nothing; `once` raises FileExistsError if it is there already.

        With `sync=False` a power cut, unlike a crash of this process, may lose it.
        """

    def names(self) -> list[str]:
        """Return the names of the files and folders right in it, sorted; none if it is not there."""

    def files(self) -> dict[str, int]:
        """Return all files below it, by their path from here, with their sizes."""

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder, if it is there."""

    def copy(self, names: Iterable[str], to: Folder) -> None:
        """Put files into another folder under the same names; files never change, so a link will do."""


def folder(where: str | Path | Folder) -> Folder:
    """Return the folder at a path or URL; `memory:NAME` is one that ends with this process.

    >>> (folder("file:///lake") / "vwap").url
    '/lake/vwap'
    >>> (folder("s3a://lake/jobs") / "vwap").url
    's3://lake/jobs/vwap'
    """
    if not isinstance(where, str | Path):
        return where
    # Path would make one slash of two.
    scheme, colon, rest = re.sub(r"^(\w+):/(?!/)", r"\1://", str(where)).partition(":")
    if scheme == "memory" and colon:
        return _in_memory(rest)
    if scheme == "file" and colon:
        return LocalFolder("/" + rest.lstrip("/"))
    if not rest.startswith("//") or not re.fullmatch(r"[a-z][a-z0-9+.-]+", scheme):
        return LocalFolder(where)
    return _remote(_SAME.get(scheme, scheme), rest.rstrip("/"))


_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def _remote(scheme: str, rest: str) -> Folder:
    # Libraries of stores are not loaded by those who keep everything on their disk.
    from penstock.folders.arrow import ArrowFolder
    from penstock.folders.objects import SCHEMES, ObjectFolder

    return ObjectFolder.at(f"{scheme}:{rest}") if scheme in SCHEMES else ArrowFolder(f"{scheme}:{rest}")


@cache
def _in_memory(name: str) -> LocalFolder:
    path = tempfile.mkdtemp(prefix="penstock-memory-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return LocalFolder(path)
