"""Spark's checkpoint of one query: its offset log, its commit log, and the files of its state stores.

offsets/N  epoch N is planned: the end offset of each source      commits/N  epoch N is committed: every sink has it
state/OPERATOR/PARTITION[/STORE]/V.*                              the state before epoch V, that is after epoch V - 1

A version of state is a snapshot (or nothing, as version 0) and the changes of each epoch since.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from penstock.errors import CheckpointDamaged
from penstock.storage.folders import Folder

_STATE = re.compile(r"state/(?P<store>.+)/(?P<version>\d+)(_[^./]+)?\.(?P<kind>delta|snapshot|changelog|zip)")
_STATE_METADATA = re.compile(r"state/(.+/)?_metadata/.+")
_SNAPSHOTS = ("snapshot", "zip")


@dataclass
class StateStoreFiles:
    """The state of one operator in one partition: its files by version.

    On an object store each attempt of a task has files of its own.
    """

    path: str
    changes: dict[int, list[str]] = field(default_factory=dict)
    snapshots: dict[int, list[str]] = field(default_factory=dict)

    @property
    def operator(self) -> int:
        """The number that Spark gave the operator."""
        return int(self.path.split("/")[0])

    @property
    def versions(self) -> list[int]:
        """All versions that have a file."""
        return sorted({*self.changes, *self.snapshots})

    def chains(self, version: int) -> Iterator[list[str]]:
        """Yield the lists of files that a version can be built from; Spark uses the first, with the newest snapshot."""
        for base in [*sorted((v for v in self.snapshots if v <= version), reverse=True), 0]:
            steps = range(base + 1, version + 1)
            if all(step in self.changes for step in steps):
                yield [*self.snapshots.get(base, []), *(name for step in steps for name in self.changes[step])]


class History:
    """Spark's folder of one query, as it was listed: `logged` epochs are planned, `committed` ones are finished."""

    def __init__(self, folder: Folder, operators: int = 0) -> None:
        """List the folder; `operators` is the number of stateful operators, 0 if it is unknown."""
        self.folder, self.operators = folder, operators
        # A running job writes the state of an epoch before its commit, so commits must be listed first.
        self.committed = committed_epochs(folder)
        self.files = folder.files()
        self.logged = _epochs_in("offsets", self.files)

    def without(self, names: Collection[str]) -> History:
        """Return the history as it will be without these files."""
        left = History.__new__(History)
        left.folder, left.operators = self.folder, self.operators
        left.files = {name: size for name, size in self.files.items() if name not in names}
        left.committed, left.logged = _epochs_in("commits", left.files), _epochs_in("offsets", left.files)
        return left

    @cached_property
    def stores(self) -> list[StateStoreFiles]:
        """Every state store, by operator and partition."""
        found: dict[str, StateStoreFiles] = {}
        for name in self.files:
            if (match := _STATE.fullmatch(name)) and not match["store"].endswith("SSTs"):
                store = found.setdefault(match["store"], StateStoreFiles(match["store"]))
                versions = store.snapshots if match["kind"] in _SNAPSHOTS else store.changes
                versions.setdefault(int(match["version"]), []).append(name)
        for path in self._expected(found) if self.committed else ():
            found.setdefault(path, StateStoreFiles(path))
        return sorted(found.values(), key=lambda store: [(len(part), part) for part in store.path.split("/")])

    def _expected(self, found: Iterable[str]) -> Iterator[str]:
        """Yield the stores that must exist: every partition of an operator has its own.

        Spark numbers operators from 0; if no file of any operator is left, only the first one is expected.
        """
        paths = [path.split("/") for path in found]
        newest = max((int(path[0]) for path in paths), default=0 if self.operators else -1)
        for operator in range(newest + 1):
            mine = [path for path in paths if path[0] == str(operator)]
            stores, partitions = self._stores_and_partitions(operator)
            names = {"/".join(path[2:]) for path in mine} | stores or {""}
            count = max([partitions, 1, *(int(path[1]) + 1 for path in mine)])
            yield from (f"{operator}/{one}/{name}".rstrip("/") for one in range(count) for name in names)

    def _stores_and_partitions(self, operator: int) -> tuple[set[str], int]:
        """Return the names of an operator's stores and the number of its partitions, from its metadata."""
        try:
            found = self.operator_metadata(f"state/{operator}/_metadata/metadata")["stateStoreInfo"]
            names = {str(one["storeName"]) for one in found}
            return {"" if name == "default" else name for name in names}, int(found[0]["numPartitions"])
        except (FileNotFoundError, CheckpointDamaged, ValueError, KeyError, IndexError, TypeError):
            return set(), 0

    @cached_property
    def repartitioned(self) -> bool:
        """Whether the retained epochs differ in the number of partitions."""
        found = set()
        for epoch in self.logged:
            with suppress(FileNotFoundError, CheckpointDamaged, ValueError, KeyError):
                found.add(self.header(epoch)["conf"]["spark.sql.shuffle.partitions"])
        return len(found) > 1

    @property
    def last(self) -> int:
        """The newest epoch that was planned, or -1; a committed epoch counts even if its offsets are lost."""
        return max((*self.logged, *self.committed), default=-1)

    @property
    def missing_offsets(self) -> list[str]:
        """The missing ones of the offset files that Spark will read: those of the two newest epochs."""
        wanted = (epoch for epoch in (self.last - 1, self.last) if epoch >= 0)
        return [f"offsets/{epoch}" for epoch in wanted if epoch not in self.logged]

    @property
    def unfinished_state(self) -> list[str]:
        """The state files of an epoch that is not committed, which a killed run has left."""
        newest = max(self.committed, default=-1)
        return [name for name in self.files if state_version(name) > newest + 1]

    @property
    def state_metadata(self) -> list[str]:
        """The metadata files of the state: operators and schemas."""
        return [name for name in self.files if _STATE_METADATA.fullmatch(name) and not is_checksum(name)]

    def offsets(self, epoch: int) -> list[Any]:
        """Return the end offset of each source in an epoch, in Spark's order of sources; None for one not yet read."""
        return [json.loads(line) if line != "-" else None for line in self._lines(f"offsets/{epoch}")[2:]]

    def header(self, epoch: int) -> dict[str, Any]:
        """Return the metadata of a planned epoch: watermark, time, and settings."""
        return self._json(f"offsets/{epoch}")

    def commit(self, epoch: int) -> dict[str, Any]:
        """Return what Spark wrote when it committed an epoch."""
        return self._json(f"commits/{epoch}")

    def operator_metadata(self, name: str) -> dict[str, Any]:
        """Return the content of an operator's metadata file."""
        return self._json(name)

    def shared_files(self, zipped: str, data: bytes | None = None) -> dict[str, int]:
        """Return the files that a RocksDB snapshot shares with other snapshots, and their sizes."""
        content = self.read(zipped) if data is None else data
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                metadata = json.loads(archive.read("metadata").decode().split("\n", 1)[1])
        except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, IndexError) as error:
            raise self._damaged(zipped) from error
        below = zipped.rpartition("/")[0]
        tables = [(f"{below}/SSTs/{one['dfsSstFileName']}", one["sizeBytes"]) for one in metadata.get("sstFiles", [])]
        logs = [(f"{below}/logs/{one['dfsLogFileName']}", one["sizeBytes"]) for one in metadata.get("logFiles") or []]
        return dict(tables + logs)

    def read(self, name: str) -> bytes:
        """Return a file's content; FileNotFoundError if it is missing."""
        data = self.folder.read(name)
        if data is None:
            message = f"{self.folder.url}/{name}"
            raise FileNotFoundError(message)
        return data

    def with_checksums(self, names: list[str]) -> list[str]:
        """Add the checksum files that Hadoop writes on a local disk."""
        return [one for name in names for one in (name, checksum_of(name)) if one in self.files]

    def files_to_resume(self, epoch: int) -> list[str]:
        """Return the files that Spark needs to continue after an epoch: logs of it and of the one before, and state."""
        logs = [f"{log}/{one}" for log in ("offsets", "commits") for one in (epoch - 1, epoch)]
        names = [name for name in (*logs, "metadata", *self.state_metadata) if name in self.files]
        for store in self.stores:
            names += self.state_files(store, epoch)
        return names

    def state_files(self, store: StateStoreFiles, epoch: int) -> list[str]:
        """Return the files of a store's state after an epoch; raises if some are missing."""
        names = next(store.chains(epoch + 1), None)
        if names is None:
            message = f"{self.folder}: the state after epoch {epoch} is incomplete in state/{store.path}"
            raise CheckpointDamaged(message, hint="`penstock checkpoints` shows the epochs with complete state")
        shared = [file for name in names if name.endswith(".zip") for file in self.shared_files(name)]
        return names + shared

    def _lines(self, name: str) -> list[str]:
        lines = self.read(name).decode().splitlines()
        if len(lines) < 2 or not re.fullmatch(r"v\d+", lines[0]):
            raise self._damaged(name)
        return lines

    def _damaged(self, name: str) -> CheckpointDamaged:
        message = f"{self.folder}/{name} is damaged"
        return CheckpointDamaged(message, hint="`penstock checkpoints` shows what is left")

    def _json(self, name: str) -> dict[str, Any]:
        found = json.loads(self._lines(name)[1])
        if not isinstance(found, dict):
            raise self._damaged(name)
        return found


def query_names(data: Folder) -> list[str]:
    """Return the queries of a checkpoint that have offsets or state."""
    return [name for name in (data / "queries").names() if not name.startswith(".")]


def committed_epochs(query: Folder) -> list[int]:
    """Return the epochs that Spark has committed and whose commits it retains."""
    return _epochs((query / "commits").names())


def checksum_of(name: str) -> str:
    """Return the path of the checksum file that Hadoop writes for a file.

    >>> checksum_of("offsets/3")
    'offsets/.3.crc'
    """
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}.crc"


def is_checksum(name: str) -> bool:
    """Return whether a file is one of Hadoop's checksum files."""
    file = name.rpartition("/")[2]
    return file.startswith(".") and file.endswith(".crc")


def state_version(name: str) -> int:
    """Return the version of a file of a state store; -1 for other files.

    >>> state_version("state/0/1/3.delta"), state_version("offsets/3")
    (3, -1)
    """
    match = _STATE.fullmatch(name)
    return int(match["version"]) if match and not match["store"].endswith("SSTs") else -1


def _epochs_in(log: str, files: Iterable[str]) -> list[int]:
    return _epochs(name.removeprefix(f"{log}/") for name in files if name.startswith(f"{log}/"))


def _epochs(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if name.isdigit())
