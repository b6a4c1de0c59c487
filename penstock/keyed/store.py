"""The state of the keys of one bucket as bytes: a column of keys, one of pickles, and when each wants a turn.

Only the keys that an epoch touches are unpickled; the others are copied as a whole. An index over the keys is Arrow's,
made where it is needed. The first byte is the version of the layout.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CheckpointDamaged

# As long as Arrow wants its buffers aligned.
HEADER = b"\x01".ljust(8, b"\0")
NEVER = np.iinfo(np.int64).max
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("data", pa.binary()),
        ("due", pa.int64()),
        ("rings", pa.int64()),
        ("expires", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Entry:
    """What is kept of a key: its pickle; the next timers of event and processing time; when all of it has expired."""

    key: str
    data: bytes
    due: int = NEVER
    rings: int = NEVER
    expires: int = NEVER


class Store:
    """The keys of one bucket, as the last epoch left them."""

    def __init__(self, data: bytes | None) -> None:
        self.batch = pa.RecordBatch.from_pylist([], schema=SCHEMA)
        if data is not None:
            if data[:8] != HEADER:
                message = f"state begins with {data[:8]!r}, which this Penstock cannot read"
                raise CheckpointDamaged(message, hint="run the version of Penstock that wrote it")
            self.batch = pa.ipc.read_record_batch(pa.py_buffer(data).slice(8), SCHEMA)
        self._due, self._rings, self._expires = (self.batch.column(name).to_numpy() for name in SCHEMA.names[2:])

    def find(self, keys: Sequence[str]) -> list[int | None]:
        """Return the place of each key, or None."""
        if not keys or not self.batch.num_rows:
            return [None] * len(keys)
        found: list[int | None] = pc.index_in(pa.array(keys, pa.string()), value_set=self.batch.column(0)).to_pylist()
        return found

    def due(self, watermark_us: int, now_us: int) -> list[int]:
        """Return the places of the keys that have a timer to fire."""
        found: list[int] = np.flatnonzero((self._due <= watermark_us) | (self._rings <= now_us)).tolist()
        return found

    def data(self, place: int) -> Any:
        """Return the pickle at a place."""
        return self.batch.column(1)[place].as_buffer()

    def replaced(self, places: Collection[int], fresh: Sequence[Entry], expired_us: int | None) -> Store:
        """Return the store with other entries for some keys, and without those that have expired by a time."""
        kept = (self._due != NEVER) | (self._rings != NEVER)
        kept |= self._expires > (np.iinfo(np.int64).min if expired_us is None else expired_us)
        kept[list(places)] = False
        old = self.batch if kept.all() else self.batch.filter(pa.array(kept))
        columns = [
            pa.array([getattr(entry, name) for entry in fresh], kind)
            for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)
        ]
        made = Store(None)
        made._take(pa.Table.from_batches([old, pa.RecordBatch.from_arrays(columns, schema=SCHEMA)]))
        return made

    def bytes(self) -> bytes | None:
        """Return it as bytes; None if there is nothing to keep."""
        if not self.batch.num_rows:
            return None
        body: bytes = self.batch.serialize().to_pybytes()
        return HEADER + body

    @property
    def next_due(self) -> int | None:
        """The next event time at which a timer is due."""
        return _first(self._due)

    @property
    def next_ring(self) -> int | None:
        """The next processing time at which a timer is due."""
        return _first(self._rings)

    def _take(self, table: pa.Table) -> None:
        self.batch = table.combine_chunks().to_batches()[0] if table.num_rows else self.batch
        self._due, self._rings, self._expires = (self.batch.column(name).to_numpy() for name in SCHEMA.names[2:])


def _first(times: Any) -> int | None:
    first = int(times.min(initial=NEVER))
    return None if first == NEVER else first
