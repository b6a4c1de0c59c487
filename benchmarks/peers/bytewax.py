"""Bytewax with recovery on: one process, since its Python steps hold the interpreter's lock."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.files import FileSink
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition, batch
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from benchmarks.peers.protocol import Config, Folders, files, main

ALIGN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(seconds=60)
Trade = tuple[float, int, datetime]


class _Files(StatefulSourcePartition[Any, int]):
    """Reads files one after the other, a thousand rows at a time; the state is the number of rows read."""

    def __init__(self, config: Config, done: int) -> None:
        self._done = done
        rows = (row for path in files(config) for row in _READERS[config.format](path))
        for _ in range(done):
            next(rows)
        self._batches = batch(rows, 1000)

    def next_batch(self) -> list[Any]:
        rows = next(self._batches)
        self._done += len(rows)
        return rows

    def snapshot(self) -> int:
        return self._done


class Trades(FixedPartitionedSource[Any, int]):
    """The input files as one partition, in order."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def list_parts(self) -> list[str]:
        """Name the only partition."""
        return ["files"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Files:
        """Open it where it was left."""
        return _Files(self._config, resume_state or 0)


def _read_csv(path: str) -> Iterator[list[str]]:
    with open(path, newline="") as lines:
        reader = csv.reader(lines)
        next(reader)
        yield from reader


def _read_json(path: str) -> Iterator[list[Any]]:
    with open(path) as lines:
        for line in lines:
            row = json.loads(line)
            yield [row["symbol"], row["price"], row["size"], row["ts"]]


_READERS = {"csv": _read_csv, "json": _read_json}


def _keyed(row: list[Any]) -> tuple[str, Trade]:
    symbol, price, size, ts = row
    return symbol, (float(price), int(size), datetime.fromisoformat(ts))


def _add(total: tuple[float, int, int], trade: Trade) -> tuple[float, int, int]:
    return total[0] + trade[0] * trade[1], total[1] + trade[1], total[2] + 1


def _merge(one: tuple[float, int, int], other: tuple[float, int, int]) -> tuple[float, int, int]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _line(item: tuple[str, tuple[int, tuple[float, int, int]]]) -> tuple[str, str]:
    symbol, (window, (notional, volume, trades)) = item
    start = ALIGN + window * MINUTE
    made = {"symbol": symbol, "window_start": start.isoformat(), "vwap": notional / volume}
    return symbol, json.dumps(made | {"volume": volume, "trades": trades})


def flow(config: Config, output: str) -> Dataflow:
    """Build the dataflow: filter, event time with 5 s delay, tumbling windows of 60 s, a file."""
    made = Dataflow("vwap")
    rows = op.input("trades", made, Trades(config))
    keyed = op.map("key", rows, _keyed)
    some = op.filter("filter", keyed, lambda item: item[1][1] > 0)
    # The watermark follows the trades alone: with the system's clock, which is far ahead of theirs, Bytewax
    # wakes every key in every step, and closes windows sooner the longer the job takes.
    clock = win.EventClock(lambda trade: trade[2], timedelta(seconds=5), lambda: ALIGN, lambda _: None)
    windower = win.TumblingWindower(length=MINUTE, align_to=ALIGN)
    totals = win.fold_window("vwap", some, clock, windower, lambda: (0.0, 0, 0), _add, _merge, ordered=False)
    lines = op.map("line", totals.down, _line)
    op.output("prices", lines, FileSink(f"{output}/prices.json"))
    return made


def job(config: Config, folders: Folders) -> None:
    """Run the dataflow to the end of its files, which closes all windows."""
    init_db_dir(Path(folders.checkpoint), 1)
    recovery = RecoveryConfig(folders.checkpoint)
    dataflow = flow(config, folders.output)
    cli_main(dataflow, epoch_interval=timedelta(seconds=1), recovery_config=recovery)


if __name__ == "__main__":
    main(job, "json")
