"""Where a file sink's files are: a folder of this disk, or a prefix of an object store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

OWN = "_penstock"
STAGED = f"{OWN}/staged"
LEDGERS = f"{OWN}/ledger"


@dataclass(frozen=True)
class Found:
    """A file that a listing shows."""

    size: int
    age: float


class Outrun(Exception):
    """A small file is not of the version that was to be replaced."""


class Place(Protocol):
    """Files by their name from here; "/" parts folders. What it raises, `failures` turns into errors for users."""

    url: str

    def check(self) -> None:
        """Raise what the first write would raise."""

    def scratch(self, folder: str) -> str:
        """Return a path of this machine for a file that is to be `put`; if it stays here, in this folder."""

    def put(self, path: str, name: str) -> None:
        """Make a scratch file appear under a name, whole."""

    def fetched(self, names: Sequence[str]) -> AbstractContextManager[list[str]]:
        """Lend the files as paths of this machine; FileNotFoundError if one is gone."""

    def harden(self, names: Iterable[str]) -> None:
        """Have files and their names survive a power cut; FileNotFoundError if one is gone."""

    def show(self, moves: Sequence[tuple[str, str]]) -> None:
        """Give files new names, and have those survive a power cut; what is gone was moved before."""

    def settle(self, names: Iterable[str]) -> None:
        """Have what was shown or removed under these names, maybe by a process that was killed, survive a power cut."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, those that are there."""

    def files(self, below: str) -> dict[str, Found]:
        """Return all files below a folder; with "" all but Penstock's own."""

    def read(self, name: str) -> tuple[bytes, Any] | None:
        """Return a small file and its version, or None if there is none."""

    def swap(self, name: str, data: bytes, version: Any) -> Any:
        """Replace a small file of this version (None: there is none) and return the new one, else raise Outrun."""

    def failures(self, node: str) -> AbstractContextManager[None]:
        """Turn what goes wrong inside into errors of the node."""


def staged_name(folder: str) -> str:
    """Return a new name, without the ending of the format: a reader's `**/*.parquet` must not match it."""
    return f"{folder}/{uuid4().hex}.staged"
