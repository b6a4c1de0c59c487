"""Made-up rows for demonstrations, tests and benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.checks import whole_number
from penstock.connectors.generators import BATCH, SHAPES, Generator
from penstock.connectors.notes import even_cuts, read_note
from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import BadValue, choices
from penstock.folders import Folder
from penstock.folders import folder as to_folder
from penstock.schema import Schema, Shape


class DataGen(Source):
    """Rows that depend on the seed and their number only, so any range can be read again.

    Guarantee: exactly once. Without `rate` all rows are there at once; with it, so many per second since
    the job's first epoch, restarts included. Without `rows` it never ends.

    >>> DataGen("trades", rows=10).schema
    Schema('symbol string, price double, size bigint, ts timestamp')
    """

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
        """Return what rebuilds it from JSON."""
        shape = self.name if self.name in SHAPES else self.schema.ddl
        return {"kind": "datagen", "shape": shape, "rows": self._rows, "rate": self._rate, **self._settings}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> DataGen:
        """Rebuild it from `spec()`."""
        return cls(**{name: value for name, value in spec.items() if name != "kind"})

    def open(self, folder: str | Folder) -> None:
        """Keep the instant of the first epoch in this folder."""
        self._folder = to_folder(folder)

    def initial(self) -> Offsets:
        """Return the offsets before the first row."""
        return {"0": 0}

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return the number of rows that one may have read."""
        begin = int(start.get("0", 0))
        bounds = [n for n in (self._rows, self._available()) if n is not None]
        if max_rows is not None or not bounds:
            # Endless and as fast as possible still needs epochs of some size.
            bounds.append(begin + max(1, max_rows if max_rows is not None else 1_000_000))
        return {"0": max(begin, min(bounds))}

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows from number `start` up to number `end`."""
        for first in range(int(start or 0), int(end), BATCH):
            yield self._generator.batch(first, min(int(end), first + BATCH))

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Cut the range into pieces of about the same size."""
        first, last = int(start.get("0", 0)), int(end["0"])
        return [("0", lo, hi) for lo, hi in even_cuts(first, last, parallelism)]

    def behind(self, offsets: Offsets) -> int | None:
        """Return how many rows are there after these offsets; without an end or a rate that is not known."""
        if self._rows is None and self._rate is None:
            return None
        return int(self.latest(offsets, None)["0"]) - int(offsets.get("0", 0))

    @property
    def can_drop(self) -> bool:  # type: ignore[override]
        """Only what comes by and by can be too much."""
        return self._rate is not None

    def newest(self, start: Offsets, rows: int) -> tuple[Offsets, int]:
        """Return the number of the row before the newest, and how many are left out."""
        begin = int(start.get("0", 0))
        upto = max(begin, int(self.latest(start, None)["0"]) - rows)
        return {"0": upto}, upto - begin

    def ended(self, offsets: Offsets) -> bool:
        """Say whether all rows were read."""
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
        return int(read_note(str(here.parent.parent / "clock-shift")) or 0) / 1e6 if here else 0.0


def _refuse_unknown(shape: Shape) -> None:
    """Refuse one word that is no shape: a schema has two at least."""
    if isinstance(shape, str) and shape.strip() and shape not in SHAPES and len(shape.split()) == 1:
        message = f"{shape!r} is neither a kind of rows nor a schema"
        hint = f'{choices("kinds", SHAPES, shape)}\n  or pass a schema: datagen("id bigint, name string")'
        raise BadValue(message, node="datagen", hint=hint)
