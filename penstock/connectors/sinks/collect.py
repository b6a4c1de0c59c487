"""The collect sink: rows in memory, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.connectors.formats.wide_times import batch_dicts
from penstock.contracts import Epoch, Sink


def to_ipc(batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return batches as Arrow IPC bytes, none as no bytes."""
    sink, writer = pa.BufferOutputStream(), None
    for batch in batches:
        writer = writer or pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is None:
        return b""
    writer.close()
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_ipc(data: bytes) -> list[pa.RecordBatch]:
    """Return the batches of `to_ipc`."""
    return list(pa.ipc.open_stream(data)) if data else []


class CollectSink(Sink):
    """Collects rows in the driver's memory.

    Guarantee: exactly once while the process lives: a replayed epoch is kept once. Nothing survives it.
    """

    guarantee = "exactly_once"
    updates = True

    def __init__(self) -> None:
        self.name = "collect"
        self._epochs: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._newest: dict[tuple[str, str], Epoch] = {}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows as dicts, epoch by epoch; times are aware and in UTC, those that Python cannot have are text."""
        return [row for _, rows in sorted(self._epochs.values(), key=lambda e: e[0]) for row in rows]

    @property
    def epochs(self) -> dict[int, list[dict[str, Any]]]:
        """The rows of each epoch that has some, by its number."""
        return {number: rows for number, rows in sorted(self._epochs.values(), key=lambda e: e[0]) if rows}

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Return the rows themselves as the token."""
        return to_ipc(batches)

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Add the rows, unless the epoch was added before."""
        if not self.committed(epoch):
            rows = [row for token in tokens for batch in from_ipc(token) for row in batch_dicts(batch)]
            self._epochs[epoch.id] = (epoch.number, rows)
            self._newest[epoch.lineage, epoch.sink] = epoch

    def committed(self, epoch: Epoch) -> bool:
        """Return whether the epoch was added before."""
        return epoch.id in self._epochs

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str]:
        """Return the epoch that was added last."""
        newest = self._newest.get((lineage, sink))
        return {newest.number: newest.bounds} if newest else {}
