"""A job whose answers differ at every call, and whose driver is killed once, between two commits of an epoch."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.connectors.files.sink import FileSink
from penstock.contracts import Epoch

ROWS = 6_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Deadly(FileSink):
    """Kills its driver with -9 when the second epoch is to be committed: other sinks have it then."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.died = Path(f"{path}-died")

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Die, the first time."""
        if epoch.number == 1 and not self.died.exists():
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(epoch, tokens)


async def ask(row: dict[str, Any]) -> dict[str, Any]:
    """Answer otherwise at every call, and refuse one row of five."""
    if random.randrange(5) == 0:
        raise ConnectionError("refused")
    return row | {"answer": random.getrandbits(40)}


def job(folder: str) -> ps.Pipeline:
    """Show the answers, and sums of them out of state."""
    rows = [{"k": number % 7, "ts": BEGIN + timedelta(seconds=number // 50)} for number in range(ROWS)]
    answered = ps.from_items(rows, "k bigint, ts timestamp").map_async(
        ask, "k bigint, ts timestamp, answer bigint", retries=0
    )
    windows = answered.event_time("ts", "1s").window(ps.tumbling("10s")).aggregate(total="sum(answer)")
    outputs = windows.to(ps.files(f"{folder}/windows")), answered.to(Deadly(f"{folder}/raw"))
    return ps.Pipeline("p", *outputs, rejected_to=ps.files(f"{folder}/bad"))
