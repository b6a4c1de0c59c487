"""Input files that every system reads, made once and kept."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from pyarrow import parquet

from benchmarks.answer import CLOSING_YEAR
from penstock.connectors.generators.datagen import DataGen

CACHE = Path(".penstock/bench")
ROW_GROUP = 125_000
_TIMES = "strftime(ts AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
_TEXT = f"SELECT symbol, price, size, {_TIMES} AS ts FROM trades"
_COPIES = {
    "csv": f"COPY ({_TEXT}) TO '{{}}' (FORMAT csv, HEADER)",
    "json": f"COPY ({_TEXT}) TO '{{}}' (FORMAT json)",
}


@dataclass(frozen=True)
class Trades:
    """Trades in as many files as there are epochs; none is late, so every system has the same answer."""

    events: int
    symbols: int
    format: str
    epochs: int
    cache: Path = CACHE

    @property
    def folder(self) -> Path:
        """Where they are kept, and what is made of them."""
        name = f"trades-{self.events}-{self.symbols}-{self.epochs}-{self.format}"
        return self.cache.absolute() / name

    @property
    def input(self) -> Path:
        """One file per epoch, in the order of their names and of their times of change."""
        return self.folder / "input"

    @property
    def closing(self) -> Path:
        """One file with one row, far in the future and changed last."""
        return self.folder / "closing"

    @property
    def epoch_rows(self) -> int:
        """What makes Penstock read a file per epoch; of text, whose rows it estimates, about a file."""
        return max(1, self.events // self.epochs)

    def prepare(self) -> None:
        """Make the files unless they are there."""
        if self.folder.is_dir():
            return
        partial = self.folder.with_name(f"{self.folder.name}.partial-{os.getpid()}")
        source = DataGen("trades", rows=self.events, keys=self.symbols, seed=1, late=0.0)
        for number in range(self.epochs):
            first, last = (self.events * n // self.epochs for n in (number, number + 1))
            self._write(partial / "input", number, pa.Table.from_batches(source.read("0", first, last)))
        self._write(partial / "closing", self.epochs, _closing_row(source))
        try:
            partial.rename(self.folder)
        except OSError:  # another run was faster
            shutil.rmtree(partial)

    def _write(self, folder: Path, number: int, trades: pa.Table) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{number:05}.{self.format}"
        if self.format == "parquet":
            # Groups of the same size: with a small last one, one of two readers would wait for the other.
            groups = -(-len(trades) // ROW_GROUP)
            parquet.write_table(trades, path, row_group_size=-(-len(trades) // groups))
        else:
            with duckdb.connect(config={"threads": 1}) as db:
                db.register("trades", trades)
                db.execute(_COPIES[self.format].format(path))
        # Spark reads files by their time of change: a second apart, so that all systems have the same epochs.
        os.utime(path, (1_800_000_000 + number,) * 2)


def _closing_row(source: DataGen) -> pa.Table:
    [row] = pa.Table.from_batches(source.read("0", 0, 1)).to_pylist()
    row |= {"size": 1, "ts": row["ts"].replace(year=CLOSING_YEAR)}
    return pa.Table.from_pylist([row], schema=source.schema.nullable().arrow)
