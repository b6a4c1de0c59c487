"""The demo's input: trades as Parquet files."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.datagen import DataGen

FILES = 8
ROW_GROUP = 125_000


def write_trades(folder: Path, events: int, symbols: int, seed: int = 7) -> float:
    """Write the trades and return the seconds it took; the files' order is that of their names."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    source = DataGen("trades", rows=events, keys=symbols, seed=seed)
    bounds = [events * part // FILES for part in range(FILES + 1)]
    for part, (start, end) in enumerate(pairwise(bounds)):
        if start == end:
            continue
        batches = [item for item in source.read("0", start, end) if isinstance(item, pa.RecordBatch)]
        path = folder / f"trades-{part:03}.parquet"
        pq.write_table(pa.Table.from_batches(batches), path, row_group_size=ROW_GROUP, compression="zstd")
    return time.monotonic() - began
