"""The manifest of a bucket, which is its state in Spark: the runs that hold it, and the tail, what was written last."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import pyarrow as pa

from penstock.errors import CheckpointDamaged
from penstock.keyed.store.encoding import decode, encode
from penstock.keyed.store.groups import ALWAYS, Groups, empty_groups

# In version 1 the state of a bucket was all of it.
VERSION = b"\x02".ljust(64, b"\0")


@dataclass(frozen=True)
class RunEntry:
    """A run: its name, size and checksum, when all of it expires, and up to where its time indexes have been read."""

    name: str
    size: int
    checksum: int
    groups: int
    last_expiry: int
    event_head: int = 0
    processing_head: int = 0


@dataclass(frozen=True)
class Retired:
    """A run that is no longer used since an epoch; earlier epochs that are retained may need it."""

    name: str
    epoch: int


@dataclass(frozen=True)
class Manifest:
    """The runs of a bucket, newest first, and its tail, which is newer than all of them.

    What expired by `expired_us` is no longer there, though runs may have it.
    """

    tail: Groups = field(default_factory=empty_groups)
    runs: tuple[RunEntry, ...] = ()
    retired: tuple[Retired, ...] = ()
    expired_us: int = ALWAYS
    bucket: int = 0
    # How many groups are there; those that expire are counted until the last run takes in all others.
    live: int = 0
    # Who may delete runs, where several operators share a folder, and the folder in which that was decided.
    owner: str = ""
    home: str = ""

    def to_bytes(self) -> bytes | None:
        """Return it as bytes; None if there is nothing to remember."""
        if not (len(self.tail) or self.runs or self.retired):
            return None
        about = {
            "runs": [list(asdict(one).values()) for one in self.runs],
            "retired": [[one.name, one.epoch] for one in self.retired],
            "expired_us": self.expired_us,
            "bucket": self.bucket,
            "live": self.live,
            "owner": self.owner,
            "home": self.home,
        }
        return b"".join([VERSION, *encode(self.tail, about, indexed=False)])


def manifest_from(state: bytes | None) -> Manifest:
    """Return a manifest from bytes."""
    if state is None:
        return Manifest()
    if state[: len(VERSION)] != VERSION:
        message = f"state begins with {state[:8]!r}, which this Penstock cannot read"
        raise CheckpointDamaged(message, hint="run the version of Penstock that wrote it")
    tail, about = decode(pa.py_buffer(state).slice(len(VERSION)))
    runs = tuple(RunEntry(*one) for one in about["runs"])
    retired = tuple(Retired(*one) for one in about["retired"])
    rest = (about[name] for name in ("expired_us", "bucket", "live", "owner", "home"))
    return Manifest(tail, runs, retired, *rest)
