"""Values made from (seed, column, row number) alone, a column at a time."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.schema import Schema

BATCH = 65_536
START = 1_767_225_600_000_000  # 2026-01-01T00:00Z
STEP = 100
SHAPES = {
    "trades": "symbol string, price double, size bigint, ts timestamp",
    "clicks": "user string, page string, ts timestamp",
    "orders": "order_id bigint, customer string, amount decimal(10,2), ts timestamp",
}
PAGES = 100

Bits: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]


class Generator:
    """Makes the rows of one shape.

    Invariant: a row depends on its number only, so `batch(a, c)` is `batch(a, b)` followed by `batch(b, c)`.
    """

    def __init__(self, name: str, schema: Schema, keys: int, seed: int, disorder: int, late: float) -> None:
        self._name, self._arrow = name, schema.nullable().arrow
        self._keys, self._seed, self._disorder = keys, seed, disorder
        self._late = min(1 << 32, round(late * (1 << 32)))
        self._words: dict[tuple[str, int], npt.NDArray[np.uint8]] = {}

    def batch(self, first: int, last: int) -> pa.RecordBatch:
        """Return the rows from number `first` up to number `last`."""
        rows = np.arange(first, last, dtype=np.int64)
        columns = [self._column(field, salt, rows) for salt, field in enumerate(self._arrow)]
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _column(self, field: pa.Field, salt: int, rows: Ints) -> pa.Array:
        match self._name, field.name:
            case "trades", "price":
                return self._price(salt, rows)
            case "clicks", "page":
                return self._string("/page/", PAGES, salt, rows)
            case "orders", "order_id":
                return pa.array(rows)
            case "orders", "amount":
                return _decimals(100 + _below(self._bits(salt, rows), 99_900), field.type)
        return self._typed(field.type, field.name, salt, rows)

    def _bits(self, salt: int, rows: Ints) -> Bits:
        """Return 64 even bits per row: splitmix64 of the row number in the column's own sequence."""
        sequence = (self._seed * 1_000_003 + salt + 1) % (1 << 64)
        base = _mix(np.array([sequence], dtype=np.uint64))
        bits = rows.astype(np.uint64)
        bits *= np.uint64(0x9E3779B97F4A7C15)
        bits += base
        return _mix(bits)

    def _typed(self, kind: pa.DataType, name: str, salt: int, rows: Ints) -> pa.Array:
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return self._string(name[:1].upper(), self._keys, salt, rows).cast(kind)
        if pa.types.is_timestamp(kind):
            return pa.array(self._time(salt, rows)).cast(kind)
        if pa.types.is_nested(kind):
            return self._nested(kind, name, salt, rows)
        return self._scalar(kind, salt, rows)

    def _scalar(self, kind: pa.DataType, salt: int, rows: Ints) -> pa.Array:
        bits = self._bits(salt, rows)
        if pa.types.is_boolean(kind):
            return pa.array((bits >> np.uint64(63)).astype(bool))
        if pa.types.is_floating(kind):
            return pa.array(_below(bits, 256_000) / 256.0).cast(kind)
        if pa.types.is_decimal(kind):
            return _decimals(_below(bits, 10 ** min(kind.precision, 6)), kind)
        if pa.types.is_date(kind):
            return pa.array((self._time(salt, rows) // 86_400_000_000).astype(np.int32)).cast(kind)
        if pa.types.is_null(kind):
            return pa.nulls(len(rows))
        return pa.array(_below(bits, 1000 if kind != pa.int8() else 100)).cast(kind)

    def _nested(self, kind: pa.DataType, name: str, salt: int, rows: Ints) -> pa.Array:
        inner = 1000 * (salt + 1)
        if pa.types.is_struct(kind):
            parts = [self._typed(f.type, f.name, inner + n, rows) for n, f in enumerate(kind)]
            return pa.StructArray.from_arrays(parts, fields=list(kind))
        ends = np.arange(len(rows) + 1, dtype=np.int32)
        if pa.types.is_map(kind):
            keys = self._typed(kind.key_type, name, inner, rows)
            values = self._typed(kind.item_type, name, inner + 1, rows)
            return pa.MapArray.from_arrays(pa.array(ends), keys, values)
        each = 2
        numbers = (rows[:, None] * each + np.arange(each)).ravel()
        values = self._typed(kind.value_type, name, inner, numbers)
        return pa.ListArray.from_arrays(pa.array(ends * each), values).cast(kind)

    def _string(self, prefix: str, keys: int, salt: int, rows: Ints) -> pa.Array:
        return _fixed(self._word_list(prefix, keys), _below(self._bits(salt, rows), keys))

    def _word_list(self, prefix: str, keys: int) -> npt.NDArray[np.uint8]:
        if (prefix, keys) not in self._words:
            width = max(5, len(str(keys - 1)))
            words = [f"{prefix}{n:0{width}}".encode() for n in range(keys)]
            self._words[prefix, keys] = np.frombuffer(b"".join(words), np.uint8).reshape(keys, -1)
        return self._words[prefix, keys]

    def _price(self, salt: int, rows: Ints) -> pa.Array:
        # Column 0 is the symbol: its key decides the level that the price stays near.
        level = 8 + _below(_mix(_below(self._bits(0, rows), self._keys).astype(np.uint64)), 484)
        change = _below(self._bits(salt, rows), 2 * 7 * 256) - 7 * 256
        return pa.array(level + change / 256.0)

    def _time(self, salt: int, rows: Ints) -> Ints:
        bits = self._bits(salt, rows)
        times = START + rows * STEP - _below(bits, self._disorder + 1)
        late = (bits & np.uint64(0xFFFFFFFF)) < np.uint64(self._late)
        if late.any():
            delay = 180_000_000 + _below(_mix(bits[late]), 420_000_001)
            times[late] = START + rows[late] * STEP - delay
        bounded: Ints = np.maximum(times, START)
        return bounded


def _mix(bits: Bits) -> Bits:
    """Finish splitmix64."""
    bits = bits ^ (bits >> np.uint64(30))
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def _below(bits: Bits, limit: int) -> Ints:
    # Multiply and shift: several times cheaper than the remainder of a division.
    return (((bits >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32)).astype(np.int64)


def _fixed(words: npt.NDArray[np.uint8], picks: Ints) -> pa.Array:
    width = words.shape[1]
    data = np.take(words, picks, axis=0)
    ends = np.arange(0, (len(picks) + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(picks), pa.py_buffer(ends), pa.py_buffer(data))


def _decimals(units: Ints, kind: pa.DataType) -> pa.Array:
    """Lay 64-bit units of the last digit out as 128-bit decimals."""
    wide = np.zeros((len(units), 2), dtype=np.int64)
    wide[:, 0] = units
    return pa.Array.from_buffers(kind, len(units), [None, pa.py_buffer(wide)])
