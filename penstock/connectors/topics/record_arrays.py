"""Decodes records to Arrow arrays, without a Python object per record.

A record is: length, attributes, delta of time, delta of offset, key, value, headers; all numbers except the attributes
are zigzag varints, and -1 is the length of a null key or value. Each field is decoded for all records at once.

A record's length is the only way to find the next record. So starts are found one by one, or guessed all at once: a
record without headers ends with a zero, then comes the next length, and a zero again. A guess is used only if each
record ends where the next one starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.connectors.topics.payloads import RECORDS
from penstock.connectors.topics.record_batches import Batch, Damaged

_LATEST_MICROS = np.iinfo(np.int64).max // 1000
_NO_TIME = -1
Ints = NDArray[np.int64]
Octets = NDArray[np.uint8]
# Bytes of a length, with one for the zero before it: records of up to a megabyte.
_LONGEST_LENGTH = 4


def decoded(batches: Sequence[Batch], partition: int, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the records of some batches; only the requested columns are decoded."""
    try:
        return _Records(batches).batch(partition, columns)
    except (IndexError, ValueError) as error:
        reason = "a record is cut off" if isinstance(error, IndexError) else error
        why = f"its records cannot be decoded: {reason}"
        raise Damaged(batches[0].base, batches[-1].next, why) from error


class _Records:
    """The positions of the fields of all records."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        joined = batches[0].records if len(batches) == 1 else b"".join(one.records for one in batches)
        self._buffer = pa.py_buffer(joined)
        self._data: Octets = np.frombuffer(joined, np.uint8)
        first, attributes = record_starts(joined, batches)
        self._ends = np.append(first[1:], len(joined))
        self._counts = np.array([one.number for one in batches])
        self._time_deltas, at = varints(self._data, attributes + 1)
        self._offset_deltas, at = varints(self._data, at)
        self._keys, self._key_sizes, at = self._sized(at)
        self._values, self._value_sizes, self._headers = self._sized(at)

    def batch(self, partition: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the requested columns."""
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
        """Return the position of a key or value, its length, and the position after it."""
        sizes, at = varints(self._data, at)
        after = at + np.maximum(sizes, 0)
        must(bool((sizes >= -1).all() and (after <= self._ends).all()), "a key or value is longer than its record")
        return at, sizes, after

    def _timestamps(self) -> pa.Array:
        millis = self._of_batch([one.base_time for one in self._batches]) + self._time_deltas
        for number, one in enumerate(self._batches):
            if one.append_time is not None:
                begin = int(self._counts[:number].sum())
                millis[begin : begin + one.number] = one.append_time
        must(bool((np.abs(millis) <= _LATEST_MICROS).all()), "a timestamp is out of the range of microseconds")
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
    """Return slices of a buffer as a binary array; a size of -1 is null.

    Arrow sees the buffer as pieces and what is between them, and copies every second one.
    """
    edges = np.empty(2 * len(at) + 1, np.int32)
    edges[:-1:2], edges[1::2] = at, at + np.maximum(sizes, 0)
    edges[-1] = edges[-2] if len(at) else 0
    whole = pa.Array.from_buffers(pa.binary(), 2 * len(at), [None, pa.py_buffer(edges), buffer])
    return whole.take(pa.array(np.arange(0, 2 * len(at), 2, dtype=np.int32), mask=sizes < 0))


def _names(names: pa.BinaryArray) -> pa.Array:
    """Return names of headers as text; invalid UTF-8 is replaced, as in Kafka's own client."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


def inside(records: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """Return the records in a range of offsets; batches may start before it and end after it."""
    offsets: Any = records.column("offset").to_numpy()
    low, high = np.searchsorted(offsets, [first, last])
    return records.slice(low, high - low)


def record_starts(data: bytes | memoryview, batches: Sequence[Batch]) -> tuple[Ints, Ints]:
    """Return the start of each record in the bytes of some batches, and the end of its length field."""
    octets: Octets = np.frombuffer(data, np.uint8)
    guess = _guessed(octets, batches)
    if guess is not None:
        return guess
    found = np.array(_walked(data, batches), np.int64)
    return found, varints(octets, found)[1]


def varints(data: Octets, at: Ints) -> tuple[Ints, Ints]:
    """Return the zigzag varints at some positions, and the positions after them."""
    octets = data[at]
    values = (octets & 127).astype(np.int64)
    at = at + 1
    more, shift = np.flatnonzero(octets > 127), 7
    while more.size:
        must(shift < 70, "a number has more than ten bytes")
        octets = data[at[more]]
        values[more] |= (octets & 127).astype(np.int64) << shift
        at[more] += 1
        more, shift = more[octets > 127], shift + 7
    # Unsigned: the highest bit of a 64-bit number is not a sign before zigzag decoding.
    return (values.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(values & 1), at


def must(holds: bool, otherwise: str) -> None:
    """Raise ValueError for bytes that are not records."""
    if not holds:
        raise ValueError(otherwise)


def _guessed(data: Octets, batches: Sequence[Batch]) -> tuple[Ints, Ints] | None:
    numbers = np.array([one.number for one in batches])
    if (numbers < 1).any() or numbers.sum() > len(data):
        return None
    zeros = np.flatnonzero(data == 0)
    apart = np.diff(zeros)
    found = np.append(0, zeros[:-1][(apart > 1) & (apart <= _LONGEST_LENGTH)] + 1)
    sizes, bodies = varints(data, found)
    nexts = bodies + sizes
    if len(found) != numbers.sum():
        kept = _followed(found, nexts, len(data))
        found, bodies, nexts = found[kept], bodies[kept], nexts[kept]
    fits = len(found) == numbers.sum() and found[0] == 0 and nexts[-1] == len(data)
    if not fits or not np.array_equal(nexts[:-1], found[1:]):
        return None
    edges = np.cumsum([len(one.records) for one in batches[:-1]])
    return (found, bodies) if np.array_equal(found[np.cumsum(numbers[:-1])], edges) else None


def _followed(found: Ints, nexts: Ints, end: int) -> NDArray[np.bool_]:
    """Return which of the positions are followed by another one, or by the end."""
    marked = np.zeros(end + 1, bool)
    marked[found] = marked[end] = True
    return (nexts > 0) & (nexts <= end) & marked[np.clip(nexts, 0, end)]


def _walked(data: bytes | memoryview, batches: Sequence[Batch]) -> list[int]:
    found: list[int] = []
    add = found.append
    at = end = 0
    for batch in batches:
        end += len(batch.records)
        # By their number: invalid bytes must not be scanned to the end.
        for _ in range(batch.number):
            add(at)
            size = data[at]
            if size < 128:
                at += 1 + (size >> 1)
                continue
            high = data[at + 1]
            if high < 128:
                at += 2 + ((size & 127 | high << 7) >> 1)
            else:
                at = _jump(data, at)
        must(at == end, f"{batch.number} records do not fit its length")
    return found


def _jump(data: bytes | memoryview, at: int) -> int:
    """Return the start of the record after a long one."""
    size = shift = 0
    while True:
        octet = data[at]
        size, shift, at = size | (octet & 127) << shift, shift + 7, at + 1
        if octet < 128:
            return at + (size >> 1)
