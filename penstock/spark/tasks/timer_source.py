"""Processing-time timers as a source: they call buckets of keys when no row comes.

A bucket that waits for a processing time registers a timer with its epoch (`register_timer`). The epoch writer stores
pending timers in the checkpoint (`epochs/timers.py`). When one is due, the driver appends it to a journal that Spark
reads as a source, so that a replayed epoch fires the same timers. The epoch that reads it starts after that time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import CheckpointDamaged
from penstock.schema import Schema
from penstock.spark.tasks.control_journal import TIMERS, ControlJournal
from penstock.spark.tasks.staging import Staging
from penstock.storage.file_names import file_name
from penstock.storage.folders import Folder
from penstock.storage.journals import LOST

_SHIFT = "clock-shift"
PENDING = "timer="


class TimerSource(Source):
    """Reads the timers that the driver fired: a node and a bucket each, and whether it is the last one."""

    name = TIMERS
    schema = Schema("node string, bucket int, ended boolean")

    def __init__(self, folder: Folder) -> None:
        self._journal = ControlJournal(folder, TIMERS)

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """All timers that fired."""
        return {"0": self._journal.end()}

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Ship the timers themselves, each bucket once: a task would have to read the journal from its start."""
        lines = self._journal.between(int(start.get("0") or 0), int(end["0"]))
        buckets = {one for line in lines for one in fired_timers(line, self._journal.where)}
        return [sorted(buckets)] if buckets else []

    def read_split(self, split: Any) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield each bucket once."""
        rows = [dict(zip(self.schema.names, one, strict=True)) for one in split]
        yield pa.RecordBatch.from_pylist(rows, schema=self.schema.arrow)

    def commit(self, offsets: Offsets) -> None:
        """Free the memory of timers that were read."""
        self._journal.forget(int(offsets.get("0") or 0))


def fired_timers(line: bytes, where: str) -> list[tuple[str, int, bool]]:
    """Return the timers of a journal entry: node, bucket, and whether it is the last one."""
    try:
        return [(node, int(bucket), bool(ended)) for node, bucket, *ended in json.loads(line)]
    except (ValueError, TypeError) as error:
        message = f"{where} cannot be read: {line[:80]!r} is not a list of timers"
        raise CheckpointDamaged(message, hint=LOST) from error


def register_timer(staging: Staging, epoch: int, node: str, bucket: int, at_us: int | None) -> None:
    """Stage, in a task, when a bucket of a node has to be called; None if it no longer has to."""
    staging.put(epoch, f"{PENDING}{file_name(node)}={bucket}.json", json.dumps([node, bucket, at_us]).encode())


def clock_shift_us(folder: Folder | None) -> int:
    """Return how far a test has shifted the clock."""
    return int((folder and folder.read(_SHIFT)) or 0)


def shifted_clock(folder: Folder) -> Folder | None:
    """Return the folder whose clock a test shifts, if one does."""
    return folder if folder.read(_SHIFT) is not None else None
