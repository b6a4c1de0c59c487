"""The console sink: prints rows on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.connectors.formats.wide_times import batch_dicts
from penstock.connectors.sinks.collect import from_ipc, to_ipc
from penstock.contracts import Epoch, Sink

MOST = 20


class ConsoleSink(Sink):
    """Prints the first rows of each epoch where the job runs, as a small table.

    Guarantee: at least once; a replayed epoch is printed again.
    """

    guarantee = "at_least_once"
    updates = True

    def __init__(self) -> None:
        self.name = "console"

    def spec(self) -> dict[str, Any]:
        """Return the JSON description."""
        return {"kind": "console"}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> ConsoleSink:
        """Rebuild it from `spec()`."""
        return cls()

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
        """Return the first rows and how many there are."""
        first: list[pa.RecordBatch] = []
        count = 0
        for batch in batches:
            if count < MOST and batch.num_rows:
                first.append(batch.slice(0, MOST - count))
            count += batch.num_rows
        return to_ipc(first), count

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Print the epoch, if it has rows."""
        count = sum(count for _, count in tokens)
        if not count:
            return
        rows = [row for data, _ in tokens for batch in from_ipc(data) for row in batch_dicts(batch)]
        console = Console()
        console.print(_table(f"{epoch.sink}, epoch {epoch.number}", rows[:MOST]))
        if count > MOST:
            console.print(f"... and {count - MOST} more")


def _table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for name in rows[0]:
        table.add_column(Text(name))
    for row in rows:
        # Text: a value like "[red]" must not be taken as markup.
        table.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    return table
