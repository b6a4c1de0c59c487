"""Rows of a view's input that leave it some time after their event time.

The rows that are there are stored with the time at which they leave. When the watermark has passed it, a row comes a
second time, marked as expired, and the relation takes it out: so all that depends on it follows, as after any delete.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.incremental.circuit.changes import joined, keys, taken
from penstock.incremental.circuit.row_identity import grouped
from penstock.incremental.circuit.state import State
from penstock.keyed.store.groups import ALWAYS, StateRows

_LEAVES_AT = "__penstock_leaves_at"


@dataclass(frozen=True)
class Expiry:
    """The rows of one input: the store's number, the key, and the time to live. Without a key all rows count."""

    number: int
    key: tuple[str, ...]
    ttl_us: int
    mark: str

    def expired_and(
        self, rows: pa.Table, time: str, state: State, watermark_us: int, *, ended: bool
    ) -> tuple[pa.Table, int]:
        """Return the rows that have expired, marked, and then the rows that came, without their `time`.

        A row that is too old when it comes is left out; also returned is how many are. At the end of input nothing
        expires any more.
        """
        leaves_at = rows.column(time).cast(pa.int64()).to_numpy() + (self.ttl_us + 1)
        fresh = leaves_at > watermark_us if not ended else np.ones(len(leaves_at), bool)
        plain = rows.drop_columns([time])
        new = plain.append_column(_LEAVES_AT, pa.array(leaves_at)).filter(pa.array(fresh))
        store = state.get(self.number)
        due = store.due(ALWAYS if ended else watermark_us, ALWAYS)
        hashes = keys(new, self.key or plain.column_names).hashes()
        touched = store.read(np.concatenate([due, hashes]))
        old, old_hashes = new.slice(0, 0), hashes[:0]
        if touched.tables is not None:
            old, old_hashes = touched.tables[0].cast(new.schema), touched.row_hashes[0]
        both, both_hashes = joined([old, new]), np.concatenate([old_hashes, hashes])
        stays = self._latest(both, both_hashes)
        expired = both.column(_LEAVES_AT).to_numpy() <= (ALWAYS if ended else watermark_us)
        left, kept = np.flatnonzero(stays & expired), np.flatnonzero(stays & ~expired)
        after = taken(both, kept)
        times = after.column(_LEAVES_AT).to_numpy()
        state.put(self.number, store.replaced(touched, [StateRows(after, both_hashes[kept], event=times)]).advanced())
        return self._marked([(taken(both, left), True), (new, False)]), int(np.count_nonzero(~fresh))

    def next_due(self, state: State) -> int | None:
        """Return the event time at which the next row leaves."""
        return state.get(self.number).next_due()[0]

    def _latest(self, rows: pa.Table, hashes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray:
        """Say which rows are the last of their key."""
        found = np.ones(rows.num_rows, bool)
        if self.key and rows.num_rows:
            found[:] = False
            found[grouped(keys(rows, self.key), hashes).lasts()] = True
        return found

    def _marked(self, parts: list[tuple[pa.Table, bool]]) -> pa.Table:
        return joined(
            [
                rows.drop_columns([_LEAVES_AT]).append_column(self.mark, pa.array(np.full(rows.num_rows, is_expired)))
                for rows, is_expired in parts
            ]
        )
