"""The records of a run: they depend on its seed only, and so does what becomes of each, however epochs fall.

Rows follow one another in time but for a few seconds. The late ones are a day old and stand in the last fifth: no
first epoch, in which nothing is late, reaches them. Bad ones cannot be parsed, or lack a symbol.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

SCHEMA = "id bigint, symbol string not null, price double, size bigint, ts timestamp, note string"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SPAN_SECONDS = 200
DISORDER_SECONDS = 4
SYMBOLS = 20
PARTITIONS = 2
# Rows so wide that a partition of a hundred is sent to a Python worker in several pieces of 64 KiB.
WIDE = 2_000


@dataclass(frozen=True)
class Input:
    """Rows that count, and the lines that are no rows; `lines` has both in order, `partitions` says where they go.

    All rows of a symbol are in one partition, so the order of a symbol's rows is known.
    """

    epochs: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)

    @property
    def epoch_rows(self) -> int:
        return max(1, len(self.lines) // self.epochs)

    @property
    def table(self) -> pa.Table:
        times = [datetime.fromisoformat(row["ts"]) for row in self.rows]
        columns = {name: [row[name] for row in self.rows] for name in ("id", "symbol", "price", "size", "note")}
        return pa.table(columns | {"ts": pa.array(times, pa.timestamp("us", "UTC"))})


def made(seed: int, count: int, epochs: int, *, wide: bool = False) -> Input:
    """Make so many records, for about so many epochs."""
    chance = random.Random(seed)
    result = Input(epochs)
    for number in range(count):
        row = _row(chance, number, count, "w" * WIDE if wide else "")
        line = json.dumps(row)
        if chance.random() < 0.01:
            line = _spoilt(line, chance)
            result.bad.append(line)
        else:
            result.rows.append(row)
        result.lines.append(line)
        result.partitions.append(int(row["symbol"][1:]) % PARTITIONS)
    return result


def _row(chance: random.Random, number: int, count: int, filler: str) -> dict[str, Any]:
    seconds = number / count * SPAN_SECONDS + chance.random() * DISORDER_SECONDS
    if number > count * 0.8 and chance.random() < 0.05:
        seconds -= 86_400
    # Prices in multiples of 1/256: their sums are exact, in whatever order.
    row = {"id": number, "symbol": f"S{chance.randrange(SYMBOLS):02}", "price": chance.randrange(1, 25_600) / 256}
    time = (BEGIN + timedelta(microseconds=round(seconds * 1e6))).isoformat()
    return row | {"size": chance.choice([0, *range(1, 100)]), "ts": time, "note": f"{number}{filler}"}


def _spoilt(line: str, chance: random.Random) -> str:
    if chance.random() < 0.5:
        return line[:-1]
    return json.dumps(json.loads(line) | {"symbol": None})


def write_files(lines: Input, folder: Path) -> None:
    """Write about a file per epoch."""
    folder.mkdir(parents=True)
    for number, first in enumerate(range(0, len(lines.lines), lines.epoch_rows)):
        path = folder / f"part-{number:03}.json"
        path.write_text("".join(f"{line}\n" for line in lines.lines[first : first + lines.epoch_rows]))
        os.utime(path, (1_800_000_000 + number,) * 2)


def write_topic(lines: Input, bootstrap: str, topic: str) -> None:
    """Write a topic of several partitions, all of it before the job starts."""
    admin = AdminClient(_client(bootstrap))
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer(_client(bootstrap) | {"enable.idempotence": True, "linger.ms": 5})
    for number, (line, partition) in enumerate(zip(lines.lines, lines.partitions, strict=True)):
        producer.produce(topic, line.encode(), partition=partition)
        if number % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0, "the input did not reach its topic"


def _client(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "metadata.recovery.strategy": "none", "log_level": 0}
