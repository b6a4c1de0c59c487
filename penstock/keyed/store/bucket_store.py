"""The state of one bucket of keys: a log-structured merge tree of groups.

A call reads the groups that it touches and those that are due (`read`), and replaces them (`replaced`). Nothing is
changed in place, so that a call can start over. `finished` gives the bytes of the next manifest: the tail is written as
a run if it is large, and takes in runs that are not much larger.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.keyed.store.groups import (
    ALWAYS,
    NEVER,
    Groups,
    Numbers,
    StateRows,
    TimeIndex,
    concatenated,
    distinct,
    empty_groups,
    grouped,
    merged,
)
from penstock.keyed.store.manifest import Manifest, Retired, RunEntry, manifest_from
from penstock.keyed.store.run_folder import RunFolder, epoch_of, owner_of

TAIL_BYTES = 32 << 10
# A tail may be larger where epochs write much: so many epochs, but so many times as large at most.
_TAIL_EPOCHS, _TAIL_GROWTH = 4, 8
# A run takes in older ones that are less than so many times its size.
_RATIO = 3.0
_FIRST_CHUNK = 32


@dataclass(frozen=True)
class RunSettings:
    """Where the runs of a bucket are written, and for how many epochs those are kept that are no longer used.

    With `shared` other operators have the same folder: then a store deletes only runs that it wrote itself. A copy of a
    state, which starts with the same manifest, is in another folder, and counts what it finds there as not its own.
    """

    folder: RunFolder
    retention: int
    bucket: int = 0
    tail_bytes: int = TAIL_BYTES
    shared: bool = False
    verify: bool = True

    @property
    def _spread(self) -> float:
        """A number from 0.75 to 1.25, different for each bucket, so that they do not compact in the same epoch."""
        return 0.75 + (self.bucket * 0.6180339887 % 1) / 2

    def tail_limit(self, written: int) -> float:
        """Return the size from which a tail is written as a run; an epoch writes so many bytes."""
        most = self.tail_bytes * _TAIL_GROWTH
        return min(max(self.tail_bytes, written * _TAIL_EPOCHS), most) * self._spread

    @property
    def ratio(self) -> float:
        """How many times larger than a new run those may be that it takes in."""
        return _RATIO * self._spread

    def owned(self, manifest: Manifest) -> Manifest:
        """Return a manifest that has an owner here."""
        home = self.folder.folder.url if self.shared else ""
        owner = manifest.owner if manifest.home == home else uuid.uuid4().hex[:8] if self.shared else ""
        return replace(manifest, bucket=self.bucket, owner=owner, home=home)


@dataclass(frozen=True)
class Touched:
    """The groups of one call: their hashes, which of them the store has, and their rows; None if it has none.

    `live` is how many of them have rows, also those that have expired.
    """

    hashes: Numbers
    existing: Numbers
    tables: tuple[pa.Table, ...] | None
    row_hashes: tuple[Numbers, ...] = ()
    live: int = 0


@dataclass(frozen=True)
class StateSize:
    """How many groups a state has, and how many bytes they take."""

    rows: int
    bytes: int


class BucketStore:
    """The groups of a bucket, as the last epoch left them; without settings all of it is in the tail."""

    def __init__(self, manifest: Manifest, runs: RunSettings | None = None, written: int = 0) -> None:
        """Create the store; `written` is the size of what this epoch has changed."""
        self.manifest, self._runs, self._written = manifest, runs, written

    @classmethod
    def of(cls, state: bytes | None, runs: RunSettings | None = None) -> BucketStore:
        """Return the store whose manifest these bytes are."""
        return cls(manifest_from(state), runs)

    def read(self, hashes: Numbers) -> Touched:
        """Return the groups of these hashes; each hash may be given several times."""
        wanted = distinct(hashes)
        left, live, with_rows = wanted, [], 0
        for part in self._parts():
            if not len(left):
                break
            positions, here = part.find(left)
            if here.any():
                left = left[~here]
                groups = part.taken(positions[here])
                with_rows += int(groups.has_rows.sum())
                live.append(groups.taken(np.flatnonzero(groups.expires > self.manifest.expired_us)))
        existing = wanted if not len(left) else np.setdiff1d(wanted, left, assume_unique=True)
        if not live:
            return Touched(wanted, existing, None, live=with_rows)
        numbers = range(len(live[0].tables))
        of_rows = (np.concatenate([np.repeat(part.hashes, part.counts(one)) for part in live]) for one in numbers)
        return Touched(wanted, existing, concatenated(live), tuple(of_rows), with_rows)

    def due(self, watermark_us: int, now_us: int) -> Numbers:
        """Return the hashes of the groups that are due by now."""
        tail = self.manifest.tail
        found = [tail.hashes[(tail.event <= watermark_us) | (tail.processing <= now_us)]]
        newer: list[Groups] = [tail]
        for entry, run in self._run_parts():
            heads = (
                (run.event_index, entry.event_head, watermark_us),
                (run.processing_index, entry.processing_head, now_us),
            )
            for index, head, limit in heads:
                end = int(np.searchsorted(index.times, limit, side="right"))
                if end > head:
                    hashes = run.hashes[index.positions[head:end]]
                    found.append(hashes[~_replaced(hashes, newer)])
            newer.append(run)
        return distinct(np.concatenate(found))

    def everything(self) -> Groups:
        """Return all groups that are there."""
        parts = [*self._parts()]
        return merged(parts, oldest=True, expired_us=self.manifest.expired_us)

    def replaced(self, touched: Touched, parts: Sequence[StateRows], expired_us: int | None = None) -> BucketStore:
        """Return the store with new rows for the groups that were touched; `expired_us` is what expires now."""
        like = [StateRows(table.slice(0, 0), touched.hashes[:0]) for table in touched.tables or ()]
        fresh = grouped(parts or like, touched.existing)
        manifest = self.manifest
        if expired_us is not None:
            manifest = replace(manifest, expired_us=max(manifest.expired_us, expired_us))
        tail = merged([fresh, manifest.tail], oldest=not manifest.runs, expired_us=manifest.expired_us)
        live = manifest.live - touched.live + int(fresh.has_rows.sum()) if manifest.runs else len(tail)
        return BucketStore(replace(manifest, tail=tail, live=live), self._runs, fresh.nbytes)

    def advanced(self) -> BucketStore:
        """Return the store with the positions in its time indexes moved past what was replaced."""
        runs, newer = [], [self.manifest.tail]
        for entry, run in self._run_parts():
            event = _first_current(run, run.event_index, entry.event_head, newer)
            processing = _first_current(run, run.processing_index, entry.processing_head, newer)
            runs.append(replace(entry, event_head=event, processing_head=processing))
            newer.append(run)
        return BucketStore(replace(self.manifest, runs=tuple(runs)), self._runs, self._written)

    def next_due(self) -> tuple[int | None, int | None]:
        """Return the next event time and processing time at which a group is due; of an `advanced` store."""
        tail = self.manifest.tail
        event = [int(tail.event.min(initial=NEVER))]
        processing = [int(tail.processing.min(initial=NEVER))]
        for entry, run in self._run_parts():
            event += run.event_index.times[entry.event_head : entry.event_head + 1].tolist()
            processing += run.processing_index.times[entry.processing_head : entry.processing_head + 1].tolist()
        first, second = min(event), min(processing)
        return None if first == NEVER else first, None if second == NEVER else second

    @property
    def size(self) -> StateSize:
        """How large the state is; groups that expired may be counted until runs are merged."""
        manifest = self.manifest
        return StateSize(manifest.live, manifest.tail.nbytes + sum(entry.size for entry in manifest.runs))

    @property
    def last_expiry(self) -> int | None:
        """The time at which everything has expired; None if something does not, or there is nothing."""
        last = max([self.manifest.tail.last_expiry, *(entry.last_expiry for entry in self.manifest.runs)])
        return None if last in (NEVER, ALWAYS) else last

    def finished(self, epoch: int) -> bytes | None:
        """Return the bytes of the next manifest; writes a run if the tail is large."""
        return self.flushed(epoch).to_bytes()

    def to_bytes(self) -> bytes | None:
        """Return the manifest as bytes, None if there is nothing to remember."""
        return self.manifest.to_bytes()

    def flushed(self, epoch: int) -> BucketStore:
        """Return the store as the next epoch finds it; writes a run if the tail is large."""
        manifest = self.manifest
        last = self.last_expiry
        if last is not None and last <= manifest.expired_us:
            manifest = _without_runs(manifest, epoch)
        if self._runs is not None and epoch >= 0:
            manifest = self._runs.owned(manifest)
            if manifest.tail.nbytes > self._runs.tail_limit(self._written):
                manifest = self._flushed(manifest, epoch, self._runs)
            manifest = _swept(manifest, epoch, self._runs)
        return BucketStore(manifest, self._runs)

    def _flushed(self, manifest: Manifest, epoch: int, settings: RunSettings) -> Manifest:
        parts, size, taken = [manifest.tail], manifest.tail.nbytes, 0
        for entry, run in self._run_parts():
            if entry.size >= settings.ratio * size:
                break
            parts.append(run)
            size += entry.size
            taken += 1
        left = manifest.runs[taken:]
        groups = merged(parts, oldest=not left, expired_us=manifest.expired_us)
        written = (settings.folder.write(groups, epoch, left, manifest.owner),) if len(groups) else ()
        retired = (*manifest.retired, *(Retired(one.name, epoch) for one in manifest.runs[:taken]))
        if taken and (taken > 1 or not left):
            _sweep_orphans(manifest.owner, (*written, *left), retired, epoch, settings)
        live = manifest.live if left else len(groups)
        return replace(manifest, tail=empty_groups(groups.tables), runs=(*written, *left), retired=retired, live=live)

    def _parts(self) -> Iterator[Groups]:
        """Yield the tail and the runs, newest first."""
        yield self.manifest.tail
        for _, run in self._run_parts():
            yield run

    def _run_parts(self) -> Iterator[tuple[RunEntry, Groups]]:
        for entry in self.manifest.runs:
            assert self._runs is not None
            yield entry, self._runs.folder.read(entry, verify=self._runs.verify)


def _without_runs(manifest: Manifest, epoch: int) -> Manifest:
    retired = (*manifest.retired, *(Retired(one.name, epoch) for one in manifest.runs))
    return replace(manifest, tail=empty_groups(manifest.tail.tables), runs=(), retired=retired, live=0)


def _swept(manifest: Manifest, epoch: int, settings: RunSettings) -> Manifest:
    """Delete runs that no retained epoch needs; the epochs before this one are committed."""
    if not manifest.retired:
        return manifest
    oldest = _oldest_retained(epoch, settings)
    old = [one.name for one in manifest.retired if one.epoch < oldest]
    if not old:
        return manifest
    settings.folder.remove([one for one in old if owner_of(one).startswith(manifest.owner)])
    return replace(manifest, retired=tuple(one for one in manifest.retired if one.epoch >= oldest))


def _sweep_orphans(
    owner: str, runs: Sequence[RunEntry], retired: Sequence[Retired], epoch: int, settings: RunSettings
) -> None:
    """Delete runs of earlier epochs that no manifest names: attempts that failed left them."""
    named = {*(one.name for one in runs), *(one.name for one in retired)}
    oldest = _oldest_retained(epoch, settings)
    others = [one for one in settings.folder.names() if one not in named and owner_of(one).startswith(owner)]
    settings.folder.remove([one for one in others if epoch_of(one) < oldest])
    settings.folder.retain(named)


def _oldest_retained(epoch: int, settings: RunSettings) -> int:
    """Return an epoch before which nothing is retained, with some to spare."""
    return epoch - settings.retention - 2


def _replaced(hashes: Numbers, newer: Sequence[Groups]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say which groups a newer part has."""
    found = np.zeros(len(hashes), bool)
    for part in newer:
        found |= part.find(hashes)[1]
    return found


def _first_current(run: Groups, index: TimeIndex, head: int, newer: Sequence[Groups]) -> int:
    """Return the position of the first entry of a time index that no newer part has replaced."""
    size = _FIRST_CHUNK
    while head < len(index.positions):
        current = ~_replaced(run.hashes[index.positions[head : head + size]], newer)
        if current.any():
            return head + int(np.argmax(current))
        head, size = head + size, size * 4
    return len(index.positions)
