"""Several stores in one bucket, each with groups of its own shape, in one manifest.

Only stores that are used are decoded; the bytes of the others are passed on. Each has a folder of its own for runs.
Their groups have no times: none is ever due, and none expires.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from penstock.errors import CheckpointDamaged
from penstock.keyed.store.bucket_store import BucketStore, RunSettings, StateSize
from penstock.keyed.store.run_folder import RunFolder

# In version 3 keys of several streams were in other buckets, and the first rows of groups had other tables.
VERSION = b"\x04".ljust(64, b"\0")
_ALIGN = 64
_LENGTH = 4
_LEAST_TAIL = 4 << 10


@dataclass(frozen=True)
class _Stored:
    """A store that is not opened: its manifest, and its size."""

    data: bytes
    size: StateSize


class StoreSet:
    """The stores of a bucket by their numbers. `get` and `put` change the set; the bytes it was made of stay.

    For the caller of a bucket's step it is like one store: `advanced`, `next_due`, `last_expiry`, `size`, `flushed`.
    """

    last_expiry: None = None

    def __init__(self, stored: dict[int, _Stored], runs: RunSettings | None, stores: int = 1) -> None:
        """Create the set; `stores` is how many there will be, which share the size of one tail."""
        self._stored, self._runs, self._count = stored, runs, stores
        self._open: dict[int, BucketStore] = {}

    @classmethod
    def of(cls, state: bytes | None, runs: RunSettings | None = None, stores: int = 1) -> StoreSet:
        """Return the stores whose manifests these bytes are."""
        return cls({} if state is None else _split(state), runs, stores)

    def get(self, number: int) -> BucketStore:
        """Return a store; one that was never used is empty."""
        if number not in self._open:
            stored = self._stored.get(number)
            self._open[number] = BucketStore.of(stored.data if stored else None, self._settings(number))
        return self._open[number]

    def put(self, number: int, store: BucketStore) -> None:
        """Replace a store."""
        self._open[number] = store

    @property
    def numbers(self) -> list[int]:
        """The stores that have something, or were used."""
        return sorted({*self._stored, *self._open})

    def advanced(self) -> StoreSet:
        """Return the set: it has no times to move on."""
        return self

    def next_due(self) -> tuple[int | None, int | None]:
        """Return that nothing is ever due."""
        return None, None

    @property
    def size(self) -> StateSize:
        """How large all stores are."""
        closed = [one.size for number, one in self._stored.items() if number not in self._open]
        sizes = [*closed, *(store.size for store in self._open.values())]
        return StateSize(sum(one.rows for one in sizes), sum(one.bytes for one in sizes))

    def finished(self, epoch: int) -> bytes | None:
        """Return the bytes of the next manifests, None if there is nothing; writes the runs of large tails."""
        return self.flushed(epoch).to_bytes()

    def flushed(self, epoch: int) -> StoreSet:
        """Return the set as the next epoch finds it; writes the runs of large tails."""
        made = {number: one for number, one in self._stored.items() if number not in self._open}
        for number, store in self._open.items():
            flushed = store.flushed(epoch)
            data = flushed.to_bytes()
            if data is not None:
                made[number] = _Stored(data, flushed.size)
        return StoreSet(made, self._runs, self._count)

    def to_bytes(self) -> bytes | None:
        """Return the manifests as bytes, None if there is nothing; of a `flushed` set."""
        assert not self._open
        return _joined(self._stored) if self._stored else None

    def _settings(self, number: int) -> RunSettings | None:
        if self._runs is None:
            return None
        tail = max(self._runs.tail_bytes // max(self._count, 1), min(_LEAST_TAIL, self._runs.tail_bytes))
        return replace(self._runs, folder=RunFolder(self._runs.folder.folder / str(number)), tail_bytes=tail)


def _split(state: bytes) -> dict[int, _Stored]:
    if state[: len(VERSION)] != VERSION:
        message = f"state begins with {state[:8]!r}, which is not the state of a view of this version of Penstock"
        hint = "run the version that wrote it, or build the view again from its sources in a new checkpoint"
        raise CheckpointDamaged(message, hint=hint)
    at = len(VERSION)
    size = int.from_bytes(state[at : at + _LENGTH], "little")
    entries = json.loads(state[at + _LENGTH : at + _LENGTH + size])
    at += _padded(_LENGTH + size)
    found = {}
    for number, length, rows, size in entries:
        found[int(number)] = _Stored(state[at : at + length], StateSize(rows, size))
        at += _padded(length)
    return found


def _joined(parts: dict[int, _Stored]) -> bytes:
    stores = sorted(parts.items())
    header = json.dumps([[number, len(one.data), one.size.rows, one.size.bytes] for number, one in stores]).encode()
    pieces = [VERSION, len(header).to_bytes(_LENGTH, "little") + header, *(one.data for _, one in stores)]
    return b"".join(piece.ljust(_padded(len(piece)), b"\0") for piece in pieces)


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
