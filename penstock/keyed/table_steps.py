"""Steps over tables of keyed state: windows, deduplication, as-of joins.

A step is called with rows and the state of their keys, and of the keys that are due. It never sees the other keys of
the bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.keyed.store.bucket_store import BucketStore
from penstock.keyed.store.groups import StateRows
from penstock.keyed.store.hashes import group_hashes
from penstock.values.state_tables import StateTable
from penstock.windows import LAST_US


@dataclass
class TableCall:
    """One call of a step: rows, and the state of their keys and of those that are due; it leaves the next state here.

    `watermark_us` is that of this epoch: what is due up to it is due now. `ended`: no row will ever come.
    """

    rows: pa.Table
    state: tuple[StateTable, ...] | None
    watermark_us: int
    now_us: int
    ended: bool = False


class Invocation(Protocol):
    """One call for a bucket in one epoch; the timers are those at which it has to be called beside what is due."""

    rows: pa.Table
    store: BucketStore
    watermark_us: int
    now_us: int
    ended: bool
    next_event_timer_us: int | None
    next_processing_timer_us: int | None


@dataclass(frozen=True)
class KeyedTables:
    """A step with the key columns of its rows and of its state.

    With `expires_by_watermark` the bucket is called when all of it has expired, so that it does not stay for ever. With
    `closes_at_end` it is called at the end of input, by the watermark where rows have a `time`.
    """

    step: Callable[[TableCall], Iterable[pa.Table]]
    row_keys: tuple[str, ...]
    state_keys: tuple[str, ...]
    expires_by_watermark: bool = False
    closes_at_end: bool = False
    time: str | None = None

    def __call__(self, call: Invocation) -> Iterator[pa.Table]:
        """Run the step on the keys that have rows or are due; at the end of input on all."""
        store = call.store
        over = call.ended or call.watermark_us >= LAST_US
        due = store.everything().hashes if over else store.due(call.watermark_us, call.now_us)
        mine = group_hashes([call.rows.column(name) for name in self.row_keys], call.rows.num_rows)
        touched = store.read(np.concatenate([due, mine]))
        before = None if touched.tables is None else tuple(map(StateTable, touched.tables))
        inner = TableCall(call.rows, before, call.watermark_us, call.now_us, call.ended)
        if len(touched.hashes):
            yield from self.step(inner)
        call.store = store.replaced(touched, self._rows(inner.state or ()), self._expired_us(call))
        if self.closes_at_end and not over:
            self._set_last_timers(call)

    def _rows(self, tables: Sequence[StateTable]) -> list[StateRows]:
        hashed = self._hashed([one.rows for one in tables])
        return [
            StateRows(table, hashes, one.event, one.processing, one.expires)
            for (table, hashes), one in zip(hashed, tables, strict=True)
        ]

    def _hashed(self, tables: Sequence[pa.Table]) -> list[tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
        return [
            (table, group_hashes([table.column(name) for name in self.state_keys], table.num_rows)) for table in tables
        ]

    def _expired_us(self, call: Invocation) -> int | None:
        return call.watermark_us if self.expires_by_watermark else None

    def _set_last_timers(self, call: Invocation) -> None:
        has_time = self.time is not None and self.time in call.rows.column_names
        call.next_event_timer_us, call.next_processing_timer_us = LAST_US if has_time else None, LAST_US
