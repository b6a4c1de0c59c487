"""Generated rows for demonstrations, tests and benchmarks: a function of (seed, column, row number) alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.ranges import split_range
from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import BadValue, choices, whole_number
from penstock.schema import Schema, Shape
from penstock.storage.durable_files import read_text
from penstock.storage.folders import Folder
from penstock.storage.folders import folder as to_folder

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
    """Generates the rows of one shape.

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


class DataGen(Source):
    """Rows that depend on the seed and their number only, so any range can be read again.

    Guarantee: exactly once. Without `rate` all rows are available at once; with it, this many per second since
    the job's first epoch, restarts included. Without `rows` it never ends.

    >>> DataGen("trades", rows=10).schema
    Schema('symbol string, price double, size bigint, ts timestamp')
    """

    repeats_splits = True
    now: Callable[[], float] = staticmethod(time.time)

    def __init__(
        self,
        shape: Shape = "trades",
        rows: int | None = None,
        rate: int | None = None,
        keys: int = 1000,
        seed: int = 0,
        *,
        out_of_order: float = 2.0,
        late: float = 0.001,
    ) -> None:
        """Take the late rows as a fraction, and the disorder of the others in seconds."""
        whole_number(0, "datagen", {"rows": rows, "seed": seed})
        whole_number(1, "datagen", {"rate": rate, "keys": keys})
        _refuse_unknown(shape)
        self.name = shape if isinstance(shape, str) and shape in SHAPES else "datagen"
        self.schema = Schema(SHAPES.get(self.name, shape))
        self._rows, self._rate = rows, rate
        self._settings = {"keys": keys, "seed": seed, "out_of_order": out_of_order, "late": late}
        self._generator = Generator(self.name, self.schema, keys, seed, round(out_of_order * 1e6), late)
        self._folder: Folder | None = None
        self._started: float | None = None

    def spec(self) -> dict[str, Any]:
        """Return the JSON description."""
        shape = self.name if self.name in SHAPES else self.schema.ddl
        return {"kind": "datagen", "shape": shape, "rows": self._rows, "rate": self._rate, **self._settings}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> DataGen:
        """Rebuild it from `spec()`."""
        return cls(**{name: value for name, value in spec.items() if name != "kind"})

    def open(self, folder: str | Folder) -> None:
        """Store the time of the first epoch in this folder."""
        self._folder = to_folder(folder)

    def initial(self) -> Offsets:
        """Return the offsets before the first row."""
        return {"0": 0}

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return the row number up to which the next epoch reads."""
        begin = int(start.get("0", 0))
        bounds = [n for n in (self._rows, self._available()) if n is not None]
        if max_rows is not None or not bounds:
            # Without an end and a rate, epochs still need some size.
            bounds.append(begin + max(1, max_rows if max_rows is not None else 1_000_000))
        return {"0": max(begin, min(bounds))}

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows from number `start` up to number `end`."""
        for first in range(int(start or 0), int(end), BATCH):
            yield self._generator.batch(first, min(int(end), first + BATCH))

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Divide the range into splits of about the same size."""
        first, last = int(start.get("0", 0)), int(end["0"])
        return [("0", lo, hi) for lo, hi in split_range(first, last, parallelism)]

    def lag(self, offsets: Offsets) -> int | None:
        """Return how many rows there are after these offsets; None without an end and a rate."""
        if self._rows is None and self._rate is None:
            return None
        return int(self.latest(offsets, None)["0"]) - int(offsets.get("0", 0))

    @property
    def can_drop(self) -> bool:  # type: ignore[override]
        """Whether rows arrive at a rate, so that a job can fall behind."""
        return self._rate is not None

    def drop_oldest(self, start: Offsets, rows: int) -> tuple[Offsets, int]:
        """Return the offset of the newest rows, and how many are skipped."""
        begin = int(start.get("0", 0))
        upto = max(begin, int(self.latest(start, None)["0"]) - rows)
        return {"0": upto}, upto - begin

    def ended(self, offsets: Offsets) -> bool:
        """Return whether all rows were read."""
        return self._rows is not None and int(offsets.get("0", 0)) >= self._rows

    def _available(self) -> int | None:
        if self._rate is None:
            return None
        now = self.now() + self._shift()
        return int((now - self._start(now)) * self._rate)

    def _start(self, now: float) -> float:
        if self._started is None:
            noted = self._folder.read("started") if self._folder else None
            self._started = float(noted) if noted else now
            if self._folder and not noted:
                self._folder.write("started", repr(now).encode())
        return self._started

    def _shift(self) -> float:
        # The test kit moves the processing clock of a whole job through this file.
        here = self._folder.local if self._folder else None
        return int(read_text(str(here.parent.parent / "clock-shift")) or 0) / 1e6 if here else 0.0


def _refuse_unknown(shape: Shape) -> None:
    """Raise BadValue for a single word that is not a shape: a schema has at least two words."""
    if isinstance(shape, str) and shape.strip() and shape not in SHAPES and len(shape.split()) == 1:
        message = f"{shape!r} is neither a shape nor a schema"
        hint = f'{choices("shapes", SHAPES, shape)}\n  or pass a schema: datagen("id bigint, name string")'
        raise BadValue(message, node="datagen", hint=hint)
