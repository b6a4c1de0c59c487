"""Records to Arrow arrays, without a Python object per record.

A record is: length, attributes, delta of time, delta of offset, key, value, headers; all numbers but the attributes
are zigzag varints, and -1 is the length of a key or value that is null. Each field is read of all records at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connectors.payloads import RECORDS
from penstock.connectors.records.batches import Batch, Damaged
from penstock.connectors.records.begins import Ints, Octets, begins, must, varints

_LATEST_MICROS = np.iinfo(np.int64).max // 1000
_NO_TIME = -1


def decoded(batches: Sequence[Batch], partition: int, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the records of some batches; only what is asked for is decoded."""
    try:
        return _Records(batches).batch(partition, columns)
    except (IndexError, ValueError) as error:
        reason = "a record is cut off" if isinstance(error, IndexError) else error
        why = f"its records are not where they should be: {reason}"
        raise Damaged(batches[0].base, batches[-1].next, why) from error


class _Records:
    """Where each record's fields are, in the bytes of all."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        joined = batches[0].records if len(batches) == 1 else b"".join(one.records for one in batches)
        self._buffer = pa.py_buffer(joined)
        self._data: Octets = np.frombuffer(joined, np.uint8)
        first, attributes = begins(joined, batches)
        self._ends = np.append(first[1:], len(joined))
        self._counts = np.array([one.number for one in batches])
        self._time_deltas, at = varints(self._data, attributes + 1)
        self._offset_deltas, at = varints(self._data, at)
        self._keys, self._key_sizes, at = self._sized(at)
        self._values, self._value_sizes, self._headers = self._sized(at)

    def batch(self, partition: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the columns that are asked for."""
        made = {
            "offset": self._offsets,
            "value": lambda: _texts(self._buffer, self._values, self._value_sizes),
            "key": lambda: _texts(self._buffer, self._keys, self._key_sizes),
            "partition": lambda: pa.array(np.full(len(self._ends), partition, np.int32)),
            "timestamp": self._timestamps,
            "headers": self._headers_column,
        }
        schema = pa.schema([RECORDS.field(name) for name in columns])
        return pa.RecordBatch.from_arrays([made[name]() for name in columns], schema=schema)

    def _offsets(self) -> pa.Array:
        offsets = self._of_batch([one.base for one in self._batches]) + self._offset_deltas
        within = (self._offset_deltas >= 0) & (offsets < self._of_batch([one.next for one in self._batches]))
        must(bool(within.all() and (np.diff(offsets) > 0).all()), "their offsets do not grow")
        return pa.array(offsets)

    def _of_batch(self, values: Sequence[int]) -> Ints:
        return np.repeat(np.array(values, np.int64), self._counts)

    def _sized(self, at: Ints) -> tuple[Ints, Ints, Ints]:
        """Return where a key or a value begins, its length, and what comes behind it."""
        sizes, at = varints(self._data, at)
        behind = at + np.maximum(sizes, 0)
        must(bool((sizes >= -1).all() and (behind <= self._ends).all()), "a key or value is longer than its record")
        return at, sizes, behind

    def _timestamps(self) -> pa.Array:
        millis = self._of_batch([one.base_time for one in self._batches]) + self._time_deltas
        for number, one in enumerate(self._batches):
            if one.log_time is not None:
                begin = int(self._counts[:number].sum())
                millis[begin : begin + one.number] = one.log_time
        must(bool((np.abs(millis) <= _LATEST_MICROS).all()), "a timestamp is beyond what microseconds can tell")
        return pa.array(millis * 1000, RECORDS.field("timestamp").type, mask=millis == _NO_TIME)

    def _headers_column(self) -> pa.Array:
        """Return a list per record; in each round the next header of every record that has one more."""
        left, at = varints(self._data, self._headers)
        owner, counts, rounds = np.arange(len(at)), left, []
        must(bool((left >= 0).all()), "a record has less than no headers")
        while (more := left > 0).any():
            owner, at, left, ends = owner[more], at[more], left[more] - 1, self._ends[owner[more]]
            key_sizes, keys = varints(self._data, at)
            value_sizes, values = varints(self._data, keys + key_sizes)
            at = values + np.maximum(value_sizes, 0)
            must(bool((key_sizes >= 0).all() and (value_sizes >= -1).all() and (at <= ends).all()), "a header is cut")
            rounds.append(np.stack([owner, keys, key_sizes, values, value_sizes]))
        found = np.concatenate(rounds, axis=1) if rounds else np.zeros((5, 0), np.int64)
        owner, keys, key_sizes, values, value_sizes = found[:, np.argsort(found[0], kind="stable")]
        names = _names(_texts(self._buffer, keys, key_sizes))
        kind = RECORDS.field("headers").type
        pairs = pa.StructArray.from_arrays(
            [names, _texts(self._buffer, values, value_sizes)], fields=list(kind.value_type)
        )
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, pairs, type=kind, mask=pa.array(counts == 0))


def _texts(buffer: pa.Buffer, at: Ints, sizes: Ints) -> pa.BinaryArray:
    """Return pieces of a buffer as a binary array; a size of -1 is null.

    Arrow sees the buffer as pieces and what is between them, and copies every second one.
    """
    edges = np.empty(2 * len(at) + 1, np.int32)
    edges[:-1:2], edges[1::2] = at, at + np.maximum(sizes, 0)
    edges[-1] = edges[-2] if len(at) else 0
    whole = pa.Array.from_buffers(pa.binary(), 2 * len(at), [None, pa.py_buffer(edges), buffer])
    return whole.take(pa.array(np.arange(0, 2 * len(at), 2, dtype=np.int32), mask=sizes < 0))


def _names(names: pa.BinaryArray) -> pa.Array:
    """Return names of headers as text; bytes that are none are replaced, as Kafka's own client does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


def inside(records: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """Return what of the records is in a range of offsets; batches begin before it and end behind it."""
    offsets: Any = records.column("offset").to_numpy()
    low, high = np.searchsorted(offsets, [first, last])
    return records.slice(low, high - low)
