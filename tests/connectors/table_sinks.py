"""Tables of both databases for tests: a sink on a table of its own, and what the table then holds."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.connectors.tables.sink import TableSink
from penstock.contracts import ROW_REMOVED, Epoch
from penstock.schema import Schema
from penstock.settings import Settings

SETTINGS = Settings(parallelism=2)


@dataclass
class TargetTable:
    """A database: its address, a table's name that no other test uses, and a way to run SQL there."""

    url: str
    table: str
    sql: Callable[[str], list[tuple[Any, ...]]]

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql")

    def sink(self, shape: str, *, key: Sequence[str] = (), name: str | None = None, **options: Any) -> TableSink:
        """Open a sink as a run does."""
        sink = TableSink(name or self.table, self.url, **options)
        return opened(sink, shape, key)

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(self.sql(f"SELECT {columns} FROM {self.table}"), key=repr)


def opened(sink: TableSink, shape: str, key: Sequence[str] = ()) -> TableSink:
    sink.configure("job", SETTINGS)
    sink.check()
    sink.open(Schema(shape), tuple(key))
    sink.bind_lineage("line", sink.name)
    return sink


def epoch(sink: TableSink, number: int, lineage: str = "line") -> Epoch:
    return Epoch(lineage, sink.name, number)


def prepare(sink: TableSink, number: int, shape: str, rows: Sequence[dict[str, Any]], partition: int = 0) -> None:
    """Write an epoch's rows as a task does, in two batches."""
    arrow = Schema(shape).nullable().arrow
    if rows and ROW_REMOVED in rows[0]:
        arrow = arrow.append(pa.field(ROW_REMOVED, pa.bool_()))
    half = len(rows) // 2
    batches = [pa.RecordBatch.from_pylist(list(part), schema=arrow) for part in (rows[:half], rows[half:])]
    task = pickle.loads(pickle.dumps(sink))
    task.prepare(epoch(sink, number), partition, iter(batches))


def sqlite_table(path: Any, table: str) -> TargetTable:
    def sql(statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(statement).fetchall()

    return TargetTable(f"sqlite:///{path}", table, sql)
