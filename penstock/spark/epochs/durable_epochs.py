"""Makes Spark's files of an epoch durable: Spark itself does not sync them.

In an object store every write is durable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.storage.durable_files import sync_all, sync_parents
from penstock.storage.folders import Folder

_CHANGES = re.compile(r"\.(delta|changelog)(\.crc)?$")


def sync_offsets(query: Folder, epoch: int) -> None:
    """Make the bounds of an epoch durable before a sink commits it."""
    if query.local is not None:
        _sync(_with_checksum(query.local / "offsets" / str(epoch)))


def sync_commit(query: Folder, epoch: int) -> None:
    """Make the commit of an epoch, and the state after it, durable before its stored results are deleted.

    Without these results the epoch cannot run again, so a power cut must not damage what it left. Where state has
    changes, its snapshots are not needed: Spark writes them later, from changes that are durable.
    """
    if query.local is not None:
        _sync([*_with_checksum(query.local / "commits" / str(epoch)), *_state_files(query.local / "state", epoch + 1)])


def _with_checksum(path: Path) -> list[Path]:
    # A file with a torn checksum would be taken for damaged.
    return [one for one in (path, path.with_name(f".{path.name}.crc")) if one.exists()]


def _state_files(state: Path, version: int) -> Iterator[Path]:
    """Yield the files of a version in all stores, with their checksums, and those that describe the state."""
    of_version = re.compile(rf"\.?{version}[._].*(?<!\.tmp)")
    for folder, _, names in os.walk(state):
        path = Path(folder)
        if "_metadata" in path.relative_to(state).parts:
            yield from (path / name for name in names)
        else:
            mine = [name for name in names if of_version.fullmatch(name)]
            changes = [name for name in mine if _CHANGES.search(name)]
            yield from (path / name for name in changes or mine)


def _sync(files: list[Path]) -> None:
    """Sync files, then their names."""
    folders = dict.fromkeys(path.parent for path in files)
    sync_all(map(str, files))
    sync_all(map(str, folders))
    sync_parents(folders)
