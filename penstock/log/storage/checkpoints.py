"""The small files of a partition that recovery reads beside its segments.

- `*.snapshot`: the producer state at an offset; recovery scans only what follows it. Sealed with a checksum.
- `leader-epochs.json`: the leader epochs; a new one starts where a torn tail was truncated.
- `cleaned.json`: how far compaction has progressed.
- `synced`: the recovery point, up to which everything is on disk. Records are acknowledged in order, each after an
  fsync. So where a segment has a hole after the recovery point, nothing after the hole was acknowledged, although
  complete batches may follow: the disk wrote them first. The recovery point is written without an fsync of its own:
  after a power failure it may be an older one, never one that is too large.
- `*.txnindex`: the aborted transactions of a segment, which read_committed consumers skip. Written with the snapshot
  that covers the segment; before that recovery reads the markers themselves.
"""

from __future__ import annotations

import json
import logging
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from crc32c import crc32c

from penstock.log.storage.producer_state import AbortedTxn
from penstock.log.storage.segments.files import write_atomically

_KEPT = 2
log = logging.getLogger("penstock.log")
_EPOCHS_FILE = "leader-epochs.json"
Epochs = list[tuple[int, int]]  # (leader epoch, its first offset)
_CLEANER_FILE = "cleaned.json"
_BODY = struct.Struct(">qq")
_CHECKSUM = struct.Struct(">I")
_ABORTED_ENTRY = struct.Struct(">hqqqq")  # Kafka's own file format: version, producer, first, last, last stable offset


@dataclass(frozen=True)
class Snapshot:
    """The state at offset `end`: the active segment was `size` bytes long and synced."""

    end: int
    segment: int
    size: int
    largest_timestamp: int
    producers: dict[str, Any]


def save_snapshot(folder: Path, snapshot: Snapshot) -> None:
    """Write a snapshot and delete all but the two newest."""
    body = json.dumps(asdict(snapshot), separators=(",", ":")).encode()
    write_atomically(snapshot_path(folder, snapshot.end), b"%08x\n" % crc32c(body) + body)
    for path in sorted(folder.glob("*.snapshot"))[:-_KEPT]:
        path.unlink(missing_ok=True)


def snapshot_path(folder: Path, end: int) -> Path:
    """Return where the snapshot at an offset is."""
    return folder / f"{end:020d}.snapshot"


def load_snapshots(folder: Path) -> list[Snapshot]:
    """Return the intact snapshots of a partition, newest first."""
    found = (_read_snapshot(path) for path in sorted(folder.glob("*.snapshot"), reverse=True))
    return [snapshot for snapshot in found if snapshot is not None]


def _read_snapshot(path: Path) -> Snapshot | None:
    head, _, body = path.read_bytes().partition(b"\n")
    if head != b"%08x" % crc32c(body):
        return None
    return Snapshot(**json.loads(body))


def read_epochs(folder: Path) -> Epochs | None:
    """Return the epochs, oldest first; None if they cannot be read."""
    path = folder / _EPOCHS_FILE
    try:
        epochs = [(int(epoch), int(start)) for epoch, start in json.loads(path.read_bytes())]
    except (OSError, ValueError, TypeError) as error:
        # A broker that was killed while it created the partition leaves an empty folder: nothing is missing there.
        if not isinstance(error, FileNotFoundError) or any(folder.glob("*.log")):
            log.error("%s cannot be read (%s): leader epochs are not checked", path, error)
        return None
    return epochs or None


def write_epochs(folder: Path, epochs: Epochs, *, sync: bool = True) -> None:
    """Save the epochs."""
    write_atomically(folder / _EPOCHS_FILE, json.dumps(epochs).encode(), sync=sync)


class CleanerCheckpoint(NamedTuple):
    """Before `offset` each key occurs once; before `gaps` offsets may be missing.

    They differ while compaction swaps segments: gaps are announced before there are any.
    """

    offset: int = 0
    gaps: int = 0


def read_cleaner_checkpoint(folder: Path) -> CleanerCheckpoint:
    """Return the checkpoint; if it cannot be read, gaps may be anywhere."""
    path = folder / _CLEANER_FILE
    if not path.exists():
        return CleanerCheckpoint()
    try:
        return CleanerCheckpoint(**json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        log.error("%s cannot be read (%s): compaction starts over", path, error)
        return CleanerCheckpoint(0, 2**63 - 1)


def write_cleaner_checkpoint(folder: Path, cleaned: CleanerCheckpoint) -> None:
    """Write the checkpoint."""
    write_atomically(folder / _CLEANER_FILE, json.dumps(cleaned._asdict()).encode())


class RecoveryPoint(NamedTuple):
    """All bytes before this position of a segment, and all segments before it, are on disk."""

    segment: int = 0
    position: int = 0

    def within(self, base: int) -> int:
        """Return how many bytes of the segment with this base offset are known to be on disk."""
        if base < self.segment:
            return 2**63 - 1
        return self.position if base == self.segment else 0


def recovery_point_path(folder: Path) -> Path:
    """Return the path of the recovery point."""
    return folder / "synced"


def encode_recovery_point(synced: RecoveryPoint) -> bytes:
    """Encode the recovery point: so few bytes that a disk writes all or none of them."""
    body = _BODY.pack(*synced)
    return body + _CHECKSUM.pack(crc32c(body))


def read_recovery_point(folder: Path) -> RecoveryPoint | None:
    """Return the recovery point; None if none is stored, because the log does not sync each record."""
    try:
        data = recovery_point_path(folder).read_bytes()
    except FileNotFoundError:
        return None
    body, checksum = data[: _BODY.size], data[_BODY.size :]
    return RecoveryPoint(*_BODY.unpack(body)) if checksum == _CHECKSUM.pack(crc32c(body)) else RecoveryPoint()


def write_txn_index(path: Path, entries: list[AbortedTxn]) -> None:
    """Write the transaction index of a segment, even if it is empty: a missing file does not mean "none aborted"."""
    # Without entries no fsync is needed: if the file is missing after a crash, the markers are read again.
    write_atomically(path, b"".join(_ABORTED_ENTRY.pack(0, *entry) for entry in entries), sync=bool(entries))


def read_txn_index(path: Path) -> list[AbortedTxn]:
    """Return the aborted transactions whose markers are in a segment, according to its index."""
    data = path.read_bytes() if path.exists() else b""
    return [
        AbortedTxn(*entry[1:])
        for entry in _ABORTED_ENTRY.iter_unpack(data[: len(data) // _ABORTED_ENTRY.size * _ABORTED_ENTRY.size])
    ]
