"""Declared entries: what the driver declares and the scans of a query read, as a journal of the checkpoint.

How many entries an epoch has seen is part of its offsets, so that a replayed epoch sees the same ones. Entries that no
kept epoch can ask for again are dropped; the others keep their numbers.
"""

from __future__ import annotations

import threading

from penstock.errors import CheckpointDamaged
from penstock.folders import Folder
from penstock.folders.journal import BATCH, LOST, journal

WAKEUPS = "wakeups"


class Declared:
    """The entries of one journal, as this process knows them; nothing is read twice.

    Invariant: `_lines` are the entries from number `first` on, and the newest entry is always among them.
    """

    def __init__(self, folder: Folder, name: str, batch: int = BATCH) -> None:
        self._folder, self.name, self._batch = folder, name, batch
        self._journal = journal(folder, name, batch)
        self.where = self._journal.where
        self._lines: list[bytes] = []
        self.first = 0
        self._tried = 0
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Declared], tuple[Folder, str, int]]:
        return type(self), (self._folder, self.name, self._batch)

    def end(self) -> int:
        """Return how many entries were declared so far, dropped ones included."""
        with self._lock:
            fresh = self._journal.fresh()
            if not self._lines:
                self.first = self._journal.first
            self._lines += fresh
            return self.first + len(self._lines)

    def newest(self) -> bytes | None:
        """Return the newest entry."""
        with self._lock:
            self.end()
            return self._lines[-1] if self._lines else None

    def between(self, start: int, end: int) -> list[bytes]:
        """Return the entries of a range of numbers; who starts with 0 has seen none and gets all that are kept."""
        with self._lock:
            known = self.end()
            if 0 < start < self.first or end > known:
                message = f"{self.where} holds the entries {self.first} to {known}, not {start} to {end}"
                raise CheckpointDamaged(message, hint=LOST)
            return self._lines[max(start - self.first, 0) : max(end - self.first, 0)]

    def declare(self, line: bytes) -> None:
        """Add an entry durably, after those of others."""
        with self._lock:
            self.end()
            while not self._journal.append([line]):
                self.end()
            self._lines.append(line)

    def forget(self, passed: int) -> None:
        """Free the memory of entries that this process will not ask for again; they stay in the checkpoint."""
        with self._lock:
            self._drop(passed)
            self._journal.forget(self.first)

    @property
    def is_long(self) -> bool:
        """Whether enough entries came since the last compaction to try another."""
        return self._journal.loose - self._tried >= self._batch

    def compact(self, first: int, passed: int) -> None:
        """Drop the entries before `first`, which no kept epoch asks for; live readers have read up to `passed`."""
        with self._lock:
            known = self.end()
            first = min(max(first, self.first), known - 1)
            if first < 0:
                return
            self._journal.compact(first, min(passed, known), self._lines[first - self.first :])
            self._drop(first)
            self.end()
            self._tried = self._journal.loose

    def _drop(self, first: int) -> None:
        gone = min(first - self.first, len(self._lines) - 1)
        if gone > 0:
            del self._lines[:gone]
            self.first += gone
