"""The run files of a bucket: written once, read by memory mapping, with a checksum that is verified on first use.

A run is in the checkpoint. If that is not a local folder, it is copied to a cache on this machine, which may be deleted
at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa

from penstock.errors import CheckpointDamaged
from penstock.keyed.store.encoding import decode, encode
from penstock.keyed.store.groups import Groups
from penstock.keyed.store.manifest import RunEntry
from penstock.storage.folders import Folder, LocalFolder

MAGIC = b"penstock keyed run 1".ljust(64, b"\0")
SUFFIX = ".run"
_CHECKSUM = 4
_HINT = "`penstock checkpoints` shows the damage; put the file back from a copy, or restore a savepoint if there is one"
# Runs that this process has mapped and verified. A mapping takes no memory of its own, but one of a limited number.
_MOST = 4096
_mapped: OrderedDict[tuple[str, str], Groups] = OrderedDict()


@dataclass(frozen=True)
class RunFolder:
    """The folder of one bucket. Its files never change; only calls of this bucket write and delete them."""

    folder: Folder

    def write(self, groups: Groups, epoch: int, beside: Sequence[RunEntry], owner: str = "") -> RunEntry:
        """Write a run durably, and return its entry; `beside` are the runs that the manifest will have beside it."""
        about = {"epoch": epoch, "beside": [[one.name, one.size, one.checksum] for one in beside]}
        body = [memoryview(MAGIC), *encode(groups, about, indexed=True)]
        checksum = 0
        for piece in body:
            checksum = crc32c.crc32c(piece, checksum)
        name = f"{epoch}-{owner}{uuid.uuid4().hex[:16]}{SUFFIX}"
        data = b"".join([*body, checksum.to_bytes(_CHECKSUM, "little")])
        self.folder.write(name, data)
        if self.folder.local is None:
            LocalFolder(self._cache).write(name, data, sync=False)
        return RunEntry(name, len(data), checksum, len(groups), groups.last_expiry)

    def read(self, entry: RunEntry, *, verify: bool = True) -> Groups:
        """Return the groups of a run, memory-mapped; raises CheckpointDamaged if they are not what was written."""
        key = (self.folder.url, entry.name)
        if key in _mapped:
            _mapped.move_to_end(key)
            return _mapped[key]
        data = self._data(entry, verify=verify)
        groups, _ = decode(data.slice(len(MAGIC)))
        if verify:
            _mapped[key] = groups
            while len(_mapped) > _MOST:
                _mapped.popitem(last=False)
        return groups

    def remove(self, names: Iterable[str]) -> None:
        """Delete runs that exist."""
        for name in names:
            self.folder.remove(name)
            self._forget(name)

    def names(self) -> list[str]:
        """Return the names of all runs, used or not, and of files that a killed process did not finish."""
        return [name for name in self.folder.names() if SUFFIX in name]

    def retain(self, names: Iterable[str]) -> None:
        """Forget the mapped runs of this bucket that are not among these."""
        used = set(names)
        for _, name in [key for key in _mapped if key[0] == self.folder.url and key[1] not in used]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        _mapped.pop((self.folder.url, name), None)
        if self.folder.local is None:
            (self._cache / name).unlink(missing_ok=True)

    def _data(self, entry: RunEntry, *, verify: bool) -> pa.Buffer:
        if self.folder.local is not None:
            data = _map(self.folder.local / entry.name)
            return self._verified(data, entry, verify=verify)
        with contextlib.suppress(CheckpointDamaged):
            return self._verified(_map(self._cache / entry.name), entry, verify=verify)
        # Missing or torn: the store has what is right.
        LocalFolder(self._cache).write(entry.name, self._fetched(entry), sync=False)
        return self._verified(_map(self._cache / entry.name), entry, verify=verify)

    def _fetched(self, entry: RunEntry) -> bytes:
        data = self.folder.read(entry.name)
        if data is None:
            raise self._damaged(entry.name, "is missing")
        return data

    def _verified(self, data: pa.Buffer | None, entry: RunEntry, *, verify: bool) -> pa.Buffer:
        reason = "is missing" if data is None else damage(data, entry, verify=verify)
        if reason is not None:
            raise self._damaged(entry.name, reason)
        return data

    def _damaged(self, name: str, reason: str) -> CheckpointDamaged:
        message = f"{self.folder}/{name} {reason}: keyed state is lost"
        return CheckpointDamaged(message, hint=_HINT)

    @property
    def _cache(self) -> Path:
        return cache_root() / hashlib.sha256(self.folder.url.encode()).hexdigest()[:24]


def cache_root() -> Path:
    """Return the folder of this machine with copies of runs that are in object stores."""
    return Path(tempfile.gettempdir()) / f"penstock-keyed-{os.getuid()}"


def damage(data: pa.Buffer, entry: RunEntry | None = None, *, verify: bool = True) -> str | None:
    """Return what is wrong with the content of a run; None if nothing is."""
    if data.size < len(MAGIC) + _CHECKSUM or data.slice(0, len(MAGIC)).to_pybytes() != MAGIC:
        return "is not a run of keyed state"
    if entry is not None and data.size != entry.size:
        return f"has {data.size} bytes instead of {entry.size}"
    stored = int.from_bytes(data.slice(data.size - _CHECKSUM).to_pybytes(), "little")
    if entry is not None and stored != entry.checksum:
        return "does not match the checksum in its manifest"
    if verify and crc32c.crc32c(memoryview(data)[: data.size - _CHECKSUM]) != stored:
        return "does not match its checksum"
    return None


def about(data: pa.Buffer) -> dict[str, Any]:
    """Return the header of a run: its epoch, and the runs beside it."""
    _, header = decode(data.slice(len(MAGIC)))
    return header


def epoch_of(name: str) -> int:
    """Return the epoch that wrote a run, from its name, or that of the file that became it.

    >>> epoch_of("12-0123456789abcdef.run"), epoch_of(".12-0123456789abcdef.run.ab12")
    (12, 12)
    """
    return int(name.lstrip(".").partition("-")[0])


def owner_of(name: str) -> str:
    """Return the part of a run's name that starts with its owner."""
    return name.partition("-")[2]


def _map(path: Path) -> pa.Buffer | None:
    try:
        # The buffer keeps the mapping open.
        with pa.memory_map(str(path)) as file:
            return file.read_buffer()
    except (FileNotFoundError, NotADirectoryError):
        return None
