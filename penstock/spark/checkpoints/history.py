"""What Spark's files of one query say: the epochs that were planned and done, and the state after each.

offsets/N  planned: up to where each source is read      commits/N  done: every sink has it
state/OPERATOR/PARTITION[/STORE]/V.*                     the state before epoch V, that is after epoch V - 1

A version of state is a snapshot (or nothing, as version 0) and the changes of each epoch since.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from penstock.errors import CheckpointDamaged
from penstock.folders import Folder

_STATE = re.compile(r"state/(?P<store>.+)/(?P<version>\d+)(_[^./]+)?\.(?P<kind>delta|snapshot|changelog|zip)")
_ABOUT_STATE = re.compile(r"state/(.+/)?_metadata/.+")
_SNAPSHOTS = ("snapshot", "zip")


@dataclass
class Store:
    """The state of one operator in one partition: its files by version; on an object store an attempt has its own."""

    path: str
    changes: dict[int, list[str]] = field(default_factory=dict)
    snapshots: dict[int, list[str]] = field(default_factory=dict)

    @property
    def operator(self) -> int:
        """The number that Spark gave the operator."""
        return int(self.path.split("/")[0])

    @property
    def versions(self) -> list[int]:
        """All versions that some file is about."""
        return sorted({*self.changes, *self.snapshots})

    def chains(self, version: int) -> Iterator[list[str]]:
        """Yield the ways to build a version, from the newest snapshot back; Spark takes the first."""
        for base in [*sorted((v for v in self.snapshots if v <= version), reverse=True), 0]:
            steps = range(base + 1, version + 1)
            if all(step in self.changes for step in steps):
                yield [*self.snapshots.get(base, []), *(name for step in steps for name in self.changes[step])]


class History:
    """One query's folder, as it was when it was listed."""

    def __init__(self, folder: Folder, operators: int = 0) -> None:
        """List it; it should have the state of so many operators, as far as one knows."""
        self.folder, self.operators = folder, operators
        # Of a job that runs, the state of an epoch is there before its commit: so it must be listed after it.
        self.committed = _epochs((folder / "commits").names())
        self.files = folder.files()
        self.logged = _epochs(name.removeprefix("offsets/") for name in self.files if name.startswith("offsets/"))

    @cached_property
    def stores(self) -> list[Store]:
        """Every store of state, by operator and partition."""
        found: dict[str, Store] = {}
        for name in self.files:
            if (match := _STATE.fullmatch(name)) and not match["store"].endswith("SSTs"):
                store = found.setdefault(match["store"], Store(match["store"]))
                kept = store.snapshots if match["kind"] in _SNAPSHOTS else store.changes
                kept.setdefault(int(match["version"]), []).append(name)
        for path in self._expected(found) if self.committed else ():
            found.setdefault(path, Store(path))
        return sorted(found.values(), key=lambda store: [(len(part), part) for part in store.path.split("/")])

    def _expected(self, found: Iterable[str]) -> Iterator[str]:
        """Yield the stores that have to be there: every partition of an operator has its own.

        Spark numbers operators from 0; where it has left nothing at all, the first one stands for all.
        """
        paths = [path.split("/") for path in found]
        newest = max((int(path[0]) for path in paths), default=0 if self.operators else -1)
        for operator in range(newest + 1):
            mine = [path for path in paths if path[0] == str(operator)]
            stores, partitions = self._described(operator)
            names = {"/".join(path[2:]) for path in mine} | stores or {""}
            count = max([partitions, 1, *(int(path[1]) + 1 for path in mine)])
            yield from (f"{operator}/{one}/{name}".rstrip("/") for one in range(count) for name in names)

    def _described(self, operator: int) -> tuple[set[str], int]:
        """Return the names of an operator's stores and the number of its partitions, as Spark noted them."""
        try:
            found = self.described(f"state/{operator}/_metadata/metadata")["stateStoreInfo"]
            names = {str(one["storeName"]) for one in found}
            return {"" if name == "default" else name for name in names}, int(found[0]["numPartitions"])
        except (FileNotFoundError, CheckpointDamaged, ValueError, KeyError, IndexError, TypeError):
            return set(), 0

    @cached_property
    def repartitioned(self) -> bool:
        """Whether the kept epochs differ in the number of partitions."""
        found = set()
        for epoch in self.logged:
            with suppress(FileNotFoundError, CheckpointDamaged, ValueError, KeyError):
                found.add(self.header(epoch)["conf"]["spark.sql.shuffle.partitions"])
        return len(found) > 1

    @property
    def last(self) -> int:
        """The newest epoch that was begun, or -1; one that is done was, whatever is left of its bounds."""
        return max((*self.logged, *self.committed), default=-1)

    @property
    def missing(self) -> list[str]:
        """The bounds that Spark will ask for, of the newest epoch and the one before it, and that are gone."""
        wanted = (epoch for epoch in (self.last - 1, self.last) if epoch >= 0)
        return [f"offsets/{epoch}" for epoch in wanted if epoch not in self.logged]

    @property
    def about_state(self) -> list[str]:
        """Files that say what the state is: operators and schemas."""
        return [name for name in self.files if _ABOUT_STATE.fullmatch(name) and not is_checksum(name)]

    def offsets(self, epoch: int) -> list[Any]:
        """Return up to where an epoch reads each source, in Spark's order of them; None for a source not yet read."""
        return [json.loads(line) if line != "-" else None for line in self._lines(f"offsets/{epoch}")[2:]]

    def header(self, epoch: int) -> dict[str, Any]:
        """Return what else Spark noted when it planned an epoch: watermark, time, and settings."""
        return self._json(f"offsets/{epoch}")

    def commit(self, epoch: int) -> dict[str, Any]:
        """Return what Spark noted when an epoch was done."""
        return self._json(f"commits/{epoch}")

    def described(self, name: str) -> dict[str, Any]:
        """Return what Spark noted about an operator's state."""
        return self._json(name)

    def tables(self, zipped: str, data: bytes | None = None) -> dict[str, int]:
        """Return the files that a snapshot of RocksDB shares with others, and their sizes."""
        content = self.read(zipped) if data is None else data
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                about = json.loads(archive.read("metadata").decode().split("\n", 1)[1])
        except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, IndexError) as error:
            raise self._damaged(zipped) from error
        below = zipped.rpartition("/")[0]
        shared = [(f"{below}/SSTs/{one['dfsSstFileName']}", one["sizeBytes"]) for one in about.get("sstFiles", [])]
        logs = [(f"{below}/logs/{one['dfsLogFileName']}", one["sizeBytes"]) for one in about.get("logFiles") or []]
        return dict(shared + logs)

    def read(self, name: str) -> bytes:
        """Return a file's content; FileNotFoundError if it is gone."""
        data = self.folder.read(name)
        if data is None:
            message = f"{self.folder.url}/{name}"
            raise FileNotFoundError(message)
        return data

    def with_checksums(self, names: list[str]) -> list[str]:
        """Add the checksums that Hadoop keeps beside the files of a local disk."""
        return [one for name in names for one in (name, checksum_of(name)) if one in self.files]

    def _lines(self, name: str) -> list[str]:
        lines = self.read(name).decode().splitlines()
        if len(lines) < 2 or not re.fullmatch(r"v\d+", lines[0]):
            raise self._damaged(name)
        return lines

    def _damaged(self, name: str) -> CheckpointDamaged:
        message = f"{self.folder}/{name} is not whole"
        return CheckpointDamaged(message, hint="`penstock checkpoints` shows what is left")

    def _json(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._lines(name)[1])
        return found


def checksum_of(name: str) -> str:
    """Return where Hadoop keeps a file's checksum.

    >>> checksum_of("offsets/3")
    'offsets/.3.crc'
    """
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}.crc"


def is_checksum(name: str) -> bool:
    """Say whether a file is a checksum of Hadoop's."""
    file = name.rpartition("/")[2]
    return file.startswith(".") and file.endswith(".crc")


def _epochs(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if name.isdigit())
