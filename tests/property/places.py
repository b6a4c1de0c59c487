"""Where random pipelines read and write."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import penstock as ps
from tests.connectors.kafka_topics import fresh
from tests.crash.outputs import of_files, of_sqlite, of_topic
from tests.property.pipelines import SCHEMA, Row

FILES, PARTITIONS = 3, 2


class Places:
    """Sources and sinks of one pipeline, in a folder and on a broker."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder, self._bootstrap = folder, bootstrap

    def source(self, kind: str, rows: list[Row]) -> ps.Stream:
        """Write the rows to a new source; those of a key keep their order."""
        match kind:
            case "files":
                return self._files(rows)
            case "topic":
                return self._topic(rows)
        return ps.from_items(rows, SCHEMA).named("input")

    def sink(self, kind: str, number: int, key: str | None) -> tuple[ps.Sink, Callable[[], list[Row]]]:
        """Return a new sink, and a function that reads it; one that rows replace one another in is never of files."""
        if kind == "topic":
            topic = f"out{number}-{uuid.uuid4().hex[:8]}"
            sink = ps.topic(topic, key=key, connection=self._bootstrap)
            return sink, lambda: of_topic(self._bootstrap, topic)
        if kind == "sqlite" or key is not None:
            path, name = self._folder / f"out{number}.db", f"out{number}"
            upsert = {"mode": "upsert", "key": key} if key else {}
            return ps.table(name, connection=f"sqlite:///{path}", **upsert), lambda: of_sqlite(path, name)
        folder = self._folder / f"out{number}"
        return ps.files(str(folder)), lambda: of_files(folder)

    def _files(self, rows: list[Row]) -> ps.Stream:
        folder = self._folder / "input"
        folder.mkdir()
        size = -(-len(rows) // FILES)
        for number in range(FILES):
            path = folder / f"{number}.json"
            path.write_text("".join(f"{_line(row)}\n" for row in rows[number * size : (number + 1) * size]))
            os.utime(path, (1_800_000_000 + number,) * 2)
        return ps.read_files(str(folder), format="json", schema=SCHEMA).named("input")

    def _topic(self, rows: list[Row]) -> ps.Stream:
        topic = fresh(self._bootstrap).create(PARTITIONS)
        for partition in range(PARTITIONS):
            mine = [row for row in rows if int(row["k"][1:]) % PARTITIONS == partition]
            topic.produce([_line(row).encode() for row in mine], partition)
        return ps.read_topic(topic.name, schema=SCHEMA, connection=self._bootstrap).named("input")


def _line(row: Row) -> str:
    return f'{{"k": "{row["k"]}", "v": {row["v"]}, "ts": "{row["ts"].isoformat()}"}}'
