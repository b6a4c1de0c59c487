"""The state of one bucket of keys as bytes, of which the first is the version of the format.

Process functions have a `StateStore`: columns of keys, of pickled values, and of the next timers. Only the keys that an
epoch touches are unpickled; the others are copied as a whole. Arrow builds an index over the keys when one is needed.
Deduplication and as-of joins have rows, which `encode_rows` writes as an Arrow stream.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CheckpointDamaged
from penstock.values.arrow_stream import from_stream, to_stream

# Padded to the alignment of Arrow's buffers.
HEADER = b"\x01".ljust(8, b"\0")
ROWS_VERSION = b"\x01"
NEVER = np.iinfo(np.int64).max
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("data", pa.binary()),
        ("event_timer", pa.int64()),
        ("processing_timer", pa.int64()),
        ("expires", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Entry:
    """The state of a key: its pickle, its next timers of event and processing time, and when all of it expires."""

    key: str
    data: bytes
    event_timer: int = NEVER
    processing_timer: int = NEVER
    expires: int = NEVER


class StateStore:
    """The keys of one bucket, as the last epoch left them."""

    def __init__(self, data: bytes | None) -> None:
        self.batch = pa.RecordBatch.from_pylist([], schema=SCHEMA)
        if data is not None:
            self.batch = pa.ipc.read_record_batch(_without_version(data, HEADER), SCHEMA)
        self._read_timers()

    def find(self, keys: Sequence[str]) -> list[int | None]:
        """Return the position of each key, or None."""
        if not keys or not self.batch.num_rows:
            return [None] * len(keys)
        found: list[int | None] = pc.index_in(pa.array(keys, pa.string()), value_set=self.batch.column(0)).to_pylist()
        return found

    def due(self, watermark_us: int, now_us: int) -> list[int]:
        """Return the positions of the keys that have a timer to fire."""
        found: list[int] = np.flatnonzero(
            (self._event_timers <= watermark_us) | (self._processing_timers <= now_us)
        ).tolist()
        return found

    def data(self, position: int) -> Any:
        """Return the pickle at a position."""
        return self.batch.column(1)[position].as_buffer()

    def updated(self, positions: Collection[int], entries: Sequence[Entry], expired_us: int | None) -> StateStore:
        """Return the store with new entries for the keys at some positions, and without expired keys."""
        retained = (self._event_timers != NEVER) | (self._processing_timers != NEVER)
        retained |= self._expires > (np.iinfo(np.int64).min if expired_us is None else expired_us)
        retained[list(positions)] = False
        old = self.batch if retained.all() else self.batch.filter(pa.array(retained))
        columns = [
            pa.array([getattr(entry, name) for entry in entries], kind)
            for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)
        ]
        store = StateStore(None)
        store._set(pa.Table.from_batches([old, pa.RecordBatch.from_arrays(columns, schema=SCHEMA)]))
        return store

    def bytes(self) -> bytes | None:
        """Return the state as bytes; None if there is none."""
        if not self.batch.num_rows:
            return None
        body: bytes = self.batch.serialize().to_pybytes()
        return HEADER + body

    @property
    def next_event_timer(self) -> int | None:
        """The event time of the next timer."""
        return _first(self._event_timers)

    @property
    def next_processing_timer(self) -> int | None:
        """The processing time of the next timer."""
        return _first(self._processing_timers)

    def _set(self, table: pa.Table) -> None:
        self.batch = table.combine_chunks().to_batches()[0] if table.num_rows else self.batch
        self._read_timers()

    def _read_timers(self) -> None:
        self._event_timers, self._processing_timers, self._expires = (
            self.batch.column(name).to_numpy() for name in SCHEMA.names[2:]
        )


def encode_rows(rows: pa.Table) -> bytes:
    """Return rows as the state of a bucket: the version of the format, then an Arrow stream."""
    return ROWS_VERSION + to_stream(rows)


def decode_rows(state: bytes) -> pa.Table:
    """Return the rows in the state of a bucket."""
    return from_stream(_without_version(state, ROWS_VERSION))


def _without_version(state: bytes, version: bytes) -> pa.Buffer:
    if state[: len(version)] != version:
        message = f"state begins with {state[: len(version)]!r}, which this Penstock cannot read"
        raise CheckpointDamaged(message, hint="run the version of Penstock that wrote it")
    return pa.py_buffer(state).slice(len(version))


def _first(times: Any) -> int | None:
    first = int(times.min(initial=NEVER))
    return None if first == NEVER else first
