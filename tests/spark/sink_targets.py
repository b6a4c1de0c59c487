"""Sinks of every kind for tests of whole pipelines: each at a location of its own, with the rows its readers see."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from tests.connectors.table_sinks import sqlite_table
from tests.crash.outputs import of_topic
from tests.databases import PostgresServer

Row = dict[str, Any]
# Sinks whose tasks commit their own rows, together with the ledger.
COMMITTED_BY_TASKS = ("sqlite", "postgresql", "topic", "user")
KINDS = (*COMMITTED_BY_TASKS, "files")


class UserSink(ps.Sink):
    """A user's sink that writes each partition of an epoch in its task; the file is the ledger entry too."""

    guarantee = "exactly_once"
    partitions = 3

    def __init__(self, folder: Path, key: Sequence[str] = ()) -> None:
        self.name, self.key, self.folder = folder.name, tuple(key), str(folder)
        folder.mkdir(parents=True)

    def prepare(self, epoch: ps.Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> None:
        path = f"{self.folder}/{epoch.number:06}-{partition}.json"
        if os.path.exists(path):
            return
        rows = [row for batch in batches for row in batch.to_pylist()]
        with open(f"{path}.{uuid.uuid4().hex}", "w") as file:
            json.dump(rows, file)
        os.replace(file.name, path)

    def commit(self, epoch: ps.Epoch, tokens: Sequence[Any]) -> None:
        """Do nothing: tasks have committed their rows."""

    def rows(self) -> list[Row]:
        files = sorted(path for path in Path(self.folder).iterdir() if path.name.endswith(".json"))
        return [row for path in files for row in json.loads(path.read_text())]


@dataclass(frozen=True)
class Target:
    """A sink, and a function that returns the rows in it, of a topic and a user's sink in the order of writing."""

    kind: str
    sink: ps.Sink
    rows: Callable[[], list[Row]]


@dataclass(frozen=True)
class Targets:
    """Makes sinks; `key` makes a table one of mode upsert, and a topic keyed."""

    folder: Path
    request: pytest.FixtureRequest

    def make(self, kind: str, name: str = "out", key: str | None = None) -> Target:
        return {
            "sqlite": self._sqlite,
            "postgresql": self._postgresql,
            "topic": self._topic,
            "user": self._user,
            "files": self._files,
        }[kind](name, key)

    def _sqlite(self, name: str, key: str | None) -> Target:
        place = sqlite_table(self.folder / f"{name}.db", name)
        return Target("sqlite", _table(name, place.url, key), lambda: _named(place.sql, name))

    def _postgresql(self, name: str, key: str | None) -> Target:
        server: PostgresServer = self.request.getfixturevalue("postgres")
        table = f"{name}_{uuid.uuid4().hex[:8]}"
        return Target("postgresql", _table(table, server.url, key), lambda: _named(server.sql, table))

    def _topic(self, name: str, key: str | None) -> Target:
        bootstrap: str = self.request.getfixturevalue("event_log")
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        sink = ps.topic(topic, key=key, connection=f"kafka://{bootstrap}")
        return Target("topic", sink, lambda: of_topic(bootstrap, topic))

    def _user(self, name: str, key: str | None) -> Target:
        sink = UserSink(self.folder / name, [key] if key else [])
        return Target("user", sink, sink.rows)

    def _files(self, name: str, key: str | None) -> Target:
        folder = self.folder / name

        def rows() -> list[Row]:
            found: list[Row] = duckdb.sql(f"FROM read_parquet('{folder}/*.parquet')").to_arrow_table().to_pylist()
            return found

        return Target("files", ps.files(str(folder)), rows)


def _table(name: str, url: str, key: str | None) -> ps.Sink:
    return ps.table(name, connection=url, mode="upsert", key=key) if key else ps.table(name, connection=url)


def _named(sql: Callable[[str], list[tuple[Any, ...]]], table: str) -> list[Row]:
    """Return the rows of a table; its columns are those of `SCHEMA` in the tests that use it."""
    return [{"k": k, "n": n} for k, n in sql(f"SELECT k, n FROM {table}")]
