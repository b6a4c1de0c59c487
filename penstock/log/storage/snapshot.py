"""Snapshots of a partition: what recovery need not read again, each sealed with its own checksum."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crc32c import crc32c

from penstock.log.storage.handles import sync_folder

_KEPT = 2


@dataclass(frozen=True)
class Snapshot:
    """The state at offset `end`: the active segment was `size` bytes long and on disk."""

    end: int
    segment: int
    size: int
    largest_timestamp: int
    producers: dict[str, Any]


def write_whole(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file in one step: readers see the old or the new one, also after a crash."""
    new = path.with_name(f"{path.name}.new")
    with open(new, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(new, path)
    if sync:
        sync_folder(path.parent)


def save(folder: Path, snapshot: Snapshot) -> None:
    """Write a snapshot and drop those before the last."""
    body = json.dumps(asdict(snapshot), separators=(",", ":")).encode()
    write_whole(path_of(folder, snapshot.end), b"%08x\n" % crc32c(body) + body)
    for path in sorted(folder.glob("*.snapshot"))[:-_KEPT]:
        path.unlink(missing_ok=True)


def path_of(folder: Path, end: int) -> Path:
    """Return where the snapshot at an offset is."""
    return folder / f"{end:020d}.snapshot"


def load(folder: Path) -> list[Snapshot]:
    """Return the whole snapshots of a partition, newest first."""
    found = (_read(path) for path in sorted(folder.glob("*.snapshot"), reverse=True))
    return [snapshot for snapshot in found if snapshot is not None]


def _read(path: Path) -> Snapshot | None:
    head, _, body = path.read_bytes().partition(b"\n")
    if head != b"%08x" % crc32c(body):
        return None
    return Snapshot(**json.loads(body))
