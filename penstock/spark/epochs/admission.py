"""What the next epoch of a source may read: within the limit, and what is dropped before it when a job is overloaded.

What is dropped is noted in the epoch's offsets, as the place from which it reads, so that a replay drops the same.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from penstock.contracts import Offsets, Source
from penstock.folders import Folder
from penstock.spark.epochs.alignment import Alignment
from penstock.spark.epochs.notes import FROM, own_offsets, pace_note
from penstock.spark.epochs.pacer import Limits, Pacer


class Dropped(NamedTuple):
    """The oldest rows that an epoch leaves out: up to where, and how many."""

    upto: dict[str, Any]
    rows: int


class Admission:
    """Plans the epochs of one source in one query; lives in Spark's planner, and learns from notes of the driver."""

    def __init__(
        self, source: Source, limits: Limits, notes: Folder, query: str, alignment: Alignment | None = None
    ) -> None:
        self.source, self.limits, self.notes, self.query = source, limits, notes, query
        self.alignment = alignment
        self.pacer = Pacer(limits)
        self.held: int | None = None
        self._learnt: bytes | None = None
        self._planned = False

    def end(self, offsets: dict[str, Any]) -> dict[str, Any]:
        """Return up to where the next epoch reads, with what it drops; the same offsets if there is nothing to read."""
        begin = own_offsets(offsets)
        self._learn()
        dropped = self._dropped(begin)
        start = dropped.upto if dropped else begin
        end = dict(self.source.latest(start, self.pacer.rows()))
        if end == begin:
            return end | ({FROM: offsets[FROM]} if FROM in offsets else {})
        self._planned = True
        self.held = self._left(end)
        if self.alignment is not None and self.held != 0:
            end = dict(self.alignment.aligned(self.source, start, end, self.pacer.rows()))
            self.held = self._left(end)
        return end | ({FROM: list(dropped)} if dropped else {})

    def _learn(self) -> None:
        """Learn how long the epoch took that was planned last."""
        if not self._planned or self.limits.epoch_rows is not None:
            return
        self._planned = False
        note = self.notes.read(pace_note(self.query))
        if note is not None and note != self._learnt:
            self._learnt = note
            _, rows, seconds = json.loads(note)
            self.pacer.done(rows, seconds)

    def _dropped(self, begin: Offsets) -> Dropped | None:
        """Return the oldest of more rows than may wait."""
        most = self.limits.lag_rows
        if most is None or (self.source.behind(begin) or 0) <= most:
            return None
        upto, rows = self.source.newest(begin, most)
        return Dropped(dict(upto), rows) if rows else None

    def _left(self, end: Offsets) -> int | None:
        """Return how many rows the limit holds back; None if there are some, and the source cannot say how many."""
        behind = self.source.behind(end)
        if behind is not None:
            return behind
        return 0 if dict(self.source.latest(end, 1)) == end else None


def dropped(begin: dict[str, Any], upto: dict[str, Any], offsets: dict[str, Any]) -> Dropped | None:
    """Return what the offsets of an epoch say that it drops; one without rows repeats those of the epoch before."""
    found = offsets.get(FROM)
    return Dropped(*found) if found and begin != upto else None
